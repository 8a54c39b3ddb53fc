import { Duplex } from 'node:stream';
import { PieceGatherer } from './piece-gatherer.ts';

/** Pieces that wait for a reader, whatever their size: each costs a few hundred bytes beside its own. */
const MOST_PIECES = 64;
/** A parser makes objects of what one piece has, so a piece is not large. */
const PIECE_BYTES = 16 * 1024;

/**
 * A byte stream that is carried in frames by another stream. The memory that it takes is bounded however small the frames
 * and writes are: what arrives together is delivered together, and what is written while a write is on its way becomes
 * one frame.
 */
export abstract class FramedStream extends Duplex {
  protected readonly stream: Duplex;
  readonly #gathered = new PieceGatherer();
  /** Pieces that were queued since the queue was last empty. */
  #queued = 0;

  /** `waitingBytes`: buffered bytes on either side before the source is paused. */
  constructor(stream: Duplex, waitingBytes: number) {
    super({ allowHalfOpen: true, highWaterMark: waitingBytes, emitClose: true });
    this.stream = stream;
  }

  /** Writes these bytes in frames; `sent` is called when the stream has written the last one. */
  protected abstract writeFrame(bytes: Buffer, sent: () => void): void;

  /** Takes bytes of the other side, in parts of a chunk with `chunkBytes`. */
  protected gather(piece: Buffer, chunkBytes: number): void {
    this.#gathered.add(piece, chunkBytes);
  }

  /** Delivers what was gathered: at the end of a chunk, and before anything that is no byte of the stream. */
  protected deliver(onPiece?: (length: number) => void): void {
    const bytes = this.#gathered.take();
    if (bytes === null) return;
    for (let at = 0; at < bytes.length && !this.destroyed; at += PIECE_BYTES) {
      const piece = bytes.subarray(at, at + PIECE_BYTES);
      onPiece?.(piece.length);
      const more = this.push(piece);
      this.#queued = this.readableLength === 0 ? 0 : this.#queued + 1;
      if (!more || this.#queued >= MOST_PIECES) this.stream.pause();
    }
  }

  override read(size?: number): Buffer | null {
    const bytes = super.read(size) as Buffer | null;
    if (this.#queued > 0 && this.readableLength === 0) {
      this.#queued = 0;
      this.stream.resume();
    }
    return bytes;
  }

  override _read(): void {
    if (this.#queued < MOST_PIECES) this.stream.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    let isDone = false;
    const sent = (): void => {
      if (isDone) return;
      isDone = true;
      done();
    };
    this.stream.cork();
    this.writeFrame(chunk, sent);
    this.stream.uncork();
    if (this.stream.writableLength === 0) sent();
  }

  override _writev(chunks: { chunk: Buffer }[], done: () => void): void {
    const parts = chunks.map(({ chunk }) => chunk);
    const [first] = parts;
    // Many of them only if they are small.
    this._write(parts.length === 1 && first !== undefined ? first : Buffer.concat(parts), 'utf8', done);
  }
}
