import type { Writable } from 'node:stream';
import type { HoldfastError } from '../errors.ts';
import type { EncodedFrame } from './framing.ts';

interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: HoldfastError) => void;
}

/** Writes frames and knows how many bytes are queued. Ends with its stream. */
export class FrameWriter {
  readonly #stream: Writable;
  #waiters: Waiter[] = [];
  #closed: HoldfastError | undefined;
  readonly #onDrain = (): void => {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.resolve();
  };

  constructor(stream: Writable) {
    this.#stream = stream;
    stream.on('drain', this.#onDrain);
  }

  /** Bytes that have not been passed to the system yet. */
  get queued(): number {
    return this.#stream.writableLength;
  }

  /** `onFlushed` is called when the frame has been passed to the system, or never will be. */
  write(frame: EncodedFrame, onFlushed?: () => void): void {
    const onFrameFlushed = frame.onFlushed;
    const done =
      onFlushed === undefined && onFrameFlushed === undefined
        ? undefined
        : () => {
            onFrameFlushed?.();
            onFlushed?.();
          };
    if (this.#closed !== undefined || !this.#stream.writable) {
      done?.();
      return;
    }
    if (frame.bytes === undefined || frame.bytes.length === 0) {
      this.#stream.write(frame.line, done);
      return;
    }
    this.#stream.cork();
    this.#stream.write(frame.line);
    this.#stream.write(frame.bytes, done);
    this.#stream.uncork();
  }

  /** Resolves when the stream accepts more without growing its queue. Rejects when the stream has ended. */
  waitForDrain(): Promise<void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (!this.#stream.writableNeedDrain) return Promise.resolve();
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  close(reason: HoldfastError): void {
    if (this.#closed !== undefined) return;
    this.#closed = reason;
    this.#stream.off('drain', this.#onDrain);
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.reject(reason);
  }
}
