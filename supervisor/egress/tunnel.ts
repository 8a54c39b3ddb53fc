import { Duplex } from 'node:stream';
import {
  MAX_CHUNK_BYTES,
  TUNNEL_END,
  TunnelDecoder,
  tunnelHeader,
} from '../../protocol/wire/tunnel-frames.ts';

/** Bytes that wait on either side of a tunnel before its source is stopped. */
const WAITING_BYTES = 16 * 1024;
const BEGIN = Buffer.concat([tunnelHeader(1), Buffer.alloc(1)]);

/**
 * A process's connection, as it comes through its sidecar. Its end is the process's own end of writing; the loss of the
 * sidecar is an error. Destroyed before it has ended, the process's connection is reset.
 */
export class Tunnel extends Duplex {
  readonly #stream: Duplex;
  readonly #decoder: TunnelDecoder;
  #inEnded = false;
  #outEnded = false;
  /** What the process sent and got. */
  bytesOut = 0;
  bytesIn = 0;

  /** `stream` has just answered `egress/accept`. */
  constructor(stream: Duplex) {
    super({ allowHalfOpen: true, highWaterMark: WAITING_BYTES, emitClose: true });
    this.#stream = stream;
    this.#decoder = new TunnelDecoder({
      onBytes: (bytes) => {
        this.bytesOut += bytes.length;
        if (!this.push(bytes)) stream.pause();
      },
      onEnd: () => {
        this.#inEnded = true;
        this.push(null);
        this.#settle();
      },
    });
    stream.on('data', (chunk: Buffer) => {
      if (!this.#decoder.push(chunk)) this.destroy(new Error('the sidecar sent what is no tunnel'));
    });
    stream.on('end', () => this.#lost());
    stream.on('close', () => this.#lost());
    stream.on('error', (error) => this.destroy(error));
    stream.write(BEGIN);
    stream.resume();
  }

  override _read(): void {
    this.#stream.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.bytesIn += chunk.length;
    this.#stream.cork();
    let more = true;
    for (let at = 0; at < chunk.length; at += MAX_CHUNK_BYTES) {
      const piece = chunk.length <= MAX_CHUNK_BYTES ? chunk : chunk.subarray(at, at + MAX_CHUNK_BYTES);
      this.#stream.write(tunnelHeader(piece.length));
      more = this.#stream.write(piece);
    }
    this.#stream.uncork();
    if (more) done();
    else this.#drained(done);
  }

  /**
   * As `write`, past the queue of a stream: `done` is called when the system has all of it, and the bytes may be written over. Not
   * while something written is still on its way.
   */
  writeUnbuffered(bytes: Buffer, done: () => void): void {
    if (this.destroyed) return;
    this.bytesIn += bytes.length;
    this.#stream.cork();
    this.#stream.write(tunnelHeader(bytes.length));
    this.#stream.write(bytes, () => done());
    this.#stream.uncork();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#stream.write(TUNNEL_END);
    this.#outEnded = true;
    this.#settle();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#inEnded || !this.#outEnded) this.#stream.destroy();
    done(error);
  }

  #drained(done: () => void): void {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const go = (): void => resolve(undefined);
    this.#stream.once('drain', go);
    this.#stream.once('close', go);
    void promise.then(() => {
      this.#stream.off('drain', go);
      this.#stream.off('close', go);
      done();
    });
  }

  #settle(): void {
    if (!this.#inEnded || !this.#outEnded) return;
    this.#stream.end();
    this.#stream.resume();
  }

  #lost(): void {
    if (!this.#inEnded) this.destroy(new Error('the sandbox is gone'));
    else if (!this.#outEnded) this.destroy();
  }
}
