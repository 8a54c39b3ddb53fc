import {
  type KeyObject,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
} from 'node:crypto';
import { closeSync, fsyncSync, linkSync, openSync, readFileSync, rmSync, statSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { keyIdOf } from '../../protocol/envelope.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { syncDirectory } from '../store/home.ts';
import { hasErrorCode, storageError } from '../store/storage-error.ts';

const MOST_BYTES = 4096;

export interface HostKey {
  readonly privateKey: KeyObject;
  /** PEM. */
  readonly publicKey: string;
  readonly keyId: string;
}

/**
 * The Ed25519 key of a home, which signs manifests; it is created on first use. The file gets its name once it is complete and
 * durable, and never replaces another. Errors: `home_damaged` if it is not such a key or others can read it, `no_space`.
 */
export function openHostKey(path: string): HostKey {
  const key = readHostKey(path) ?? createHostKey(path);
  const publicKey = createPublicKey(key);
  return {
    privateKey: key,
    publicKey: String(publicKey.export({ type: 'spki', format: 'pem' })),
    keyId: keyIdOf(publicKey),
  };
}

function readHostKey(path: string): KeyObject | null {
  let pem: Buffer;
  try {
    const stats = statSync(path);
    if ((stats.mode & 0o077) !== 0)
      throw damaged(path, 'others than its owner can read it', `run: chmod 600 ${path}`);
    if (!stats.isFile() || stats.size > MOST_BYTES) throw damaged(path, 'it is not a key');
    pem = readFileSync(path);
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return null;
    throw storageError(error, `The host key could not be read from ${path}`);
  }
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === 'ed25519') return key;
  } catch {
    // Its error could repeat a part of the file.
  }
  throw damaged(path, 'it is not an Ed25519 key');
}

function createHostKey(path: string): KeyObject {
  const temporary = join(dirname(path), `.host-key.${process.pid}.${randomBytes(4).toString('hex')}`);
  const { privateKey } = generateKeyPairSync('ed25519');
  try {
    const descriptor = openSync(temporary, 'wx', 0o600);
    try {
      writeSync(descriptor, String(privateKey.export({ type: 'pkcs8', format: 'pem' })));
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
    try {
      linkSync(temporary, path);
    } catch (error) {
      if (!hasErrorCode(error, 'EEXIST')) throw error;
    }
    syncDirectory(dirname(path));
  } catch (error) {
    throw storageError(error, 'The host key could not be created');
  } finally {
    rmSync(temporary, { force: true });
  }
  const key = readHostKey(path);
  if (key === null) throw damaged(path, 'it was removed while it was created');
  return key;
}

function damaged(path: string, why: string, next?: string): HoldfastError {
  return new HoldfastError('home_damaged', `The host key in ${path} cannot be used`, {
    why,
    next:
      next ??
      'restore the file from a backup; or move it away: the next manifest is then signed with a new key',
  });
}
