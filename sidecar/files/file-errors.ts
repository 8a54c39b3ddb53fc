import { HoldfastError } from '../../protocol/errors.ts';
import type { ErrorCode } from '../../protocol/errors.ts';
import { errnoOf } from './directory.ts';

interface Meaning {
  readonly code: ErrorCode;
  readonly what: (path: string) => string;
  readonly why?: string;
  readonly next?: string;
}

/** The error for a failed system call on a path. */
const MEANINGS: Readonly<Record<string, Meaning>> = {
  ENOENT: { code: 'file_not_found', what: (path) => `There is no ${path}` },
  EXDEV: { code: 'file_not_found', what: (path) => `There is no ${path}`, why: 'it leads out of the workspace' },
  EEXIST: { code: 'file_exists', what: (path) => `There is a ${path} already` },
  ENOTDIR: { code: 'file_not_a_directory', what: (path) => `${path} is not a folder, or leads through something that is none` },
  EISDIR: { code: 'file_is_a_directory', what: (path) => `${path} is a folder` },
  ENOTEMPTY: { code: 'directory_not_empty', what: (path) => `${path} is not empty` },
  EACCES: { code: 'permission_denied', what: (path) => `${path} cannot be used like this`, why: 'its mode, or that of a parent folder, does not allow it' },
  EPERM: { code: 'permission_denied', what: (path) => `${path} cannot be used like this`, why: 'it does not belong to the session' },
  EROFS: { code: 'permission_denied', what: (path) => `${path} cannot be changed`, why: 'the workspace is read-only' },
  ELOOP: { code: 'file_unavailable', what: (path) => `${path} cannot be followed`, why: 'it has too many levels of links' },
  ENXIO: { code: 'file_not_regular', what: (path) => `${path} is not a regular file` },
  ENAMETOOLONG: { code: 'invalid_params', what: (path) => `The name ${path} is too long` },
  EINVAL: { code: 'invalid_params', what: (path) => `${path} does not support this operation` },
  EAGAIN: { code: 'file_unavailable', what: (path) => `${path} cannot be used now`, why: 'another process has locked or is moving it', next: 'try again' },
  EBUSY: { code: 'file_unavailable', what: (path) => `${path} cannot be used now`, why: 'it is in use', next: 'try again' },
  ETXTBSY: { code: 'file_unavailable', what: (path) => `${path} cannot be changed now`, why: 'it is a running program' },
  ESTALE: { code: 'file_unavailable', what: (path) => `${path} was removed meanwhile`, next: 'try again' },
  EIO: { code: 'file_unavailable', what: (path) => `${path} cannot be read or written`, why: 'the disk failed' },
  EMLINK: { code: 'file_unavailable', what: (path) => `${path} cannot be created`, why: 'a limit of the file system on links or entries is reached' },
  ENOSPC: { code: 'no_space', what: (path) => `${path} was not written`, why: 'the disk is full', next: 'free some space' },
  EDQUOT: { code: 'no_space', what: (path) => `${path} was not written`, why: 'the quota is used up', next: 'free some space' },
  EFBIG: { code: 'file_too_large', what: (path) => `${path} would be larger than the file system allows` },
  EMFILE: { code: 'overloaded', what: (path) => `${path} cannot be opened now`, why: 'too many files are open', next: 'try again' },
  ENFILE: { code: 'overloaded', what: (path) => `${path} cannot be opened now`, why: 'too many files are open', next: 'try again' },
}; // prettier-ignore

/** Converts an error to the one that the caller of `path` gets. A HoldfastError stays as it is. */
export function toFileError(error: unknown, path: string): unknown {
  if (error instanceof HoldfastError) return error;
  const meaning = MEANINGS[errnoOf(error) ?? ''];
  if (meaning === undefined) return error;
  const { code, what, why, next } = meaning;
  return new HoldfastError(code, what(path), { why, next, cause: error });
}

/** Runs an operation on a path and converts its errors. */
export async function withFileErrors<T>(path: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw toFileError(error, path);
  }
}

/** An error such as the kernel would return. */
export function systemError(code: string, call: string): Error {
  return Object.assign(new Error(`${code}: ${call}`), { code, syscall: call });
}
