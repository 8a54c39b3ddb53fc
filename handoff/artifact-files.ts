import { createHash } from 'node:crypto';
import {
  ARTIFACT_LIMITS,
  type ARTIFACT_METHODS,
  type Artifact,
  type ArtifactFile,
  artifactList,
} from '../protocol/artifacts.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Envelope } from '../protocol/manifest.ts';
import { readUnverified } from '../protocol/manifest-verification.ts';
import type { Params, Result } from '../protocol/methods.ts';
import { parsePath } from '../protocol/paths.ts';
import type { CallOptions, CallResult } from '../protocol/wire/shapes.ts';
import { fromBytes, type RawPath } from '../project/raw-path.ts';

type ArtifactMethod = keyof typeof ARTIFACT_METHODS;

/** The connection to a supervisor, which may be on another machine. */
export interface ArtifactConnection {
  callWithBytes<M extends ArtifactMethod>(
    method: M,
    params: Params<M>,
    options?: CallOptions,
  ): Promise<CallResult<Result<M>>>;
}

export interface ArtifactContents {
  readonly artifact: Artifact;
  readonly envelope: Envelope;
  /** In the order of their contents. */
  readonly files: readonly ArtifactFile[];
}

/** One file at its place in the contents of the artifact. */
export interface PlacedFile {
  readonly path: RawPath;
  readonly file: ArtifactFile;
  readonly start: number;
}

/**
 * The list of an artifact's files, which is the one that its signed statement is about; the signature is not checked. The statement
 * has no sizes: they are within the bounds of an artifact, whatever another host says. Errors: `protocol_error` if it is not.
 */
export async function readArtifactFiles(
  connection: ArtifactConnection,
  id: string,
  signal?: AbortSignal,
): Promise<ArtifactContents> {
  const { artifact, envelope } = (
    await connection.callWithBytes('artifact/show', { artifact: id }, { signal })
  ).result;
  const files: ArtifactFile[] = [];
  let bytes = 0;
  let characters = 0;
  for (let from: number | null = 0; from !== null;) {
    const params = { artifact: id, from };
    const page: Result<'artifact/files'> = (
      await connection.callWithBytes('artifact/files', params, { signal })
    ).result;
    files.push(...page.files);
    for (const { size, path } of page.files) {
      bytes += size;
      characters += path.length;
    }
    const goesOn: boolean = page.next === null || (page.next === files.length && page.next > from);
    if (!goesOn || files.length > ARTIFACT_LIMITS.files || characters > ARTIFACT_LIMITS.pathCharacters)
      throw unexpected(id, 'the list of its files does not end');
    if (bytes > ARTIFACT_LIMITS.bytes) throw unexpected(id, 'its files are larger than they can be');
    from = page.next;
  }
  const sha256 = createHash('sha256').update(artifactList(files)).digest('hex');
  if (artifact.id !== id || sha256 !== artifact.sha256)
    throw unexpected(id, 'the list of its files is another one than was kept');
  const statement = readUnverified(JSON.stringify(envelope));
  const subject = statement?.subject.find(({ name }) => name === 'files')?.digest['sha256'];
  if (statement?.predicate.artifact !== id || subject !== sha256)
    throw unexpected(id, 'its signed statement is about something else');
  return { artifact, envelope, files };
}

/** The files with the places of their contents. Errors: `invalid_params`, `file_not_found` for a path that leads out of the workspace. */
export function placeFiles(files: readonly ArtifactFile[]): PlacedFile[] {
  let start = 0;
  return files.map((file) => {
    const placed = { path: parsePath(file.path).map(fromBytes).join('/'), file, start };
    start += file.size;
    return placed;
  });
}

/**
 * The content of a file, part by part, up to `limit` bytes of it. Errors: `protocol_error` for a whole content that is not the one that
 * was kept; the caller has the parts by then.
 */
export async function* readContent(
  connection: ArtifactConnection,
  artifact: string,
  { file, start }: Pick<PlacedFile, 'file' | 'start'>,
  { signal, limit = file.size }: { readonly signal?: AbortSignal | undefined; readonly limit?: number } = {},
): AsyncGenerator<Buffer> {
  const end = Math.min(file.size, limit);
  const hash = createHash('sha256');
  for (let at = 0; at < end;) {
    signal?.throwIfAborted();
    const params = { artifact, offset: start + at };
    const { bytes } = await connection.callWithBytes('artifact/read', params, { signal });
    const part = bytes.subarray(0, end - at);
    if (part.length === 0) throw unexpected(artifact, `${file.path} is shorter than it was`);
    hash.update(part);
    at += part.length;
    yield part;
  }
  if (end === file.size && hash.digest('hex') !== file.sha256)
    throw unexpected(artifact, `${file.path} has another content than was kept`);
}

function unexpected(artifact: string, why: string): HoldfastError {
  return new HoldfastError('protocol_error', `The artifact ${artifact} cannot be used`, { why });
}
