/** Uncompressed frames that were read last: what is in a tree lies side by side. */
export class FrameCache {
  readonly #mostBytes: number;
  readonly #frames = new Map<string, Buffer>();
  #bytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
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
      if (this.#bytes <= this.#mostBytes) break;
      this.#frames.delete(oldest);
      this.#bytes -= length;
    }
  }

  clear(): void {
    this.#frames.clear();
    this.#bytes = 0;
  }
}
