/** An LRU cache of uncompressed frames. Objects of one tree lie next to each other, so frames are read repeatedly. */
export class FrameCache {
  readonly #maxBytes: number;
  readonly #frames = new Map<string, Buffer>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get(key: string): Buffer | undefined {
    const found = this.#frames.get(key);
    if (found === undefined) return undefined;
    this.#frames.delete(key);
    this.#frames.set(key, found);
    return found;
  }

  set(key: string, frame: Buffer): void {
    const before = this.#frames.get(key);
    if (before !== undefined) this.#bytes -= before.length;
    this.#frames.delete(key);
    this.#frames.set(key, frame);
    this.#bytes += frame.length;
    for (const [oldest, { length }] of this.#frames) {
      if (this.#bytes <= this.#maxBytes) break;
      this.#frames.delete(oldest);
      this.#bytes -= length;
    }
  }

  clear(): void {
    this.#frames.clear();
    this.#bytes = 0;
  }
}
