import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

const ALGORITHM = 'aes-256-gcm';
const FORMAT = 1;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const HEAD_BYTES = 1 + IV_BYTES + TAG_BYTES;

/** What a sealed value is bound to: in another place it cannot be opened. */
export interface SecretIdentity {
  /** Empty: for all profiles. */
  readonly profile: string;
  readonly name: string;
  readonly version: number;
}

/** Encrypts a value with AES-256-GCM: a byte for the format, 12 of a random IV, 16 of the tag, then the value. */
export function seal(key: Buffer, identity: SecretIdentity, value: Uint8Array): Buffer {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, iv, { authTagLength: TAG_BYTES });
  cipher.setAAD(bound(identity));
  const encrypted = Buffer.concat([cipher.update(value), cipher.final()]);
  return Buffer.concat([Buffer.of(FORMAT), iv, cipher.getAuthTag(), encrypted]);
}

/** Null if it was sealed with another key or for another secret, or was changed since. */
export function unseal(key: Buffer, identity: SecretIdentity, sealed: Buffer): Buffer | null {
  if (sealed.length < HEAD_BYTES || sealed[0] !== FORMAT) return null;
  const iv = sealed.subarray(1, 1 + IV_BYTES);
  const decipher = createDecipheriv(ALGORITHM, key, iv, { authTagLength: TAG_BYTES });
  decipher.setAAD(bound(identity));
  decipher.setAuthTag(sealed.subarray(1 + IV_BYTES, HEAD_BYTES));
  try {
    return Buffer.concat([decipher.update(sealed.subarray(HEAD_BYTES)), decipher.final()]);
  } catch {
    return null;
  }
}

function bound({ profile, name, version }: SecretIdentity): Buffer {
  return Buffer.from(JSON.stringify([profile, name, version]));
}
