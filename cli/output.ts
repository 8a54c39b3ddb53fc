import type { CliIo, OutputStream } from './io.ts';

/** Nobody reads our standard output any more: the command ends quietly. */
export class BrokenPipeError extends Error {
  override readonly name = 'ReaderGone';
}

/**
 * Standard output or error of one command. Writing waits for a slow reader, so memory stays flat; a reader that went away
 * (EPIPE) rejects with ReaderGone.
 */
export class Output {
  readonly isTTY: boolean;
  readonly #stream: OutputStream;
  #failure: Error | undefined;
  readonly #onFailure = new Set<(error: Error) => void>();
  readonly #onError = (error: Error): void => {
    const gone = 'code' in error && (error.code === 'EPIPE' || error.code === 'ERR_STREAM_DESTROYED');
    this.#failure ??= gone
      ? new BrokenPipeError('The reader of the output has gone', { cause: error })
      : error;
    for (const listener of [...this.#onFailure]) listener(this.#failure);
  };

  constructor(stream: OutputStream) {
    this.#stream = stream;
    this.isTTY = stream.isTTY === true;
    stream.on('error', this.#onError);
  }

  /** Columns of the terminal; Infinity where there is none, so that nothing is cut in files and pipes. */
  get columns(): number {
    return this.isTTY ? (this.#stream.columns ?? 80) : Number.POSITIVE_INFINITY;
  }

  get failure(): Error | undefined {
    return this.#failure;
  }

  /** Called once when writing fails for good. Returns the end of it. */
  onFailure(listener: (error: Error) => void): () => void {
    if (this.#failure !== undefined) listener(this.#failure);
    else this.#onFailure.add(listener);
    return () => this.#onFailure.delete(listener);
  }

  /** Resolves when the stream takes more. */
  async write(data: string | Uint8Array): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    if (data.length === 0) return;
    if (this.#stream.write(data)) return;
    await this.#wait((done) => {
      this.#stream.once('drain', done);
      return () => this.#stream.off('drain', done);
    });
  }

  /** Resolves when everything written has left this process, or never will. */
  async flush(): Promise<void> {
    if (this.#failure !== undefined) return;
    try {
      await this.#wait((done) => {
        this.#stream.write('', () => done());
        return () => undefined;
      });
    } catch {
      // What could not be written was reported by the write itself.
    }
  }

  /** Lets go of the stream. Its errors from here on are nobody's, so one listener stays to keep them quiet. */
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
