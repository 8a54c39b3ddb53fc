import { statfs } from 'node:fs/promises';
import { HoldfastError } from '../protocol/errors.ts';

/** The errors of a disk, or of a person's share of it, that is full. */
const CODES = ['ENOSPC', 'EDQUOT'];
/** How a line of git ends that has one of them; a name in it stands before that. */
const FULL = /^(?:error|fatal|warning): .*[:(] ?(?:No space left on device|Disk quota exceeded)\)?$/m;
/** Git does not always say why it could not write; with less than this free, it is the reason. Bytes. */
const LITTLE = 2 ** 20;

/** Whether a failure in this folder is because of a full disk. `said`: what git printed. */
export async function isDiskFull(folder: string, said: string): Promise<boolean> {
  if (FULL.test(said)) return true;
  if (!/unable to (write|create)|could not (write|create)|failed to write|write error/i.test(said))
    return false;
  const { bavail, bsize } = await statfs(folder).catch(() => ({ bavail: Infinity, bsize: 1 }));
  return bavail * bsize < LITTLE;
}

/** Runs `act`. That the disk is full is then said in a sentence, with the code `no_space`. */
export async function namingFullDisk<T>(what: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof HoldfastError || !isFull(error)) throw error;
    throw new HoldfastError('no_space', what, {
      why: 'the disk is full',
      next: 'free some space and try again',
      cause: error,
    });
  }
}

function isFull(error: unknown): boolean {
  return error instanceof Error && 'code' in error && CODES.some((code) => code === error.code);
}
