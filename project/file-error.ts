import { HoldfastError } from '../protocol/errors.ts';

export function hasErrorCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

export function explainFileError(error: unknown, what: string, path: string): unknown {
  if (!(error instanceof Error) || !('code' in error)) return error;
  const details = { path };
  switch (error.code) {
    case 'ENOSPC':
    case 'EDQUOT':
      return new HoldfastError('no_space', what, {
        why: 'the disk is full',
        next: 'free some space and deploy again',
        details,
        cause: error,
      });
    case 'EACCES':
    case 'EPERM':
      return new HoldfastError('permission_denied', what, { why: error.message, details, cause: error });
    case 'ENOENT':
    case 'ELOOP':
    case 'ENOTDIR':
      return new HoldfastError('conflict', what, {
        why: 'the folder changed while it was being copied',
        next: 'deploy again',
        details,
        cause: error,
      });
    default:
      return error;
  }
}
