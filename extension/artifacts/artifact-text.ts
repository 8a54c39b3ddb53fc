import { createPublicKey } from 'node:crypto';
import { type ArtifactContents, placeFiles, readContent } from '../../handoff/artifact-files.ts';
import type { ArtifactConnection } from '../../handoff/artifact-files.ts';
import type { Artifact } from '../../protocol/artifacts.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { verifyManifest } from '../../protocol/manifest-verification.ts';
import { formatBytes, formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { manifestText } from '../page/manifest-text.ts';
import { originOf } from './rows.ts';

/** Bytes of a file that a document shows. */
export const MAX_SHOWN = 4 * 2 ** 20;

/** The content of a file as the text of a document. `bytes`: the first of them; `size`: of the whole file. */
export function shownText(bytes: Buffer, size: number): string {
  if (bytes.includes(0))
    return `This file is not text (${formatBytes(size)}). Export the artifact to use it.\n`;
  if (bytes.length === size) return bytes.toString('utf8');
  // A character may be cut in two.
  const text = new TextDecoder('utf-8').decode(bytes, { stream: true });
  return (
    `[Holdfast: the first ${formatBytes(bytes.length)} of ${formatBytes(size)}. ` +
    `Export the artifact to see the rest.]\n${text}`
  );
}

export interface Verification {
  readonly valid: boolean;
  readonly text: string;
}

/**
 * Whether an artifact is what was kept, in words: its list of files is the one of its statement, each content has its hash, and the
 * statement is signed with the key. `keyOf`: whose key it is, as `this machine`.
 */
export async function verifyContents(
  connection: ArtifactConnection,
  contents: ArtifactContents,
  { publicKey, keyOf }: { readonly publicKey: string; readonly keyOf: string },
  {
    signal,
    onProgress,
  }: { readonly signal?: AbortSignal; readonly onProgress?: (text: string) => void } = {},
): Promise<Verification> {
  const { artifact, envelope, files } = contents;
  const differing: string[] = [];
  for (const [at, placed] of placeFiles(files).entries()) {
    onProgress?.(`${at} of ${formatCount(files.length, 'file')}`);
    try {
      const parts = readContent(connection, artifact.id, placed, { signal });
      while (!(await parts.next()).done);
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== 'protocol_error') throw error;
      differing.push(placed.file.path);
    }
  }
  const text = JSON.stringify(envelope);
  const key = createPublicKey(publicKey);
  const size = `${formatCount(files.length, 'file')}, ${formatBytes(artifact.bytes)}`;
  const lines = [
    ...describe(artifact),
    differing.length === 0
      ? `Contents: ${size}. Each file is what was kept.`
      : `NOT VALID: ${formatCount(differing.length, 'file')} of ${files.length} with another content than was kept:`,
    ...differing.slice(0, MAX_NAMED).map((path) => `  ${sanitize(path)}`),
    ...(differing.length > MAX_NAMED ? [`  and ${differing.length - MAX_NAMED} more`] : []),
    'The list of its files is the one that the signed statement is about.',
  ];
  return {
    valid: differing.length === 0 && verifyManifest(text, key).valid,
    text: `${lines.join('\n')}\n\n${manifestText(text, key, keyOf)}`,
  };
}

/** The same where its list of files is already another one than the statement's. */
export function brokenText(id: string, error: HoldfastError): Verification {
  return { valid: false, text: `NOT VALID: ${sanitize(id)}: ${sanitize(error.sentence, 1_000)}\n` };
}

const MAX_NAMED = 20;

function describe(artifact: Artifact): string[] {
  const { id, name, createdAt, session, snapshot, sha256, leftOut } = artifact;
  return [
    `Artifact ${id}: ${sanitize(name, 100)}`,
    `Kept at ${sanitize(createdAt, 40)} from ${originOf(artifact)} (${session}), snapshot ${snapshot}`,
    `SHA-256 of the list of its files: ${sha256}`,
    ...(leftOut > 0 ? [`Left out when it was kept: ${formatCount(leftOut, 'path')}`] : []),
  ];
}
