import { createHash } from 'node:crypto';
import { ByteWriter } from './bytes.ts';
import { FRAME, type Frame } from './frames.ts';
import { SNAPSHOT_LIMITS } from './objects.ts';
import { PACK } from './pack-layout.ts';

/** Encodes one pack. The returned buffers, in order, are the file. */
export class PackWriter {
  readonly #frames: { offset: number; stored: number; raw: number; encoding: number; checksum: number }[] =
    [];
  /**
   * Encoded index records in order of arrival: one JavaScript object for each would be work for the garbage collector.
   */
  readonly #objects = new ByteWriter(64 * 1024);
  readonly #targetBytes: number;
  #length = 0;

  /** `targetBytes`: the size at which `isFull` becomes true. */
  constructor(targetBytes: number = PACK.targetBytes) {
    this.#targetBytes = targetBytes;
  }

  /** Bytes returned so far. */
  get length(): number {
    return this.#length;
  }

  get objects(): number {
    return this.#objects.length / PACK.objectBytes;
  }

  /** True when the next frame belongs into another pack. */
  get isFull(): boolean {
    return this.#length >= this.#targetBytes || this.objects > PACK.maxObjects - FRAME.maxObjects;
  }

  /** The next bytes of the file. An object must not be added twice. */
  append(frame: Frame): Buffer[] {
    const parts = this.#length === 0 ? [PACK.magic, frame.stored] : [frame.stored];
    if (this.#length === 0) this.#length = PACK.magic.length;
    const index = this.#frames.length;
    const { encoding, rawLength, stored, checksum, objects } = frame;
    this.#frames.push({ offset: this.#length, stored: stored.length, raw: rawLength, encoding, checksum });
    for (const { hash, kind, offset, length } of objects) {
      this.#objects.bytes(hash);
      for (const number of [index, offset, length, kind]) this.#objects.u32(number);
    }
    this.#length += stored.length;
    return parts;
  }

  /** The last bytes of the file: its index. */
  end(): Buffer {
    if (this.#length === 0) throw new RangeError('a pack without a frame');
    const { frameBytes, footerBytes } = PACK;
    const frames = Buffer.alloc(this.#frames.length * frameBytes);
    this.#frames.forEach(({ offset, stored, raw, encoding, checksum }, index) => {
      const at = index * frameBytes;
      frames.writeBigUInt64LE(BigInt(offset), at);
      frames.writeUInt32LE(stored, at + 8);
      frames.writeUInt32LE(raw, at + 12);
      frames.writeUInt32LE(encoding, at + 16);
      frames.writeUInt32LE(checksum, at + 20);
    });
    const objects = sortByHash(this.#objects.view());
    const footer = Buffer.alloc(footerBytes);
    footer.writeBigUInt64LE(BigInt(this.#length), 0);
    footer.writeUInt32LE(this.#frames.length, 8);
    footer.writeUInt32LE(this.objects, 12);
    // The hash covers the footer's numbers too, so that every flipped bit of the index is detected.
    const hash = createHash('sha256').update(frames).update(objects).update(footer.subarray(0, 16)).digest();
    footer.set(hash, 16);
    footer.set(PACK.endMagic, 48);
    this.#length += frames.length + objects.length + footerBytes;
    return Buffer.concat([frames, objects, footer]);
  }
}

/** A copy of index records, sorted by hash. */
function sortByHash(records: Buffer): Buffer {
  const { objectBytes } = PACK;
  const { hashBytes } = SNAPSHOT_LIMITS;
  const order = new Uint32Array(records.length / objectBytes).map((_, index) => index * objectBytes);
  order.sort((one, other) => {
    const first = records.readUInt32BE(one) - records.readUInt32BE(other);
    return first === 0 ? records.compare(records, other, other + hashBytes, one, one + hashBytes) : first;
  });
  const out = Buffer.allocUnsafe(records.length);
  order.forEach((from, index) => records.copy(out, index * objectBytes, from, from + objectBytes));
  return out;
}
