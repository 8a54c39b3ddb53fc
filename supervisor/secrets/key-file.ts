import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, linkSync, openSync, readFileSync, rmSync, statSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { syncDirectory } from '../store/home.ts';
import { hasErrorCode, storageError } from '../store/storage-error.ts';

/** Bytes of an AES-256 key. */
const KEY_BYTES = 32;

/**
 * Reads the key that seals secrets; null if there is none.
 * Errors: `home_damaged` if it is not a key or others can read it.
 */
export function readKey(path: string): Buffer | null {
  try {
    const { mode } = statSync(path);
    if ((mode & 0o077) !== 0) throw damaged(path, 'others than its owner can read it', `chmod 600 ${path}`);
    const key = readFileSync(path);
    if (key.length === KEY_BYTES) return key;
    throw damaged(path, `it has ${key.length} bytes instead of ${KEY_BYTES}`, null);
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return null;
    throw storageError(error, `The key of the secrets could not be read from ${path}`);
  }
}

/**
 * Creates the key where there is none, and returns the one that is there afterwards. The file gets its name once it is
 * complete and durable, and never replaces another: a key that sealed something is not lost to a crash.
 */
export function createKey(path: string): Buffer {
  const temporary = join(dirname(path), `.key.${process.pid}.${randomBytes(4).toString('hex')}`);
  try {
    const descriptor = openSync(temporary, 'wx', 0o600);
    try {
      writeSync(descriptor, randomBytes(KEY_BYTES));
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
    try {
      linkSync(temporary, path);
    } catch (error) {
      if (!hasErrorCode(error, 'EEXIST')) throw error;
    } finally {
      rmSync(temporary, { force: true });
    }
    syncDirectory(dirname(path));
  } catch (error) {
    throw storageError(error, 'The key of the secrets could not be created');
  }
  const key = readKey(path);
  if (key === null) throw damaged(path, 'it was removed while it was created', null);
  return key;
}

function damaged(path: string, why: string, next: string | null): HoldfastError {
  return new HoldfastError('home_damaged', `The key of the secrets in ${path} cannot be used`, {
    why,
    next:
      next ??
      'restore the file from a backup; or remove all secrets with `holdfast secret rm`, delete the file, and set them again',
  });
}
