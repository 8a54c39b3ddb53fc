import type { Duplex } from 'node:stream';
import { FramedStream } from '../../protocol/wire/framed-stream.ts';
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
export class Tunnel extends FramedStream {
  readonly #decoder: TunnelDecoder;
  #inEnded = false;
  #outEnded = false;
  /** Bytes that the process sent and received. */
  bytesOut = 0;
  bytesIn = 0;

  /** `stream` has just returned from `egress/accept`. */
  constructor(stream: Duplex) {
    super(stream, WAITING_BYTES);
    let chunkBytes = 0;
    this.#decoder = new TunnelDecoder({
      onBytes: (bytes) => {
        this.bytesOut += bytes.length;
        this.gather(bytes, chunkBytes);
      },
      onEnd: () => {
        this.deliver();
        this.#inEnded = true;
        this.push(null);
        this.#settle();
      },
    });
    stream.on('data', (chunk: Buffer) => {
      chunkBytes = chunk.length;
      if (!this.#decoder.push(chunk)) this.destroy(new Error('the sidecar sent an invalid tunnel frame'));
      else this.deliver();
    });
    stream.on('end', () => this.#lost());
    stream.on('close', () => this.#lost());
    stream.on('error', (error) => this.destroy(error));
    stream.write(BEGIN);
    stream.resume();
  }

  protected override writeFrame(bytes: Buffer, sent: () => void): void {
    this.bytesIn += bytes.length;
    for (let at = 0; at < bytes.length; at += MAX_CHUNK_BYTES) {
      const piece = bytes.subarray(at, at + MAX_CHUNK_BYTES);
      this.stream.write(tunnelHeader(piece.length));
      if (at + MAX_CHUNK_BYTES < bytes.length) this.stream.write(piece);
      else this.stream.write(piece, sent);
    }
  }

  /**
   * Like `write`, but bypasses the stream's queue: `done` is called when the socket has taken all bytes and the
   * buffer may be reused. Not while another write is in flight.
   */
  writeUnbuffered(bytes: Buffer, done: () => void): void {
    if (this.destroyed) return;
    this.bytesIn += bytes.length;
    this.stream.cork();
    this.stream.write(tunnelHeader(bytes.length));
    this.stream.write(bytes, () => done());
    this.stream.uncork();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.stream.write(TUNNEL_END);
    this.#outEnded = true;
    this.#settle();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#inEnded || !this.#outEnded) this.stream.destroy();
    done(error);
  }

  #settle(): void {
    if (!this.#inEnded || !this.#outEnded) return;
    this.stream.end();
    this.stream.resume();
  }

  #lost(): void {
    if (!this.#inEnded) this.destroy(new Error('the sandbox is gone'));
    else if (!this.#outEnded) this.destroy();
  }
}
