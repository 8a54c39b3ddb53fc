import { Duplex } from 'node:stream';
import {
  MAX_CHUNK_BYTES,
  TUNNEL_END,
  TunnelDecoder,
  tunnelHeader,
} from '../../protocol/wire/tunnel-frames.ts';

/** Buffered bytes on either side before the source is paused. */
const WAITING_BYTES = 16 * 1024;
const BEGIN = Buffer.concat([tunnelHeader(1), Buffer.alloc(1)]);

/**
 * A connection of a process in the sandbox, forwarded by its sidecar. Its end is the end of the process's output; the
 * loss of the sidecar is an error. Destroying it before its end resets the process's connection.
 */
export class Tunnel extends Duplex {
  readonly #stream: Duplex;
  readonly #decoder: TunnelDecoder;
  #inEnded = false;
  #outEnded = false;
  /** Bytes that the process sent and received. */
  bytesOut = 0;
  bytesIn = 0;

  /** `stream` has just returned from `egress/accept`. */
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
      if (!this.#decoder.push(chunk)) this.destroy(new Error('the sidecar sent an invalid tunnel frame'));
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
   * Like `write`, but bypasses the stream's queue: `done` is called when the socket has taken all bytes and the
   * buffer may be reused. Not while another write is in flight.
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
