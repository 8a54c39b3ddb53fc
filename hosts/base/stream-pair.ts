import { Duplex } from 'node:stream';
import type { Readable, Writable } from 'node:stream';

/** One stream of a readable and a writable one, such as the standard streams of a process. */
export class StreamPair extends Duplex {
  readonly #readable: Readable;
  readonly #writable: Writable;

  constructor(readable: Readable, writable: Writable) {
    super({ allowHalfOpen: true });
    this.#readable = readable;
    this.#writable = writable;
    readable.on('readable', () => this.#forward());
    readable.once('end', () => this.push(null));
    readable.once('error', (error) => this.destroy(error));
    // A process that was killed ends its output without an end.
    readable.once('close', () => {
      if (!readable.readableEnded) this.destroy();
    });
    writable.once('error', (error) => this.destroy(error));
  }

  override _read(): void {
    this.#forward();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#writable.write(chunk, done);
  }

  override _writev(
    chunks: { chunk: Buffer; encoding: BufferEncoding }[],
    done: (error?: Error | null) => void,
  ): void {
    this.#writable.write(Buffer.concat(chunks.map(({ chunk }) => chunk)), done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#writable.end(() => done());
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#readable.destroy();
    this.#writable.destroy();
    done(error);
  }

  #forward(): void {
    for (;;) {
      const chunk: unknown = this.#readable.read();
      if (!Buffer.isBuffer(chunk)) return;
      if (!this.push(chunk)) return;
    }
  }
}
