/** Keys that nobody has taken yet; above it no more are read. */
const BACKLOG_BYTES = 2 ** 18;
/** Keys that are kept while nobody is there to take them. */
const HELD_BYTES = 4096;

export interface KeySenderOptions {
  /** Bytes of one piece at most. */
  readonly pieceBytes: number;
  readonly send: (bytes: Buffer) => Promise<void>;
}

/** Sends keys in order, one piece at a time, while more are read: a program that takes none must not keep a person from leaving. */
export class KeySender {
  readonly #options: KeySenderOptions;
  #queue: Buffer = Buffer.alloc(0);
  #sending: Promise<void> | null = null;
  #isPaused = false;
  /** How much has come since it was paused. */
  #heldBytes = 0;
  #drained = Promise.withResolvers<undefined>();

  constructor(options: KeySenderOptions) {
    this.#options = options;
  }

  /** Adds keys; resolves when there is room for more. */
  async add(bytes: Buffer): Promise<void> {
    const taken = this.#isPaused ? bytes.subarray(0, HELD_BYTES - this.#heldBytes) : bytes;
    this.#queue = Buffer.concat([this.#queue, taken]);
    if (this.#isPaused) {
      this.#heldBytes += taken.length;
      return;
    }
    this.#begin();
    while (this.#mustWait()) await this.#drained.promise;
  }

  /** Sends nothing until `resume`, and keeps only the first keys that come. */
  pause(): void {
    this.#isPaused = true;
    this.#heldBytes = 0;
    this.#tellDrained();
  }

  resume(): void {
    this.#isPaused = false;
    this.#begin();
  }

  /** Resolves when all keys have been taken, and when it pauses. */
  async waitUntilSent(): Promise<void> {
    while (this.#sending !== null && !this.#isPaused) await this.#drained.promise;
  }

  #mustWait(): boolean {
    return this.#queue.length > BACKLOG_BYTES && !this.#isPaused;
  }

  #begin(): void {
    if (this.#isPaused || this.#queue.length === 0) return;
    this.#sending ??= this.#sendAll();
  }

  async #sendAll(): Promise<void> {
    while (this.#queue.length > 0 && !this.#isPaused) {
      const piece = this.#queue.subarray(0, this.#options.pieceBytes);
      this.#queue = this.#queue.subarray(piece.length);
      await this.#options.send(piece);
      if (this.#queue.length <= BACKLOG_BYTES && this.#queue.length > 0) this.#tellDrained();
    }
    this.#sending = null;
    this.#tellDrained();
  }

  #tellDrained(): void {
    this.#drained.resolve(undefined);
    this.#drained = Promise.withResolvers<undefined>();
  }
}
