import { FRAME, type FrameRecord } from '../../protocol/snapshots/frames.ts';
import { type Hash, type ObjectKind, SNAPSHOT_LIMITS } from '../../protocol/snapshots/objects.ts';

/** A frame in the making, in memory that is compressed as it is. What is read from files is read to where it stays. */
export class FrameMemory {
  /** All of its memory. */
  readonly bytes: Buffer;
  #length = 0;
  #records: FrameRecord[] = [];

  /** `bytes`: FRAME.mostBytes of them. */
  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  get records(): readonly FrameRecord[] {
    return this.#records;
  }

  /** No more belongs into it. */
  get isFull(): boolean {
    return this.#length >= FRAME.targetBytes || this.#records.length >= FRAME.mostObjects;
  }

  /** What was added. */
  get raw(): Buffer {
    return this.bytes.subarray(0, this.#length);
  }

  /** Where the next body comes to lie; until something is added. */
  room(length: number): Buffer {
    return this.bytes.subarray(this.#length, this.#length + length);
  }

  /** The body is copied, unless it lies in `room`. */
  add(hash: Hash, kind: ObjectKind, body: Buffer): void {
    const { length } = body;
    if (length > SNAPSHOT_LIMITS.objectBytes) throw new RangeError('an object is too large');
    if (body.buffer !== this.bytes.buffer) this.bytes.set(body, this.#length);
    this.#records.push({ hash, kind, offset: this.#length, length });
    this.#length += length;
  }
}
