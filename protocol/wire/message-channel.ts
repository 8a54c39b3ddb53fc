import type { Duplex } from 'node:stream';
import { FramedStream } from './framed-stream.ts';
import { type JsonObject, parseUntrustedLine } from './untrusted-json.ts';

/** Kind (u8) and length (u32, big endian) of what follows. */
const HEADER_BYTES = 5;
const BYTES = 0;
const END = 1;
const MESSAGE = 2;
/** A longer message is a protocol error, unless the receiver expects longer ones. */
const MOST_MESSAGE_BYTES = 64 * 1024;
/** Messages that the other side has not taken yet, with what each costs here: who takes none is broken. */
const MOST_UNREAD_BYTES = 2 ** 20;
const MESSAGE_COST = 1024;
/** As for messages. Longer writes are cut. */
const MOST_CHUNK_BYTES = 4 * 2 ** 20;
/** Buffered bytes on either side before the source is paused. */
const WAITING_BYTES = 64 * 1024;

/**
 * A byte stream between two processes of ours with messages in it: JSON objects, reported by the event `message` in the order in
 * which they were sent, as values that the receiver has to check. Each direction of the bytes has an end of its own; a
 * connection that is lost before both have ended is an error. Destroying a channel before that breaks the connection.
 */
export class MessageChannel extends FramedStream {
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  /** Remaining bytes of the current frame, if it has bytes of the stream. */
  #left = 0;
  /** The current message, as far as it is here. */
  #message: { readonly bytes: Buffer; have: number } | null = null;
  #inEnded = false;
  #outEnded = false;
  #unread = 0;
  /** Bytes of the stream that arrived. */
  #received = 0;

  readonly #mostMessageBytes: number;

  constructor(stream: Duplex, mostMessageBytes: number = MOST_MESSAGE_BYTES) {
    super(stream, WAITING_BYTES);
    this.#mostMessageBytes = mostMessageBytes;
    stream.on('data', (chunk: Buffer) => {
      if (!this.destroyed && !this.#take(chunk)) this.destroy(new Error('an invalid frame'));
    });
    stream.on('end', () => this.#lost());
    stream.on('close', () => this.#lost());
    stream.on('error', (error) => this.destroy(error));
  }

  /** Bytes that a reader has taken. */
  get consumedBytes(): number {
    return this.#received - this.readableLength;
  }

  send(message: object, done?: () => void): void {
    if (this.destroyed || this.stream.destroyed) return;
    const text = Buffer.from(JSON.stringify(message));
    const cost = MESSAGE_COST + text.length;
    this.#unread += cost;
    if (this.#unread > MOST_UNREAD_BYTES) {
      this.destroy();
      return;
    }
    this.stream.write(Buffer.concat([header(MESSAGE, text.length), text]), () => {
      this.#unread -= cost;
      done?.();
    });
  }

  /** Breaks the connection after this message, or after `withinMs` if the other side does not read. */
  breakOff(message: object, withinMs: number): void {
    const late = setTimeout(() => this.destroy(), withinMs);
    this.once('close', () => clearTimeout(late));
    this.send(message, () => this.destroy());
  }

  protected override writeFrame(bytes: Buffer, sent: () => void): void {
    for (let at = 0; at < bytes.length; at += MOST_CHUNK_BYTES) {
      const piece = bytes.subarray(at, at + MOST_CHUNK_BYTES);
      this.stream.write(header(BYTES, piece.length));
      if (at + MOST_CHUNK_BYTES < bytes.length) this.stream.write(piece);
      else this.stream.write(piece, sent);
    }
  }

  override _final(done: (error?: Error | null) => void): void {
    this.stream.write(header(END, 0));
    this.#outEnded = true;
    this.#settle();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#inEnded || !this.#outEnded) this.stream.destroy();
    done(error);
  }

  // Node's HTTP client and server take a channel for a socket.
  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  setTimeout(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  /** False for a protocol error. */
  #take(chunk: Buffer): boolean {
    let at = 0;
    while (at < chunk.length) {
      const rest = chunk.length - at;
      if (this.#left > 0) {
        const count = Math.min(this.#left, rest);
        this.#left -= count;
        this.gather(chunk.subarray(at, at + count), chunk.length);
        at += count;
      } else if (this.#message !== null) {
        const { bytes, have } = this.#message;
        const count = chunk.copy(bytes, have, at);
        this.#message.have += count;
        at += count;
        if (this.#message.have === bytes.length && !this.#read(bytes)) return false;
      } else {
        const count = Math.min(HEADER_BYTES - this.#headerBytes, rest);
        chunk.copy(this.#header, this.#headerBytes, at, at + count);
        this.#headerBytes += count;
        at += count;
        if (this.#headerBytes === HEADER_BYTES && !this.#begin()) return false;
      }
      // A message may have ended it.
      if (this.destroyed) return true;
    }
    this.#deliver();
    return true;
  }

  #begin(): boolean {
    this.#headerBytes = 0;
    const kind = this.#header.readUInt8(0);
    const length = this.#header.readUInt32BE(1);
    if (this.#inEnded && kind !== MESSAGE) return false;
    switch (kind) {
      case BYTES:
        this.#left = length;
        return length > 0 && length <= MOST_CHUNK_BYTES;
      case END:
        this.#deliver();
        this.#inEnded = true;
        this.push(null);
        this.#settle();
        return length === 0;
      case MESSAGE:
        if (length === 0 || length > this.#mostMessageBytes) return false;
        this.#deliver();
        this.#message = { bytes: Buffer.allocUnsafe(length), have: 0 };
        return true;
      default:
        return false;
    }
  }

  #read(bytes: Buffer): boolean {
    this.#message = null;
    let message: JsonObject;
    try {
      message = parseUntrustedLine(bytes);
    } catch {
      return false;
    }
    this.emit('message', message);
    return true;
  }

  #deliver(): void {
    this.deliver((length) => (this.#received += length));
  }

  #settle(): void {
    if (!this.#inEnded || !this.#outEnded) return;
    this.stream.end();
    this.stream.resume();
  }

  #lost(): void {
    if (!this.#inEnded) this.destroy(new Error('the other process is gone'));
    else if (!this.#outEnded) this.destroy();
  }
}

function header(kind: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(HEADER_BYTES);
  bytes.writeUInt8(kind);
  bytes.writeUInt32BE(length, 1);
  return bytes;
}
