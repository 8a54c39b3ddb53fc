import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { hasErrorCode } from '../file-error.ts';
import { gitHistoryError } from './error.ts';

/**
 * Reads a regular file; null if it does not exist. Errors: `profile_invalid` (a link, a special file, more than
 * `most` bytes).
 */
export async function readSmallFile(path: string, most: number): Promise<Buffer | null> {
  const file = await openRegular(path);
  if (file === null) return null;
  try {
    const { size } = await file.stat();
    if (size > most)
      throw gitHistoryError(
        `${path} has more than ${most} bytes`,
        'deploy a smaller clone of the repository',
      );
    // One byte more than the size, to notice a growing file.
    const buffer = Buffer.alloc(size + 1);
    let length = 0;
    for (;;) {
      const { bytesRead } = await file.read(buffer, length, buffer.length - length, null);
      length += bytesRead;
      if (bytesRead === 0 || length === buffer.length) break;
    }
    if (length !== size) throw gitHistoryError(`${path} changed while it was read`, 'deploy again');
    return buffer.subarray(0, length);
  } finally {
    await file.close();
  }
}

/** Opens a regular file; null if it does not exist. Errors: `profile_invalid` (a link or a special file). */
export async function openRegular(path: string): Promise<Awaited<ReturnType<typeof open>> | null> {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
  const file = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch((error: unknown) => {
    if (hasErrorCode(error, 'ENOENT')) return null;
    if (hasErrorCode(error, 'ELOOP') || hasErrorCode(error, 'ENXIO')) throw irregularFileError(path);
    throw error;
  });
  if (file === null) return null;
  if ((await file.stat()).isFile()) return file;
  await file.close();
  throw irregularFileError(path);
}

export function irregularFileError(path: string): Error {
  return gitHistoryError(
    `${path} is a link or a special file, which git never writes there`,
    'deploy a plain clone of the repository',
  );
}
