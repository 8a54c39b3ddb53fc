import { Duplex } from 'node:stream';

/** Kind (u8), stream (u32) and length (u32, big endian), then the payload of `BYTES`. For `CREDIT` the length is the credit. */
const HEADER_BYTES = 9;
const HELLO = 0;
const OPEN = 1;
const BYTES = 2;
const END = 3;
const RESET = 4;
const CREDIT = 5;

/** What one side may send on a stream before the other has taken it. */
const WINDOW_BYTES = 256 * 1024;
const CREDIT_BYTES = 64 * 1024;
const BLOCK_BYTES = 16 * 1024;
/** Bytes of one frame, so that streams take turns. */
const FRAME_BYTES = 32 * 1024;

export interface MultiplexerOptions {
  /** Both directions of a program's input and output, for example. */
  readonly carrier: Duplex;
  /** Serves what the other side opens; without it, opening one is a protocol error. */
  readonly onStream?: (stream: Duplex) => void;
}

/**
 * Carries many byte streams over one. Each has a window of its own, so that one that nobody reads holds up no other, and
 * costs a bounded amount of memory whatever the other side sends. Destroying a stream resets it on the other side; the end
 * of the carrier destroys all.
 */
export class Multiplexer {
  readonly #carrier: Duplex;
  readonly #onStream: ((stream: Duplex) => void) | undefined;
  readonly #streams = new Map<number, MuxStream>();
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  #left = 0;
  /** The stream of the current frame; undefined if it has closed. */
  #target: MuxStream | undefined;
  #lastId = 0;
  readonly #greeted = Promise.withResolvers<boolean>();

  constructor({ carrier, onStream }: MultiplexerOptions) {
    this.#carrier = carrier;
    this.#onStream = onStream;
    carrier.on('data', (chunk: Buffer) => {
      if (!carrier.destroyed && !this.#take(chunk)) carrier.destroy();
    });
    carrier.on('error', () => undefined);
    carrier.once('end', () => carrier.destroy());
    carrier.once('close', () => {
      this.#greeted.resolve(false);
      for (const stream of this.#streams.values()) stream.destroy();
    });
    this.#send(HELLO, 0, 0);
  }

  /** Resolves when the other side is there: true; false if the carrier has ended first. */
  get greeted(): Promise<boolean> {
    return this.#greeted.promise;
  }

  open(): Duplex {
    this.#lastId += 1;
    this.#send(OPEN, this.#lastId, 0);
    return this.#make(this.#lastId);
  }

  #make(id: number): MuxStream {
    const stream = new MuxStream({
      write: (bytes, done) => {
        this.#carrier.cork();
        this.#send(BYTES, id, bytes.length);
        this.#carrier.write(bytes, () => done());
        this.#carrier.uncork();
      },
      end: () => this.#send(END, id, 0),
      reset: () => this.#send(RESET, id, 0),
      credit: (bytes) => this.#send(CREDIT, id, bytes),
    });
    if (this.#carrier.destroyed) stream.destroy();
    else this.#streams.set(id, stream);
    stream.once('close', () => this.#streams.delete(id));
    return stream;
  }

  #send(kind: number, id: number, length: number): void {
    if (this.#carrier.destroyed || this.#carrier.writableEnded) return;
    const header = Buffer.allocUnsafe(HEADER_BYTES);
    header.writeUInt8(kind);
    header.writeUInt32BE(id, 1);
    header.writeUInt32BE(length, 5);
    this.#carrier.write(header);
  }

  /** False for a protocol error. */
  #take(chunk: Buffer): boolean {
    let at = 0;
    while (at < chunk.length) {
      const rest = chunk.length - at;
      if (this.#left > 0) {
        const count = Math.min(this.#left, rest);
        if (this.#target?.receive(chunk.subarray(at, at + count)) === false) return false;
        this.#left -= count;
        at += count;
        continue;
      }
      const count = Math.min(HEADER_BYTES - this.#headerBytes, rest);
      chunk.copy(this.#header, this.#headerBytes, at, at + count);
      this.#headerBytes += count;
      at += count;
      if (this.#headerBytes === HEADER_BYTES && !this.#begin()) return false;
    }
    return true;
  }

  #begin(): boolean {
    this.#headerBytes = 0;
    const kind = this.#header.readUInt8(0);
    const id = this.#header.readUInt32BE(1);
    const length = this.#header.readUInt32BE(5);
    const stream = this.#streams.get(id);
    switch (kind) {
      case HELLO:
        this.#greeted.resolve(true);
        return length === 0;
      case OPEN:
        if (this.#onStream === undefined || id <= this.#lastId || length !== 0) return false;
        this.#lastId = id;
        this.#onStream(this.#make(id));
        return true;
      case BYTES:
        this.#target = stream;
        this.#left = length;
        return length > 0 && length <= WINDOW_BYTES;
      case END:
        return stream?.receiveEnd() ?? true;
      case RESET:
        stream?.receiveReset();
        return true;
      case CREDIT:
        return stream?.receiveCredit(length) ?? true;
      default:
        return false;
    }
  }
}

interface Sending {
  readonly write: (bytes: Buffer, done: () => void) => void;
  readonly end: () => void;
  readonly reset: () => void;
  readonly credit: (bytes: number) => void;
}

class MuxStream extends Duplex {
  readonly #sending: Sending;
  readonly #waiting = new ByteQueue();
  /** The reader wants more. */
  #isWanted = false;
  /** What the other side may still send. */
  #inWindow = WINDOW_BYTES;
  #owed = 0;
  #outWindow = WINDOW_BYTES;
  #outWaits: (() => void) | null = null;
  #inEnded = false;
  #outEnded = false;
  #isReset = false;

  constructor(sending: Sending) {
    // What waits is kept in blocks here, not in pieces of any size there.
    super({ allowHalfOpen: true, readableHighWaterMark: 1, writableHighWaterMark: BLOCK_BYTES });
    this.#sending = sending;
  }

  /** False if the other side sends more than it may. */
  receive(bytes: Buffer): boolean {
    this.#inWindow -= bytes.length;
    if (this.#inWindow < 0 || this.#inEnded) return false;
    if (this.destroyed) return true;
    this.#waiting.add(bytes);
    this.#deliver();
    return true;
  }

  receiveEnd(): boolean {
    if (this.#inEnded) return false;
    this.#inEnded = true;
    this.#deliver();
    return true;
  }

  receiveReset(): void {
    this.#isReset = true;
    this.destroy();
  }

  receiveCredit(bytes: number): boolean {
    this.#outWindow += bytes;
    const waits = this.#outWaits;
    this.#outWaits = null;
    waits?.();
    return this.#outWindow <= WINDOW_BYTES;
  }

  override _read(): void {
    this.#isWanted = true;
    this.#deliver();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#writeFrom(chunk, 0, done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: () => void): void {
    this.#writeFrom(Buffer.concat(chunks.map(({ chunk }) => chunk)), 0, done);
  }

  override _final(done: () => void): void {
    this.#outEnded = true;
    this.#sending.end();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#isReset && !(this.#inEnded && this.#outEnded)) this.#sending.reset();
    this.#waiting.clear();
    this.#outWaits = null;
    done(error);
  }

  #writeFrom(bytes: Buffer, at: number, done: () => void): void {
    if (at >= bytes.length || this.destroyed) {
      done();
      return;
    }
    if (this.#outWindow === 0) {
      this.#outWaits = () => this.#writeFrom(bytes, at, done);
      return;
    }
    const piece = bytes.subarray(at, at + Math.min(this.#outWindow, FRAME_BYTES));
    this.#outWindow -= piece.length;
    this.#sending.write(piece, () => this.#writeFrom(bytes, at + piece.length, done));
  }

  #deliver(): void {
    while (this.#isWanted && !this.destroyed) {
      const bytes = this.#waiting.take();
      if (bytes === null) break;
      this.#isWanted = false;
      this.#owed += bytes.length;
      this.push(bytes);
      if (this.#owed < CREDIT_BYTES) continue;
      this.#inWindow += this.#owed;
      this.#sending.credit(this.#owed);
      this.#owed = 0;
    }
    if (this.#inEnded && this.#waiting.isEmpty && !this.readableEnded && this.#isWanted) {
      this.#isWanted = false;
      this.push(null);
    }
  }
}

/** Bytes in blocks: many small additions take little more memory than their bytes. */
class ByteQueue {
  #blocks: { readonly bytes: Buffer; used: number }[] = [];

  get isEmpty(): boolean {
    return this.#blocks.length === 0;
  }

  add(bytes: Buffer): void {
    for (let at = 0; at < bytes.length;) {
      let last = this.#blocks.at(-1);
      if (last === undefined || last.used === last.bytes.length) {
        const size = Math.min(
          BLOCK_BYTES,
          Math.max(bytes.length - at, this.#blocks.length > 0 ? BLOCK_BYTES : 512),
        );
        last = { bytes: Buffer.allocUnsafeSlow(size), used: 0 };
        this.#blocks.push(last);
      }
      const count = bytes.copy(last.bytes, last.used, at);
      last.used += count;
      at += count;
    }
  }

  take(): Buffer | null {
    const first = this.#blocks.shift();
    return first === undefined ? null : first.bytes.subarray(0, first.used);
  }

  clear(): void {
    this.#blocks = [];
  }
}
