import {
  constants,
  crc32,
  zstdCompress,
  zstdCompressSync,
  type ZstdOptions,
  zstdDecompressSync,
} from 'node:zlib';
import { HoldfastError } from '../protocol/errors.ts';
import { releaseBuffer } from './release-buffer.ts';
import {
  checkObject,
  snapshotDamaged,
  type Hash,
  isObjectKind,
  type ObjectKind,
  SNAPSHOT_LIMITS,
} from './objects.ts';

/** Objects are stored in frames: compressed together, read together. */
export const FRAME = {
  /** A frame ends when it holds this much. This bounds the cost of reading one small file. */
  targetBytes: 512 * 1024,
  /**
   * The same for the first frames of a snapshot, so that a small workspace has only short ones. Measured with source
   * code: restoring 20 files takes a third of the time, and packs are 8 % larger and take 8 % longer to write and
   * check.
   */
  shortBytes: 128 * 1024,
  /** Uncompressed size limit. */
  maxBytes: 2 * 2 ** 20,
  maxObjects: 4096,
  /** One record of a frame's table, see `encodeFrameTable`. */
  recordBytes: 41,
} as const;

/** Compressing fewer bytes takes less time than handing them to another thread. */
const MIN_BACKGROUND_BYTES = 64 * 1024;

/** The smallest `chunkSize` that zlib accepts. */
const MIN_CHUNK = 64;

export const ENCODINGS = { raw: 0, zstd: 1 } as const;
export type Encoding = (typeof ENCODINGS)[keyof typeof ENCODINGS];

export function isEncoding(encoding: number): encoding is Encoding {
  return encoding === ENCODINGS.raw || encoding === ENCODINGS.zstd;
}

/** An object's position in its uncompressed frame. */
export interface FrameRecord {
  readonly hash: Hash;
  readonly kind: ObjectKind;
  readonly offset: number;
  readonly length: number;
}

/** A frame in its stored form. */
export interface Frame {
  readonly encoding: Encoding;
  readonly rawLength: number;
  readonly stored: Buffer;
  /** crc32 of the stored bytes: not every flipped bit changes the decompressed bytes. */
  readonly checksum: number;
  readonly objects: readonly FrameRecord[];
}

/** Collects objects for a frame. */
export class FrameBuilder {
  #bodies: Uint8Array[] = [];
  #records: FrameRecord[] = [];
  #length = 0;

  get isEmpty(): boolean {
    return this.#records.length === 0;
  }

  /** False, and nothing added, if the frame must be finished first. The body must not change until then. */
  add(hash: Hash, kind: ObjectKind, body: Uint8Array): boolean {
    if (body.length > SNAPSHOT_LIMITS.objectBytes) throw new RangeError('an object is too large');
    const isFull = this.#length >= FRAME.targetBytes || this.#records.length >= FRAME.maxObjects;
    if (isFull || this.#length + body.length > FRAME.maxBytes) return false;
    this.#records.push({ hash, kind, offset: this.#length, length: body.length });
    this.#bodies.push(body);
    this.#length += body.length;
    return true;
  }

  /** Returns the frame, compressed if that makes it smaller, and empties the builder. */
  finish(): Frame {
    const raw = Buffer.concat(this.#bodies, this.#length);
    const objects = this.#records;
    this.#bodies = [];
    this.#records = [];
    this.#length = 0;
    return { ...compressFrame(raw), rawLength: raw.length, objects };
  }
}

type CompressedFrame = Pick<Frame, 'encoding' | 'stored' | 'checksum'>;

/** Compresses the bytes of a frame if that makes them smaller. */
export function compressFrame(raw: Buffer): CompressedFrame {
  return smallerOf(raw, zstdCompressSync(raw, compressOptions(raw.length)));
}

/** As `compressFrame`, in another thread if that is worth it; `raw` must not change until it resolves. */
export function compressFrameInBackground(raw: Buffer): Promise<CompressedFrame> {
  if (raw.length < MIN_BACKGROUND_BYTES) return Promise.resolve(compressFrame(raw));
  return new Promise((resolve, reject) => {
    zstdCompress(raw, compressOptions(raw.length), (error, compressed) => {
      if (error === null) resolve(smallerOf(raw, compressed));
      else reject(error);
    });
  });
}

/** The chunk size makes zlib produce the result mostly in one buffer. */
function compressOptions(length: number): ZstdOptions {
  return {
    chunkSize: (length >> 1) + 1024,
    pledgedSrcSize: length,
    params: { [constants.ZSTD_c_compressionLevel]: 1 },
  };
}

function smallerOf(raw: Buffer, compressed: Buffer): CompressedFrame {
  const isWorthIt = compressed.length < raw.length - raw.length / 32;
  const stored = isWorthIt ? compressed : raw;
  if (!isWorthIt) releaseBuffer(compressed);
  return { encoding: isWorthIt ? ENCODINGS.zstd : ENCODINGS.raw, stored, checksum: crc32(stored) };
}

/**
 * One buffer for the whole result, slightly larger, so that zlib sees the end at once: four times as fast as 16 KiB
 * chunks.
 */
export function decompressOptions(rawLength: number): {
  readonly maxOutputLength: number;
  readonly chunkSize: number;
} {
  return { maxOutputLength: Math.max(rawLength, 1), chunkSize: rawLength + MIN_CHUNK };
}

/** The uncompressed bytes of a frame; never more than `rawLength`. Throws `snapshot_damaged`. */
export function decompressFrame(encoding: number, rawLength: number, stored: Buffer): Buffer {
  if (rawLength > FRAME.maxBytes) throw snapshotDamaged('a frame is too large');
  if (encoding === ENCODINGS.raw) {
    if (stored.length !== rawLength) throw snapshotDamaged('a frame has the wrong length');
    return stored;
  }
  if (encoding !== ENCODINGS.zstd) throw snapshotDamaged('a frame has an unknown encoding');
  let raw: Buffer;
  try {
    raw = zstdDecompressSync(stored, decompressOptions(rawLength));
  } catch (cause) {
    throw new HoldfastError('snapshot_damaged', 'A snapshot cannot be read', {
      why: 'a frame cannot be decompressed',
      cause,
    });
  }
  if (raw.length !== rawLength) throw snapshotDamaged('a frame has the wrong length');
  return raw;
}

/**
 * A view of one object in its uncompressed frame, with its hash checked. `isExclusive`: nobody else reads `raw`
 * meanwhile, which makes the check cheaper.
 */
export function extractObject(
  raw: Buffer,
  { hash, kind, offset, length }: FrameRecord,
  isExclusive = false,
): Buffer {
  if (offset + length > raw.length) {
    throw snapshotDamaged('an object lies outside its frame', { object: hash.toString('hex') });
  }
  const body = raw.subarray(offset, offset + length);
  checkObject(hash, kind, body, isExclusive ? raw : null);
  return body;
}

/** Encodes a frame's table for the wire: for each object its hash, offset (u32), length (u32) and kind (one byte). */
export function encodeFrameTable(records: readonly FrameRecord[]): Buffer {
  const table = Buffer.allocUnsafe(records.length * FRAME.recordBytes);
  let at = 0;
  for (const { hash, kind, offset, length } of records) {
    table.set(hash, at);
    table.writeUInt32LE(offset, at + 32);
    table.writeUInt32LE(length, at + 36);
    table[at + 40] = kind;
    at += FRAME.recordBytes;
  }
  return table;
}

/** Parses a frame's table. Throws `snapshot_damaged` if it is invalid for a frame with this many bytes. */
export function parseFrameTable(table: Buffer, rawLength: number): FrameRecord[] {
  const count = table.length / FRAME.recordBytes;
  if (!Number.isInteger(count) || count > FRAME.maxObjects)
    throw snapshotDamaged('a frame has an invalid table');
  const records: FrameRecord[] = [];
  for (let at = 0; at < table.length; at += FRAME.recordBytes) {
    const kind = table[at + 40] ?? -1;
    const offset = table.readUInt32LE(at + 32);
    const length = table.readUInt32LE(at + 36);
    if (!isObjectKind(kind) || length > SNAPSHOT_LIMITS.objectBytes || offset + length > rawLength) {
      throw snapshotDamaged('a frame has an invalid table');
    }
    records.push({ hash: table.subarray(at, at + 32), kind, offset, length });
  }
  return records;
}
