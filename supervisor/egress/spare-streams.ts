import type { Duplex } from 'node:stream';

/** Streams that are kept open: a client that connects needs one, and a second one for a plain request. */
const SPARE = 4;
/** A refill waits until the connection that took a stream has been served. */
const REFILL_MS = 5;

/** Keeps a few streams to one process open, so that a new connection of a sandbox does not wait until one is. */
export class SpareStreams {
  readonly #dial: () => Promise<Duplex>;
  readonly #spare = new Set<Duplex>();
  #pending = 0;
  #refill: NodeJS.Timeout | undefined;
  readonly #ending = new AbortController();

  constructor(dial: () => Promise<Duplex>) {
    this.#dial = dial;
    void this.#fill();
  }

  /** A stream that nobody has used. Rejects if none is spare and none can be opened. */
  async take(): Promise<Duplex> {
    this.#fillSoon();
    for (const stream of this.#spare) {
      this.#spare.delete(stream);
      if (!stream.destroyed && !stream.readableEnded) return stream;
      stream.destroy();
    }
    return await this.#dial();
  }

  close(): void {
    this.#ending.abort();
    clearTimeout(this.#refill);
    for (const stream of this.#spare) stream.destroy();
  }

  #fillSoon(): void {
    if (this.#ending.signal.aborted || this.#refill !== undefined) return;
    this.#refill = setTimeout(() => {
      this.#refill = undefined;
      void this.#fill();
    }, REFILL_MS);
    this.#refill.unref();
  }

  /** Never rejects: whoever needs a stream that cannot be opened hears of it. */
  async #fill(): Promise<void> {
    const { signal } = this.#ending;
    while (!signal.aborted && this.#spare.size + this.#pending < SPARE) {
      this.#pending += 1;
      try {
        this.#add(await this.#dial());
      } catch {
        return;
      } finally {
        this.#pending -= 1;
      }
    }
  }

  #add(stream: Duplex): void {
    // Its `close` follows.
    stream.on('error', () => undefined);
    stream.once('close', () => this.#spare.delete(stream));
    if (this.#ending.signal.aborted) stream.destroy();
    else this.#spare.add(stream);
  }
}
