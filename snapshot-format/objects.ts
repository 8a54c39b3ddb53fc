import { createHash, hash } from 'node:crypto';
import { HoldfastError } from '../protocol/errors.ts';

/**
 * A snapshot consists of objects, each addressed by the sha256 of its kind (one byte) and its body.
 * `docs/snapshots-format.md` describes the bytes.
 */
export const OBJECT_KINDS = {
  /** Bytes of a file, or of a part of it. */
  blob: 0,
  /** Entries of a directory, or of a part of it. */
  tree: 1,
  /** References to the pieces of a large file or directory. */
  list: 2,
  /** The top directory. Its hash identifies the snapshot's tree. */
  root: 3,
  /** One block of a sparse file: its extents and their data. */
  block: 4,
} as const;
export type ObjectKindName = keyof typeof OBJECT_KINDS;
export type ObjectKind = (typeof OBJECT_KINDS)[ObjectKindName];

export const SNAPSHOT_LIMITS = {
  hashBytes: 32,
  /** Files are split at multiples of this. */
  pieceBytes: 2 ** 20,
  /** Size limit of an object's body. */
  objectBytes: 2 ** 20 + 2 ** 17,
  /** Size limit of one piece of a directory's encoded entries. */
  treePieceBytes: 2 ** 18,
  /** Size limit of one encoded entry with its extended attributes and link target. */
  entryBytes: 2 ** 20,
  nameBytes: 255,
  targetBytes: 4095,
  /** Hashes stored in an entry itself; more of them go into a list. */
  inlinePieces: 8,
  listItems: 16_384,
  /** Levels of lists. */
  depth: 3,
  linkGroupBytes: 16,
} as const;

/** 32 bytes. */
export type Hash = Buffer;

export function hashOf(kind: ObjectKind, body: Uint8Array): Hash {
  return createHash('sha256').update(KIND_BYTES[kind]).update(body).digest();
}

/**
 * As `hashOf`, but cheaper if the body lies in `memory`, which only the caller uses: the byte before the body
 * temporarily holds the kind.
 */
export function hashInPlace(kind: ObjectKind, memory: Buffer | null, body: Uint8Array): Hash {
  if (body.buffer !== memory?.buffer) return hashOf(kind, body);
  const from = body.byteOffset - memory.byteOffset - 1;
  const before = memory[from];
  if (before === undefined || from + 1 + body.length > memory.length) return hashOf(kind, body);
  memory[from] = kind;
  // As a string, because one buffer for each hash is work for the garbage collector.
  const text = hash('sha256', memory.subarray(from, from + 1 + body.length), 'binary');
  memory[from] = before;
  return Buffer.from(text, 'latin1');
}

const KIND_BYTES = [0, 1, 2, 3, 4].map((kind) => Buffer.from([kind])) as [
  Buffer,
  Buffer,
  Buffer,
  Buffer,
  Buffer,
];

export function isObjectKind(kind: number): kind is ObjectKind {
  return Number.isInteger(kind) && kind >= 0 && kind < KIND_BYTES.length;
}

const HEX = /^[0-9a-f]{64}$/;

/** Parses a hexadecimal hash. Throws `invalid_params`. */
export function parseHash(text: string): Hash {
  if (!HEX.test(text)) throw new HoldfastError('invalid_params', `${JSON.stringify(text)} is not a hash`);
  return Buffer.from(text, 'hex');
}

/**
 * A source of objects. `read` returns the body with this hash and kind, or throws `snapshot_damaged` (`details.object`:
 * the hexadecimal hash).
 */
export interface ObjectReader {
  read(hash: Hash, kind: ObjectKind): Promise<Buffer>;
}

/** The error for bytes that violate the format. Callers add the object or path in `details`. */
export function snapshotDamaged(why: string, details?: Record<string, string>): HoldfastError {
  return new HoldfastError('snapshot_damaged', 'A snapshot cannot be read', { why, details });
}

/** Throws `snapshot_damaged` if the body does not have this hash. `memory`: see `hashInPlace`. */
export function checkObject(
  hash: Hash,
  kind: ObjectKind,
  body: Uint8Array,
  memory: Buffer | null = null,
): void {
  if (!hashInPlace(kind, memory, body).equals(hash)) {
    throw snapshotDamaged('the bytes of an object have changed', { object: hash.toString('hex') });
  }
}
