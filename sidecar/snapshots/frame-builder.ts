import { FRAME, type FrameRecord } from '../../snapshot-format/frames.ts';
import { type Hash, type ObjectKind, SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';

/** A frame under construction, in the memory where it will be compressed. Files are read directly into it. */
export class FrameBuilder {
  /** All of its memory. */
  readonly bytes: Buffer;
  readonly #targetBytes: number;
  #length = 0;
  #records: FrameRecord[] = [];

  /** `targetBytes`: the size at which the frame is full. */
  constructor(bytes: Buffer, targetBytes: number) {
    this.bytes = bytes;
    this.#targetBytes = targetBytes;
  }

  get records(): readonly FrameRecord[] {
    return this.#records;
  }

  /** Nothing more should be added. */
  get isFull(): boolean {
    return this.#length >= this.#targetBytes || this.#records.length >= FRAME.maxObjects;
  }

  /** The bytes added so far. */
  get raw(): Buffer {
    return this.bytes.subarray(0, this.#length);
  }

  fits(length: number): boolean {
    return this.#length + length <= this.bytes.length;
  }

  /** Memory for the next body, if it fits. Valid until something is added. */
  allocate(length: number): Buffer {
    return this.bytes.subarray(this.#length, this.#length + length);
  }

  /** Adds a body that fits. Copies it unless it is in memory from `allocate`. */
  add(hash: Hash, kind: ObjectKind, body: Buffer): void {
    const { length } = body;
    if (length > SNAPSHOT_LIMITS.objectBytes) throw new RangeError('an object is too large');
    if (body.buffer !== this.bytes.buffer) this.bytes.set(body, this.#length);
    this.#records.push({ hash, kind, offset: this.#length, length });
    this.#length += length;
  }
}
