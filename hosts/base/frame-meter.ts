const HEAD_BYTES = 9;
const DATA = 0;
/** A frame of data with fewer bytes costs more than it brings. */
const SMALL_BYTES = 16;
/** One such frame is expected for about every 2 MiB, and some for each stream that is opened. */
const AT_ONCE = 10_000;
const PER_SECOND = 1000;

/**
 * Says when the other end of an HTTP/2 connection floods it: with pings, settings, resets, windows, headers, unknown or
 * empty frames. They need no credit, and work on them would never end. Counts frames of data only if they are tiny.
 */
export class FrameMeter {
  readonly #head = Buffer.alloc(HEAD_BYTES);
  #headBytes = 0;
  #payloadLeft = 0;
  #allowed = AT_ONCE;
  #at: number;

  /** `now`: ms of any clock. */
  constructor(now: number) {
    this.#at = now;
  }

  /** The next bytes of the connection. False: it is flooded. */
  accept(chunk: Buffer, now: number): boolean {
    this.#allowed = Math.min(AT_ONCE, this.#allowed + ((now - this.#at) / 1000) * PER_SECOND);
    this.#at = now;
    for (let at = 0; at < chunk.length;) {
      if (this.#payloadLeft > 0) {
        const taken = Math.min(this.#payloadLeft, chunk.length - at);
        this.#payloadLeft -= taken;
        at += taken;
        continue;
      }
      const taken = chunk.copy(this.#head, this.#headBytes, at, at + HEAD_BYTES - this.#headBytes);
      this.#headBytes += taken;
      at += taken;
      if (this.#headBytes === HEAD_BYTES) this.#begin();
    }
    return this.#allowed >= 0;
  }

  #begin(): void {
    this.#headBytes = 0;
    this.#payloadLeft = this.#head.readUIntBE(0, 3);
    const isData = this.#head.readUInt8(3) === DATA;
    if (!isData || this.#payloadLeft < SMALL_BYTES) this.#allowed -= 1;
  }
}
