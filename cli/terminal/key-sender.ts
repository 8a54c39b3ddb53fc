/** Unsent input above which `add` waits. */
const BACKLOG_BYTES = 2 ** 18;
/** Maximum input that is buffered while paused. */
const MAX_PAUSED_BYTES = 4096;

export interface KeySenderOptions {
  /** Maximum bytes of one chunk. */
  readonly chunkBytes: number;
  readonly send: (bytes: Buffer) => Promise<void>;
}

/** Sends input in order, one chunk at a time, without blocking the reader: the user can detach even if the program reads nothing. */
export class KeySender {
  readonly #options: KeySenderOptions;
  #queue: Buffer = Buffer.alloc(0);
  #sending: Promise<void> | null = null;
  #isPaused = false;
  /** Bytes added since it was paused. */
  #pausedBytes = 0;
  #drained = Promise.withResolvers<undefined>();

  constructor(options: KeySenderOptions) {
    this.#options = options;
  }

  /** Queues input. Resolves when the queue accepts more. */
  async add(bytes: Buffer): Promise<void> {
    const taken = this.#isPaused ? bytes.subarray(0, MAX_PAUSED_BYTES - this.#pausedBytes) : bytes;
    this.#queue = Buffer.concat([this.#queue, taken]);
    if (this.#isPaused) {
      this.#pausedBytes += taken.length;
      return;
    }
    this.#begin();
    while (this.#mustWait()) await this.#drained.promise;
  }

  /** Stops sending until `resume`. Buffers only a limited amount of input meanwhile. */
  pause(): void {
    this.#isPaused = true;
    this.#pausedBytes = 0;
    this.#notifyDrained();
  }

  resume(): void {
    this.#isPaused = false;
    this.#begin();
  }

  /** Resolves when all input has been sent, or when sending is paused. */
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
      const piece = this.#queue.subarray(0, this.#options.chunkBytes);
      this.#queue = this.#queue.subarray(piece.length);
      await this.#options.send(piece);
      if (this.#queue.length <= BACKLOG_BYTES && this.#queue.length > 0) this.#notifyDrained();
    }
    this.#sending = null;
    this.#notifyDrained();
  }

  #notifyDrained(): void {
    this.#drained.resolve(undefined);
    this.#drained = Promise.withResolvers<undefined>();
  }
}
