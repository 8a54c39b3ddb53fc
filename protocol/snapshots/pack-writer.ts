import { createHash } from 'node:crypto';
import { FRAME, type Frame } from './frames.ts';
import { PACK } from './pack-layout.ts';

interface IndexedObject {
  readonly hash: Buffer;
  readonly kind: number;
  readonly frame: number;
  readonly offset: number;
  readonly length: number;
}

/** Lays out one pack: the bytes that it gives, one after the other, are the file. */
export class PackWriter {
  readonly #frames: { offset: number; stored: number; raw: number; encoding: number; checksum: number }[] =
    [];
  readonly #objects: IndexedObject[] = [];
  readonly #targetBytes: number;
  #length = 0;

  /** `targetBytes`: where `isFull` says that it is long enough. */
  constructor(targetBytes: number = PACK.targetBytes) {
    this.#targetBytes = targetBytes;
  }

  /** Bytes given so far. */
  get length(): number {
    return this.#length;
  }

  get objects(): number {
    return this.#objects.length;
  }

  /** True when another frame belongs into another pack. */
  get isFull(): boolean {
    return this.#length >= this.#targetBytes || this.#objects.length > PACK.mostObjects - FRAME.mostObjects;
  }

  /** What the file goes on with. An object must not be added twice. */
  append(frame: Frame): Buffer[] {
    const parts = this.#length === 0 ? [PACK.magic, frame.stored] : [frame.stored];
    if (this.#length === 0) this.#length = PACK.magic.length;
    const index = this.#frames.length;
    const { encoding, rawLength, stored, checksum, objects } = frame;
    this.#frames.push({ offset: this.#length, stored: stored.length, raw: rawLength, encoding, checksum });
    for (const { hash, kind, offset, length } of objects) {
      // In memory of its own: a slice of a pool would keep the whole piece of it.
      const own = Buffer.allocUnsafeSlow(hash.length);
      own.set(hash);
      this.#objects.push({ hash: own, kind, frame: index, offset, length });
    }
    this.#length += stored.length;
    return parts;
  }

  /** The rest of the file: its index. Nothing may follow. */
  end(): Buffer {
    if (this.#length === 0) throw new RangeError('a pack without a frame');
    const { frameBytes, objectBytes, footerBytes } = PACK;
    const frames = Buffer.alloc(this.#frames.length * frameBytes);
    this.#frames.forEach(({ offset, stored, raw, encoding, checksum }, index) => {
      const at = index * frameBytes;
      frames.writeBigUInt64LE(BigInt(offset), at);
      frames.writeUInt32LE(stored, at + 8);
      frames.writeUInt32LE(raw, at + 12);
      frames.writeUInt32LE(encoding, at + 16);
      frames.writeUInt32LE(checksum, at + 20);
    });
    const objects = Buffer.alloc(this.#objects.length * objectBytes);
    this.#objects.sort((one, other) => one.hash.compare(other.hash));
    this.#objects.forEach(({ hash, kind, frame, offset, length }, index) => {
      const at = index * objectBytes;
      objects.set(hash, at);
      objects.writeUInt32LE(frame, at + 32);
      objects.writeUInt32LE(offset, at + 36);
      objects.writeUInt32LE(length, at + 40);
      objects.writeUInt32LE(kind, at + 44);
    });
    const footer = Buffer.alloc(footerBytes);
    footer.writeBigUInt64LE(BigInt(this.#length), 0);
    footer.writeUInt32LE(this.#frames.length, 8);
    footer.writeUInt32LE(this.#objects.length, 12);
    // The footer's own numbers are part of what is hashed: no bit of an index can change unseen.
    const hash = createHash('sha256').update(frames).update(objects).update(footer.subarray(0, 16)).digest();
    footer.set(hash, 16);
    footer.set(PACK.endMagic, 48);
    this.#length += frames.length + objects.length + footerBytes;
    return Buffer.concat([frames, objects, footer]);
  }
}
