import { createHash, hash } from 'node:crypto';
import { HoldfastError } from '../protocol/errors.ts';

/**
 * What a snapshot is made of: objects, each addressed by the sha256 of its kind (one byte) and its body.
 * `docs/snapshots-format.md` describes the bytes.
 */
export const OBJECT_KINDS = {
  /** Bytes of a file. */
  blob: 0,
  /** Entries of a directory, or a part of them. */
  tree: 1,
  /** Where the pieces of something large are. */
  list: 2,
  /** The top directory itself. Its hash names the snapshot's tree. */
  root: 3,
  /** One block of a file with holes: where its data is, and the data. */
  block: 4,
} as const;
export type ObjectKindName = keyof typeof OBJECT_KINDS;
export type ObjectKind = (typeof OBJECT_KINDS)[ObjectKindName];

export const SNAPSHOT_LIMITS = {
  hashBytes: 32,
  /** Files are cut at multiples of this. */
  pieceBytes: 2 ** 20,
  /** Body of one object. */
  objectBytes: 2 ** 20 + 2 ** 17,
  /** A directory's encoded entries are cut at this at the latest. */
  treePieceBytes: 2 ** 18,
  /** One encoded entry with its extended attributes and its link's text. */
  entryBytes: 2 ** 20,
  nameBytes: 255,
  targetBytes: 4095,
  /** Hashes that stand in an entry itself; more of them go into a list. */
  inlinePieces: 8,
  listItems: 16_384,
  /** Lists of lists. */
  depth: 3,
  linkGroupBytes: 16,
} as const;

/** 32 bytes. */
export type Hash = Buffer;

export function hashOf(kind: ObjectKind, body: Uint8Array): Hash {
  return createHash('sha256').update(KIND_BYTES[kind]).update(body).digest();
}

/**
 * The same, cheaper where the body lies in `memory`, which is the caller's alone: the byte before it is its kind for as long as this takes.
 */
export function hashInPlace(kind: ObjectKind, memory: Buffer | null, body: Uint8Array): Hash {
  if (body.buffer !== memory?.buffer) return hashOf(kind, body);
  const from = body.byteOffset - memory.byteOffset - 1;
  const before = memory[from];
  if (before === undefined || from + 1 + body.length > memory.length) return hashOf(kind, body);
  memory[from] = kind;
  // As text, because a buffer of its own for each hash is work for the collector.
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

/** Throws `invalid_params` for what is no hash in hexadecimal. */
export function parseHash(text: string): Hash {
  if (!HEX.test(text)) throw new HoldfastError('invalid_params', `${JSON.stringify(text)} is not a hash`);
  return Buffer.from(text, 'hex');
}

/**
 * Where objects come from. `read` gives a body that has this hash and kind, or throws `snapshot_damaged`
 * (`details.object`: the hash in hexadecimal).
 */
export interface ObjectReader {
  read(hash: Hash, kind: ObjectKind): Promise<Buffer>;
}

/** The bytes are not what the format says. Whoever knows the object or the path adds it. */
export function snapshotDamaged(why: string, details?: Record<string, string>): HoldfastError {
  return new HoldfastError('snapshot_damaged', 'A snapshot cannot be read', { why, details });
}

/** Throws `snapshot_damaged` when the body is not the object's. `memory`: see `hashBehind`. */
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
