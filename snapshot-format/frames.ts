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
  /** A frame is ended when it holds this much: what a read of one small file costs at most. */
  targetBytes: 512 * 1024,
  /**
   * The same of the first ones of a snapshot, so that a small workspace has only such: bringing 20 files back takes a third of the
   * time then, packs are 8 % larger (measured with sources), and so is the work of making and checking them.
   */
  shortBytes: 128 * 1024,
  /** Uncompressed. */
  maxBytes: 2 * 2 ** 20,
  maxObjects: 4096,
  /** One record of a frame's table, see `encodeRecords`. */
  recordBytes: 41,
} as const;

/** Less is packed sooner than handed to another thread. */
const BESIDE_BYTES = 64 * 1024;

/** The least that zlib takes as the size of its output's pieces. */
const LEAST_CHUNK = 64;

export const ENCODINGS = { raw: 0, zstd: 1 } as const;
export type Encoding = (typeof ENCODINGS)[keyof typeof ENCODINGS];

export function isEncoding(encoding: number): encoding is Encoding {
  return encoding === ENCODINGS.raw || encoding === ENCODINGS.zstd;
}

/** Where an object lies in its uncompressed frame. */
export interface FrameRecord {
  readonly hash: Hash;
  readonly kind: ObjectKind;
  readonly offset: number;
  readonly length: number;
}

/** A frame as it is stored, on its way into a pack or out of one. */
export interface Frame {
  readonly encoding: Encoding;
  readonly rawLength: number;
  readonly stored: Buffer;
  /** crc32 of the stored bytes: a changed bit need not change what they unpack to. */
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

  /** False, and nothing done, where the frame must be finished first. The body must not change until then. */
  add(hash: Hash, kind: ObjectKind, body: Uint8Array): boolean {
    if (body.length > SNAPSHOT_LIMITS.objectBytes) throw new RangeError('an object is too large');
    const isFull = this.#length >= FRAME.targetBytes || this.#records.length >= FRAME.maxObjects;
    if (isFull || this.#length + body.length > FRAME.maxBytes) return false;
    this.#records.push({ hash, kind, offset: this.#length, length: body.length });
    this.#bodies.push(body);
    this.#length += body.length;
    return true;
  }

  /** The frame, compressed where that makes it smaller. The builder is empty again. */
  finish(): Frame {
    const raw = Buffer.concat(this.#bodies, this.#length);
    const objects = this.#records;
    this.#bodies = [];
    this.#records = [];
    this.#length = 0;
    return { ...compressFrame(raw), rawLength: raw.length, objects };
  }
}

type PackedRaw = Pick<Frame, 'encoding' | 'stored' | 'checksum'>;

/** The bytes of a frame as they are stored. */
export function compressFrame(raw: Buffer): PackedRaw {
  return smallerOf(raw, zstdCompressSync(raw, packOptions(raw.length)));
}

/** The same, made beside this thread where that is worth it; `raw` must not change until it resolves. */
export function compressFrameInBackground(raw: Buffer): Promise<PackedRaw> {
  if (raw.length < BESIDE_BYTES) return Promise.resolve(compressFrame(raw));
  return new Promise((resolve, reject) => {
    zstdCompress(raw, packOptions(raw.length), (error, packed) => {
      if (error === null) resolve(smallerOf(raw, packed));
      else reject(error);
    });
  });
}

/** The result is mostly in one piece of memory here too. */
function packOptions(length: number): ZstdOptions {
  return {
    chunkSize: (length >> 1) + 1024,
    pledgedSrcSize: length,
    params: { [constants.ZSTD_c_compressionLevel]: 1 },
  };
}

function smallerOf(raw: Buffer, packed: Buffer): PackedRaw {
  const isWorthIt = packed.length < raw.length - raw.length / 32;
  const stored = isWorthIt ? packed : raw;
  if (!isWorthIt) releaseBuffer(packed);
  return { encoding: isWorthIt ? ENCODINGS.zstd : ENCODINGS.raw, stored, checksum: crc32(stored) };
}

/** One piece of memory for all of it, and some more, so that the end is seen at once: four times as fast as pieces of 16 KiB. */
export function decompressOptions(rawLength: number): {
  readonly maxOutputLength: number;
  readonly chunkSize: number;
} {
  return { maxOutputLength: Math.max(rawLength, 1), chunkSize: rawLength + LEAST_CHUNK };
}

/** The uncompressed bytes of a frame; never more than its table says. Throws `snapshot_damaged`. */
export function decompressFrame(encoding: number, rawLength: number, stored: Buffer): Buffer {
  if (rawLength > FRAME.maxBytes) throw snapshotDamaged('a frame is too large');
  if (encoding === ENCODINGS.raw) {
    if (stored.length !== rawLength) throw snapshotDamaged('a frame is not as long as it says');
    return stored;
  }
  if (encoding !== ENCODINGS.zstd) throw snapshotDamaged('a frame is stored in a way that we do not know');
  let raw: Buffer;
  try {
    raw = zstdDecompressSync(stored, decompressOptions(rawLength));
  } catch (cause) {
    throw new HoldfastError('snapshot_damaged', 'A snapshot cannot be read', {
      why: 'a frame cannot be decompressed',
      cause,
    });
  }
  if (raw.length !== rawLength) throw snapshotDamaged('a frame is not as long as it says');
  return raw;
}

/**
 * The body of one object out of its uncompressed frame, with its hash checked. A view. `isOurs`: nobody else reads `raw` meanwhile, which
 * makes it cheaper.
 */
export function extractObject(
  raw: Buffer,
  { hash, kind, offset, length }: FrameRecord,
  isOurs = false,
): Buffer {
  if (offset + length > raw.length) {
    throw snapshotDamaged('an object lies outside its frame', { object: hash.toString('hex') });
  }
  const body = raw.subarray(offset, offset + length);
  checkObject(hash, kind, body, isOurs ? raw : null);
  return body;
}

/** A frame's table for the wire: per object hash, offset (u32), length (u32), kind (one byte). */
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

/** Throws `snapshot_damaged` for what is no table of a frame with this many bytes. */
export function parseFrameTable(table: Buffer, rawLength: number): FrameRecord[] {
  const count = table.length / FRAME.recordBytes;
  if (!Number.isInteger(count) || count > FRAME.maxObjects)
    throw snapshotDamaged('a frame has no proper table');
  const records: FrameRecord[] = [];
  for (let at = 0; at < table.length; at += FRAME.recordBytes) {
    const kind = table[at + 40] ?? -1;
    const offset = table.readUInt32LE(at + 32);
    const length = table.readUInt32LE(at + 36);
    if (!isObjectKind(kind) || length > SNAPSHOT_LIMITS.objectBytes || offset + length > rawLength) {
      throw snapshotDamaged('a frame has no proper table');
    }
    records.push({ hash: table.subarray(at, at + 32), kind, offset, length });
  }
  return records;
}
