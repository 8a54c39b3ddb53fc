import { snapshotDamaged } from './objects.ts';

const TWO_TO_32 = 2 ** 32;
const SEVEN_BITS = 0x7f;
const CONTINUATION = 0x80;

/** Appends numbers and bytes to a growing buffer. */
export class ByteWriter {
  #bytes: Buffer;
  #length = 0;

  constructor(capacity = 4096) {
    this.#bytes = Buffer.allocUnsafe(capacity);
  }

  get length(): number {
    return this.#length;
  }

  byte(value: number): void {
    this.#ensureCapacity(1);
    this.#bytes[this.#length++] = value;
  }

  /** 0 ≤ value ≤ 2^53-1; seven bits per byte, low bits first. */
  varint(value: number): void {
    this.#ensureCapacity(8);
    let rest = value;
    while (rest > SEVEN_BITS) {
      this.#bytes[this.#length++] = (rest % 128) | CONTINUATION;
      rest = Math.floor(rest / 128);
    }
    this.#bytes[this.#length++] = rest;
  }

  u32(value: number): void {
    this.#ensureCapacity(4);
    this.#length = this.#bytes.writeUInt32LE(value, this.#length);
  }

  u64(value: number): void {
    this.#ensureCapacity(8);
    this.#bytes.writeUInt32LE(value % TWO_TO_32, this.#length);
    this.#length = this.#bytes.writeUInt32LE(Math.floor(value / TWO_TO_32), this.#length + 4);
  }

  i64(value: bigint): void {
    this.#ensureCapacity(8);
    this.#length = this.#bytes.writeBigInt64LE(value, this.#length);
  }

  bytes(value: Uint8Array): void {
    this.#ensureCapacity(value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
  }

  /** Discards everything after `length`. */
  truncate(length: number): void {
    this.#length = Math.min(this.#length, length);
  }

  /** A view of the written bytes, valid until the next write. */
  view(from = 0): Buffer {
    return this.#bytes.subarray(from, this.#length);
  }

  /** A copy of the written bytes. */
  toBuffer(): Buffer {
    return Buffer.from(this.view());
  }

  #ensureCapacity(count: number): void {
    if (this.#length + count <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#length + count));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

/**
 * Reads what `ByteWriter` wrote. Throws `snapshot_damaged` for missing bytes and for numbers that are too large or
 * overlong.
 */
export class ByteReader {
  readonly #bytes: Buffer;
  #at: number;

  constructor(bytes: Buffer, from = 0) {
    this.#bytes = bytes;
    this.#at = from;
  }

  get position(): number {
    return this.#at;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  byte(): number {
    return this.#bytes[this.skip(1)] ?? 0;
  }

  varint(max: number): number {
    let value = 0;
    let scale = 1;
    for (let count = 0; count < 8; count += 1) {
      const byte = this.byte();
      value += (byte & SEVEN_BITS) * scale;
      if ((byte & CONTINUATION) === 0) {
        if (byte === 0 && count > 0) throw snapshotDamaged('a number is not encoded in its shortest form');
        if (value > max) throw snapshotDamaged('a number is too large');
        return value;
      }
      scale *= 128;
    }
    throw snapshotDamaged('a number is too large');
  }

  u32(): number {
    return this.#bytes.readUInt32LE(this.skip(4));
  }

  u64(): number {
    const at = this.skip(8);
    const value = this.#bytes.readUInt32LE(at) + this.#bytes.readUInt32LE(at + 4) * TWO_TO_32;
    if (!Number.isSafeInteger(value)) throw snapshotDamaged('a number is too large');
    return value;
  }

  i64(): bigint {
    return this.#bytes.readBigInt64LE(this.skip(8));
  }

  /** A view, not a copy. */
  bytes(count: number): Buffer {
    const at = this.skip(count);
    return this.#bytes.subarray(at, at + count);
  }

  /** A view of the remaining bytes. */
  rest(): Buffer {
    return this.bytes(this.#bytes.length - this.#at);
  }

  /** Skips bytes and returns the position where they begin. */
  skip(count: number): number {
    const at = this.#at;
    if (count > this.#bytes.length - at) throw snapshotDamaged('an object ends too early');
    this.#at = at + count;
    return at;
  }
}
