import { HoldfastError } from '../../protocol/errors.ts';
import type { ErrorCode } from '../../protocol/errors.ts';
import { errnoOf } from './directory.ts';

interface Meaning {
  readonly code: ErrorCode;
  readonly what: (path: string) => string;
  readonly why?: string;
  readonly next?: string;
}

/** What a failed system call means for whoever asked for a path. */
const MEANINGS: Readonly<Record<string, Meaning>> = {
  ENOENT: { code: 'file_not_found', what: (path) => `There is no ${path}` },
  EXDEV: { code: 'file_not_found', what: (path) => `There is no ${path}`, why: 'it leads out of the workspace' },
  EEXIST: { code: 'file_exists', what: (path) => `There is a ${path} already` },
  ENOTDIR: { code: 'file_not_a_directory', what: (path) => `${path} is not a folder, or leads through something that is none` },
  EISDIR: { code: 'file_is_a_directory', what: (path) => `${path} is a folder` },
  ENOTEMPTY: { code: 'directory_not_empty', what: (path) => `${path} is not empty` },
  EACCES: { code: 'permission_denied', what: (path) => `${path} may not be used so`, why: 'its mode, or that of a folder on the way, does not allow it' },
  EPERM: { code: 'permission_denied', what: (path) => `${path} may not be used so`, why: 'it does not belong to the session' },
  EROFS: { code: 'permission_denied', what: (path) => `${path} may not be changed`, why: 'the workspace is read-only' },
  ELOOP: { code: 'file_unavailable', what: (path) => `${path} cannot be followed`, why: 'it leads through too many links' },
  ENXIO: { code: 'file_not_regular', what: (path) => `${path} is not a regular file` },
  ENAMETOOLONG: { code: 'invalid_params', what: (path) => `${path} is too long a name` },
  EINVAL: { code: 'invalid_params', what: (path) => `That cannot be done with ${path}` },
  EAGAIN: { code: 'file_unavailable', what: (path) => `${path} cannot be used now`, why: 'another process keeps it, or moves it about', next: 'try again' },
  EBUSY: { code: 'file_unavailable', what: (path) => `${path} cannot be used now`, why: 'it is in use', next: 'try again' },
  ETXTBSY: { code: 'file_unavailable', what: (path) => `${path} cannot be changed now`, why: 'it is a program that runs' },
  ESTALE: { code: 'file_unavailable', what: (path) => `${path} went away meanwhile`, next: 'try again' },
  EIO: { code: 'file_unavailable', what: (path) => `${path} cannot be read or written`, why: 'the disk failed' },
  EMLINK: { code: 'file_unavailable', what: (path) => `${path} cannot be made`, why: 'the folder holds as many as it can' },
  ENOSPC: { code: 'no_space', what: (path) => `${path} was not written`, why: 'the disk is full', next: 'make room' },
  EDQUOT: { code: 'no_space', what: (path) => `${path} was not written`, why: 'the quota is used up', next: 'make room' },
  EFBIG: { code: 'file_too_large', what: (path) => `${path} would be larger than the file system allows` },
  EMFILE: { code: 'overloaded', what: (path) => `${path} cannot be opened now`, why: 'too many files are open', next: 'try again' },
  ENFILE: { code: 'overloaded', what: (path) => `${path} cannot be opened now`, why: 'too many files are open', next: 'try again' },
}; // prettier-ignore

/** The error that the caller of `path` gets for whatever was thrown; our own errors as they are. */
export function toFileError(error: unknown, path: string): unknown {
  if (error instanceof HoldfastError) return error;
  const meaning = MEANINGS[errnoOf(error) ?? ''];
  if (meaning === undefined) return error;
  const { code, what, why, next } = meaning;
  return new HoldfastError(code, what(path), { why, next, cause: error });
}

/** Runs one operation on a path. */
export async function withFileErrors<T>(path: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw toFileError(error, path);
  }
}

/** An error as the kernel would have given it. */
export function systemError(code: string, call: string): Error {
  return Object.assign(new Error(`${code}: ${call}`), { code, syscall: call });
}
