import { HoldfastError } from '../../protocol/errors.ts';
import { errnoOf } from './directory.ts';

/** Whether an operation failed because its disk is full. */
export function isFullDisk(error: unknown): boolean {
  if (error instanceof HoldfastError) return error.code === 'no_space';
  const errno = errnoOf(error);
  return errno === 'ENOSPC' || errno === 'EDQUOT';
}

/** `no_space` with `what` for a full disk; any other error as it is. */
export function spaceError(cause: unknown, what: string): unknown {
  if (!isFullDisk(cause)) return cause;
  return new HoldfastError('no_space', what, {
    why: 'the disk is full',
    next: 'free some space and try again',
    cause,
  });
}
