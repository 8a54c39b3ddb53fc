import { CHECK_LIMITS } from '../../protocol/checks.ts';

/** The output of a check as far as it is kept: the beginning and the end. */
export class KeptOutput {
  readonly #start: Buffer[] = [];
  #startBytes = 0;
  #end: Buffer[] = [];
  #endBytes = 0;
  #total = 0;

  /** Bytes of the whole output. */
  get total(): number {
    return this.#total;
  }

  /** The bytes are copied. */
  add(chunk: Uint8Array): void {
    this.#total += chunk.length;
    const first = Buffer.from(chunk.subarray(0, CHECK_LIMITS.keptStart - this.#startBytes));
    if (first.length > 0) {
      this.#start.push(first);
      this.#startBytes += first.length;
    }
    // A copy of the part that may stay: a chunk of which a slice is kept would stay whole.
    const rest = Buffer.from(chunk.subarray(first.length).subarray(-CHECK_LIMITS.keptEnd));
    if (rest.length === 0) return;
    this.#end.push(rest);
    this.#endBytes += rest.length;
    if (this.#endBytes > 2 * CHECK_LIMITS.keptEnd) {
      this.#end = [Buffer.from(Buffer.concat(this.#end).subarray(-CHECK_LIMITS.keptEnd))];
      this.#endBytes = CHECK_LIMITS.keptEnd;
    }
  }

  /** What is kept, with a line that says how much is not. */
  bytes(): Buffer {
    const end = Buffer.concat(this.#end).subarray(-CHECK_LIMITS.keptEnd);
    const left = this.#total - this.#startBytes - end.length;
    const gap = left === 0 ? [] : [Buffer.from(`\n… ${left} bytes are not kept …\n`)];
    return Buffer.concat([...this.#start, ...gap, end]);
  }
}
