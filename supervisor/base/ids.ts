import { randomBytes } from 'node:crypto';

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';
const LENGTH = 16;

export type IdKind =
  | 'ses'
  | 'turn'
  | 'exec'
  | 'term'
  | 'sub'
  | 'snp'
  | 'rev'
  | 'perm'
  | 'proc'
  | 'hand'
  | 'man'
  | 'art'
  | 'chk'
  | 'setup'
  | 'cmt'
  | 'mov';

/** Creates ids: a kind and 80 random bits in lower-case base32. */
export interface Ids {
  next(kind: IdKind): string;
}

export const randomIds: Ids = {
  next(kind) {
    // 256 is a multiple of 32, so the remainder is even.
    const letters = [...randomBytes(LENGTH)].map((byte) => ALPHABET[byte % 32] ?? 'a');
    return `${kind}-${letters.join('')}`;
  },
};
