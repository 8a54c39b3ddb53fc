import type { CliIo, OutputStream } from './io.ts';

/** The reader of standard output has closed the pipe. The command ends without an error message. */
export class BrokenPipeError extends Error {
  override readonly name = 'ReaderGone';
}

/**
 * Standard output or standard error of one command. Writing waits for a slow reader, so that memory use stays flat.
 * A write after the reader has closed the pipe (EPIPE) rejects with BrokenPipeError.
 */
export class Output {
  readonly isTTY: boolean;
  readonly #stream: OutputStream;
  #failure: Error | undefined;
  readonly #onFailure = new Set<(error: Error) => void>();
  readonly #onError = (error: Error): void => {
    const gone = 'code' in error && (error.code === 'EPIPE' || error.code === 'ERR_STREAM_DESTROYED');
    this.#failure ??= gone
      ? new BrokenPipeError('The reader of the output has closed it', { cause: error })
      : error;
    for (const listener of [...this.#onFailure]) listener(this.#failure);
  };

  constructor(stream: OutputStream) {
    this.#stream = stream;
    this.isTTY = stream.isTTY === true;
    stream.on('error', this.#onError);
  }

  /** Columns of the terminal. Infinity for files and pipes, where nothing is truncated. */
  get columns(): number {
    return this.isTTY ? (this.#stream.columns ?? 80) : Number.POSITIVE_INFINITY;
  }

  get failure(): Error | undefined {
    return this.#failure;
  }

  /** Calls `listener` once when writing fails permanently. Returns the function that unregisters it. */
  onFailure(listener: (error: Error) => void): () => void {
    if (this.#failure !== undefined) listener(this.#failure);
    else this.#onFailure.add(listener);
    return () => this.#onFailure.delete(listener);
  }

  /** Resolves when the stream can accept more. */
  async write(data: string | Uint8Array): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    if (data.length === 0) return;
    if (this.#stream.write(data)) return;
    await this.#wait((done) => {
      this.#stream.once('drain', done);
      return () => this.#stream.off('drain', done);
    });
  }

  /** Resolves when everything has been written to the system, or writing has failed. */
  async flush(): Promise<void> {
    if (this.#failure !== undefined) return;
    try {
      await this.#wait((done) => {
        this.#stream.write('', () => done());
        return () => undefined;
      });
    } catch {
      // The failed write has already been reported.
    }
  }

  /** Unregisters the listeners, except the one that ignores later errors of the stream. */
  close(): void {
    this.#onFailure.clear();
  }

  async #wait(begin: (done: () => void) => () => void): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const end = begin(() => resolve(undefined));
    const forget = this.onFailure(reject);
    try {
      await promise;
    } finally {
      end();
      forget();
    }
  }
}

export function createOutputs(io: CliIo): { readonly stdout: Output; readonly stderr: Output } {
  return { stdout: new Output(io.stdout), stderr: new Output(io.stderr) };
}
