import { HoldfastError } from '../../protocol/errors.ts';

export function hasErrorCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

/** Primary result codes of SQLite for which a person can do something. */
const SQLITE = { BUSY: 5, READONLY: 8, IOERR: 10, CORRUPT: 11, FULL: 13, NOTADB: 26 } as const;

export function sqliteCode(error: unknown): number | null {
  if (!(error instanceof Error) || !('errcode' in error) || typeof error.errcode !== 'number') return null;
  return error.errcode & 0xff;
}

export function isCorruption(error: unknown): boolean {
  const code = sqliteCode(error);
  return code === SQLITE.CORRUPT || code === SQLITE.NOTADB;
}

/** Converts an error of the disk or the database; our own errors pass through. */
export function storageError(error: unknown, what: string): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const why = error instanceof Error ? error.message : String(error);
  const sqlite = sqliteCode(error);
  if (sqlite === SQLITE.FULL || hasErrorCode(error, 'ENOSPC') || hasErrorCode(error, 'EDQUOT')) {
    return new HoldfastError('no_space', what, {
      why: 'the disk of the home is full',
      next: 'free some space there (`holdfast gc`, or delete sessions you no longer need) and try again',
      cause: error,
    });
  }
  if (sqlite === SQLITE.CORRUPT || sqlite === SQLITE.NOTADB) {
    return new HoldfastError('home_damaged', what, {
      why: `the database cannot be read: ${why}`,
      next: "stop the supervisor and restore the newest file from the home's `backups` folder",
      cause: error,
    });
  }
  if (
    sqlite === SQLITE.READONLY ||
    hasErrorCode(error, 'EACCES') ||
    hasErrorCode(error, 'EPERM') ||
    hasErrorCode(error, 'EROFS')
  ) {
    return new HoldfastError('permission_denied', what, {
      why,
      next: 'check who owns the home and whether its file system is writable',
      cause: error,
    });
  }
  return new HoldfastError('internal', what, { why, cause: error });
}
