import type { Uri } from 'vscode';
import { placeFiles, readArtifactFiles, readContent } from '../../handoff/artifact-files.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { documentPath } from '../files/document-path.ts';
import { artifactIn, artifactUri } from '../files/location.ts';
import { machineName } from '../page/manifest-files.ts';
import { MAX_SHOWN, brokenText, shownText, verifyContents } from './artifact-text.ts';
import type { Verification } from './artifact-text.ts';
import type { KeptArtifact } from './kept.ts';

/** The document of a file. `path`: as protocol/paths.ts writes it. */
export function fileUri({ host, artifact }: KeptArtifact, path: string): Uri {
  return artifactUri(host, artifact.id, documentPath(path)).with({ query: path });
}

/** The document that says whether an artifact is what was kept. */
export function verificationUri({ host, artifact }: KeptArtifact): Uri {
  return artifactUri(host, artifact.id, `/${artifact.id} verified.txt`);
}

/** The text of either document. Errors: `not_found` for any other URI, because anybody can make one up. */
export async function readArtifactDocument(connection: Connection, uri: Uri): Promise<string> {
  const host = connection.at(uri);
  const id = artifactIn(uri);
  if (host === undefined || id === undefined) throw notThere();
  if (uri.path === `/${id} verified.txt`) return (await verifyArtifact(host, id)).text;
  // A file has one name here, which says what it is: never a name that VS Code obeys.
  const { path, query } = uri;
  if (!query.startsWith('/') || documentPath(query) !== path) throw notThere();
  const { files } = await readArtifactFiles(host, id);
  const placed = placeFiles(files).find(({ file }) => file.path === query);
  if (placed === undefined) throw notThere();
  const parts: Buffer[] = [];
  for await (const part of readContent(host, id, placed, { limit: MAX_SHOWN })) parts.push(part);
  return shownText(Buffer.concat(parts), placed.file.size);
}

/** Reads all of an artifact. Errors: those of the connection; a host that lies makes an artifact that is not valid. */
export async function verifyArtifact(
  host: HostConnection,
  id: string,
  options: { readonly signal?: AbortSignal; readonly onProgress?: (text: string) => void } = {},
): Promise<Verification> {
  try {
    const contents = await readArtifactFiles(host, id, options.signal);
    const { publicKey } = await host.call('manifest/key', {});
    return await verifyContents(host, contents, { publicKey, keyOf: machineName(host.name) }, options);
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'protocol_error') return brokenText(id, error);
    throw error;
  }
}

function notThere(): HoldfastError {
  return new HoldfastError('not_found', 'There is no such file in an artifact', {
    next: 'open it from “Agent: Artifacts…”',
  });
}
