import { snapshotDamaged } from './objects.ts';

const TWO_TO_32 = 2 ** 32;
const SEVEN_BITS = 0x7f;
const MORE = 0x80;

/** Appends numbers and bytes to one buffer that grows. */
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
    this.#room(1);
    this.#bytes[this.#length++] = value;
  }

  /** 0 ≤ value ≤ 2^53-1, seven bits a byte, the low ones first. */
  varint(value: number): void {
    this.#room(8);
    let rest = value;
    while (rest > SEVEN_BITS) {
      this.#bytes[this.#length++] = (rest % 128) | MORE;
      rest = Math.floor(rest / 128);
    }
    this.#bytes[this.#length++] = rest;
  }

  u32(value: number): void {
    this.#room(4);
    this.#length = this.#bytes.writeUInt32LE(value, this.#length);
  }

  u64(value: number): void {
    this.#room(8);
    this.#bytes.writeUInt32LE(value % TWO_TO_32, this.#length);
    this.#length = this.#bytes.writeUInt32LE(Math.floor(value / TWO_TO_32), this.#length + 4);
  }

  i64(value: bigint): void {
    this.#room(8);
    this.#length = this.#bytes.writeBigInt64LE(value, this.#length);
  }

  bytes(value: Uint8Array): void {
    this.#room(value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
  }

  /** Takes back everything after `length`. */
  truncate(length: number): void {
    this.#length = Math.min(this.#length, length);
  }

  /** What was written; valid until the next write. */
  view(from = 0): Buffer {
    return this.#bytes.subarray(from, this.#length);
  }

  /** A copy of what was written. */
  toBuffer(): Buffer {
    return Buffer.from(this.view());
  }

  #room(count: number): void {
    if (this.#length + count <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#length + count));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

/** Reads what `ByteWriter` wrote. Everything that is not there, too large or not in its shortest form throws `snapshot_damaged`. */
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

  varint(most: number): number {
    let value = 0;
    let scale = 1;
    for (let count = 0; count < 8; count += 1) {
      const byte = this.byte();
      value += (byte & SEVEN_BITS) * scale;
      if ((byte & MORE) === 0) {
        if (byte === 0 && count > 0) throw snapshotDamaged('a number is written longer than needed');
        if (value > most) throw snapshotDamaged('a number is too large');
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

  /** Everything that is left. A view. */
  rest(): Buffer {
    return this.bytes(this.#bytes.length - this.#at);
  }

  /** Goes over so many bytes; gives where they begin. */
  skip(count: number): number {
    const at = this.#at;
    if (count > this.#bytes.length - at) throw snapshotDamaged('something ends too early');
    this.#at = at + count;
    return at;
  }
}
