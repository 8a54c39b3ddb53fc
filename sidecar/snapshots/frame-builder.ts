import { FRAME, type FrameRecord } from '../../snapshot-format/frames.ts';
import { type Hash, type ObjectKind, SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';

/** A frame in the making, in memory that is compressed as it is. What is read from files is read to where it stays. */
export class FrameBuilder {
  /** All of its memory. */
  readonly bytes: Buffer;
  readonly #targetBytes: number;
  #length = 0;
  #records: FrameRecord[] = [];

  /** `targetBytes`: of which the frame is full. */
  constructor(bytes: Buffer, targetBytes: number) {
    this.bytes = bytes;
    this.#targetBytes = targetBytes;
  }

  get records(): readonly FrameRecord[] {
    return this.#records;
  }

  /** No more belongs into it. */
  get isFull(): boolean {
    return this.#length >= this.#targetBytes || this.#records.length >= FRAME.maxObjects;
  }

  /** What was added. */
  get raw(): Buffer {
    return this.bytes.subarray(0, this.#length);
  }

  fits(length: number): boolean {
    return this.#length + length <= this.bytes.length;
  }

  /** Where the next body comes to lie, if there is room; until something is added. */
  allocate(length: number): Buffer {
    return this.bytes.subarray(this.#length, this.#length + length);
  }

  /** Where there is room for it. The body is copied, unless it lies in `room`. */
  add(hash: Hash, kind: ObjectKind, body: Buffer): void {
    const { length } = body;
    if (length > SNAPSHOT_LIMITS.objectBytes) throw new RangeError('an object is too large');
    if (body.buffer !== this.bytes.buffer) this.bytes.set(body, this.#length);
    this.#records.push({ hash, kind, offset: this.#length, length });
    this.#length += length;
  }
}
