import type { Readable } from 'node:stream';
import { HoldfastError } from '../../protocol/errors.ts';

/** What login shells print before our script runs. */
const MAX_NOISE_BYTES = 1024 * 1024;
const MAX_LINE_BYTES = 4096;
const NEWLINE = 0x0a;

export interface MarkedLine {
  readonly word: string;
  readonly text: string;
}

/** Reads the lines of a stream that begin with a random word, and skips everything else. */
export class MarkedLines {
  readonly #stream: Readable;
  readonly #mark: string;
  #rest: Buffer = Buffer.alloc(0);
  #noise = 0;
  /** The beginning of what was skipped, for messages. */
  #skipped = '';

  constructor(stream: Readable, nonce: string) {
    this.#stream = stream;
    this.#mark = `${nonce} `;
  }

  /** What came before our lines. */
  get skipped(): string {
    return this.#skipped;
  }

  /** The next line. Null at the end. Errors: `timeout`, `protocol_error` for endless output. */
  async next(timeoutMs: number): Promise<MarkedLine | null> {
    const limit = AbortSignal.timeout(timeoutMs);
    for (;;) {
      const line = this.#takeLine();
      if (line === undefined) {
        const chunk = await readChunk(this.#stream, limit);
        if (chunk === null) return null;
        this.#rest = Buffer.concat([this.#rest, chunk]);
        continue;
      }
      // A login shell that prints without a line break leaves its text before our mark.
      const at = line.indexOf(this.#mark);
      if (at === -1) {
        this.#skip(line);
        continue;
      }
      if (at > 0) this.#skip(line.slice(0, at));
      const rest = line.slice(at + this.#mark.length);
      const space = rest.indexOf(' ');
      return space === -1
        ? { word: rest, text: '' }
        : { word: rest.slice(0, space), text: rest.slice(space + 1).trim() };
    }
  }

  /** Puts back what was read beyond the last line: it belongs to whoever reads the stream now. */
  release(): void {
    if (this.#rest.length > 0) this.#stream.unshift(this.#rest);
    this.#rest = Buffer.alloc(0);
  }

  #takeLine(): string | undefined {
    const end = this.#rest.indexOf(NEWLINE);
    if (end === -1) {
      if (this.#rest.length > MAX_LINE_BYTES) {
        this.#skip(this.#rest.toString('utf8', 0, 200), this.#rest.length);
        // Our mark may begin in the part that is not complete.
        this.#rest = this.#rest.subarray(-this.#mark.length);
      }
      return undefined;
    }
    const line = this.#rest.toString('utf8', 0, end);
    this.#rest = this.#rest.subarray(end + 1);
    return line;
  }

  #skip(text: string, bytes = text.length + 1): void {
    this.#noise += bytes;
    if (this.#skipped.length < 2000) this.#skipped += `${text.slice(0, 500)}\n`;
    if (this.#noise > MAX_NOISE_BYTES)
      throw new HoldfastError('protocol_error', 'The other machine prints without end', {
        why: 'its login shell, or a forced command, writes more than our script',
        next: 'make it print nothing where there is no terminal',
      });
  }
}

/** The next chunk of a paused stream; null at its end. */
function readChunk(stream: Readable, signal: AbortSignal): Promise<Buffer | null> {
  const now: unknown = stream.read();
  if (Buffer.isBuffer(now)) return Promise.resolve(now);
  if (stream.readableEnded || stream.destroyed) return Promise.resolve(null);
  return new Promise((resolve, reject) => {
    const settle = (act: () => void): void => {
      stream.off('readable', onReadable);
      stream.off('end', onEnd);
      stream.off('close', onEnd);
      stream.off('error', onEnd);
      signal.removeEventListener('abort', onAbort);
      act();
    };
    const onReadable = (): void => {
      const chunk: unknown = stream.read();
      if (Buffer.isBuffer(chunk)) settle(() => resolve(chunk));
    };
    const onEnd = (): void => settle(() => resolve(null));
    const onAbort = (): void =>
      settle(() =>
        reject(
          new HoldfastError('timeout', 'The other machine does not answer', {
            why: 'our script there printed nothing in time',
          }),
        ),
      );
    if (signal.aborted) {
      onAbort();
      return;
    }
    stream.on('readable', onReadable);
    stream.once('end', onEnd);
    stream.once('close', onEnd);
    stream.once('error', onEnd);
    signal.addEventListener('abort', onAbort, { once: true });
    return undefined;
  });
}
