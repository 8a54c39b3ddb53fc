import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ARTIFACT_LIMITS, type ArtifactFile } from '../../protocol/artifacts.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { syncDirectory } from '../store/home.ts';
import { storageError } from '../store/storage-error.ts';

/** A file to keep. `size`: null if it is known at the end only. */
export interface Content {
  /** As protocol/paths.ts writes it. */
  readonly path: string;
  readonly executable: boolean;
  readonly size: number | null;
  readonly bytes: AsyncIterable<Uint8Array>;
}

export interface Written {
  readonly files: ArtifactFile[];
  readonly bytes: number;
}

/** The ending of an artifact that is not complete. */
export const PART_SUFFIX = '.part';

/**
 * Writes the contents into one new file, one behind the other. It is durable and complete when this resolves; on an error nothing is
 * left of it. Errors: `output_limit` above the limits of an artifact, `no_space`.
 */
export async function writeArtifact(path: string, contents: AsyncIterable<Content>): Promise<Written> {
  const part = path + PART_SUFFIX;
  const what = 'The artifact could not be stored';
  try {
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    const file = await open(part, flags, 0o600);
    let written: Written;
    try {
      written = await writeAll(file, contents);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(part, path);
    syncDirectory(dirname(path));
    return written;
  } catch (error) {
    await rm(part, { force: true });
    throw storageError(error, what);
  }
}

async function writeAll(file: FileHandle, contents: AsyncIterable<Content>): Promise<Written> {
  const files: ArtifactFile[] = [];
  let total = 0;
  let characters = 0;
  const requireWithinLimit = (more: number): void => {
    if (total + more > ARTIFACT_LIMITS.bytes) throw tooMuch(`${ARTIFACT_LIMITS.bytes / 2 ** 20} MiB`);
  };
  for await (const { path, executable, size: listed, bytes } of contents) {
    characters += path.length;
    if (files.length >= ARTIFACT_LIMITS.files) throw tooMuch(`${ARTIFACT_LIMITS.files} files`);
    if (characters > ARTIFACT_LIMITS.pathCharacters)
      throw tooMuch(`${ARTIFACT_LIMITS.pathCharacters} characters in its paths`);
    // A sparse file may have any size.
    requireWithinLimit(listed ?? 0);
    const hash = createHash('sha256');
    let size = 0;
    for await (const piece of bytes) {
      requireWithinLimit(piece.length);
      hash.update(piece);
      await writeFully(file, piece, total);
      total += piece.length;
      size += piece.length;
    }
    files.push({ path, executable, size, sha256: hash.digest('hex') });
  }
  return { files, bytes: total };
}

/** A disk that gets full takes a part first, and fails with the next. */
async function writeFully(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let written = 0; written < bytes.length;) {
    const rest = bytes.length - written;
    written += (await file.write(bytes, written, rest, position + written)).bytesWritten;
  }
}

function tooMuch(limit: string): HoldfastError {
  return new HoldfastError('output_limit', 'The artifact was not created', {
    why: `it would have more than ${limit}`,
    next: 'choose fewer files with --paths',
  });
}

/** Up to `limit` bytes from `offset` on; empty at the end. Errors: `home_damaged` if the file is gone. */
export async function readArtifact(path: string, offset: number, limit: number): Promise<Buffer> {
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      const { size } = await file.stat();
      const buffer = Buffer.alloc(Math.max(0, Math.min(limit, size - offset)));
      let filled = 0;
      while (filled < buffer.length) {
        const { bytesRead } = await file.read(buffer, filled, buffer.length - filled, offset + filled);
        if (bytesRead === 0) break;
        filled += bytesRead;
      }
      return buffer.subarray(0, filled);
    } finally {
      await file.close();
    }
  } catch (error) {
    throw storageError(error, 'The artifact could not be read');
  }
}
