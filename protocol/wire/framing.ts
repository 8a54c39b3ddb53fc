import { HoldfastError } from '../errors.ts';
import { FRAME_LIMITS } from './limits.ts';
import type { BufferPool } from './buffer-pool.ts';
import { forbiddenKeyIn, nestsDeeperThan, parseUntrustedLine } from './untrusted-json.ts';
import type { JsonObject } from './untrusted-json.ts';

/** One message and its payload. `bytes` is undefined if the message has none. */
export interface Frame {
  readonly message: JsonObject;
  readonly bytes: Buffer | undefined;
  /** Size of the frame on the wire. */
  readonly size: number;
}

/** A frame ready to be written. */
export interface EncodedFrame {
  /** JSON and newline. */
  readonly line: Buffer;
  readonly bytes: Uint8Array | undefined;
  readonly size: number;
  /** Called when the bytes have been passed to the system, or never will be. May not be called at all. */
  readonly onFlushed?: (() => void) | undefined;
}

const NEWLINE = 0x0a;
const FIRST_CAPACITY = 4096;
const FIRST_PAYLOAD = 64 * 1024;

function tooLarge(why: string, reason: string): HoldfastError {
  return new HoldfastError('invalid_request', 'The message cannot be sent', { why, details: { reason } });
}

/**
 * Encodes a message. Throws `invalid_request` (with `details.reason`) for what the other side would refuse, so that only
 * this message fails and not the connection.
 */
export function encodeFrame(message: JsonObject, bytes?: Uint8Array, onFlushed?: () => void): EncodedFrame {
  if (bytes !== undefined && bytes.length > FRAME_LIMITS.payloadBytes) {
    throw tooLarge(`${bytes.length} bytes are more than ${FRAME_LIMITS.payloadBytes}`, 'bytes_too_large');
  }
  let text: string;
  try {
    text = JSON.stringify(bytes === undefined ? message : { ...message, bytes: bytes.length });
  } catch (cause) {
    // A cycle, a bigint, or nesting that exceeds the stack.
    throw new HoldfastError('invalid_request', 'The message cannot be sent', {
      why: 'it is not JSON',
      details: { reason: 'not_json' },
      cause,
    });
  }
  const line = Buffer.from(`${text}\n`, 'utf8');
  if (line.length - 1 > FRAME_LIMITS.lineBytes) {
    throw tooLarge(
      `${line.length - 1} bytes of JSON are more than ${FRAME_LIMITS.lineBytes}`,
      'line_too_long',
    );
  }
  if (nestsDeeperThan(line, FRAME_LIMITS.depth))
    throw tooLarge(`it nests deeper than ${FRAME_LIMITS.depth}`, 'too_deep');
  if (text.includes('prototype') || text.includes('__proto__')) {
    const key = forbiddenKeyIn(text, JSON.parse(text));
    if (key !== undefined) throw tooLarge(`it has the key ${key}`, 'forbidden_key');
  }
  return { line, bytes, size: line.length + (bytes?.length ?? 0), onFlushed };
}

function broken(reason: string, why: string): HoldfastError {
  return new HoldfastError('protocol_error', 'A message cannot be read', { why, details: { reason } });
}

/**
 * Decodes frames from chunks of any size. Buffers at most one incomplete line or payload, and copies each byte at most
 * twice. After an error it cannot resynchronize: every further call throws the same error.
 */
export class FrameDecoder {
  readonly #onFrame: (frame: Frame) => void;
  readonly #bufferPool: BufferPool | undefined;
  #error: HoldfastError | undefined;
  #stopped = false;
  /** The incomplete line, if any. */
  #line: Buffer | undefined;
  #lineLength = 0;
  /** The message whose payload is incomplete. */
  #incomplete:
    | {
        readonly message: JsonObject;
        readonly length: number;
        payload: Buffer;
        filled: number;
        readonly lineSize: number;
      }
    | undefined;

  /** Buffers for large payloads come from `bufferPool`. The listener owns them. */
  constructor(onFrame: (frame: Frame) => void, bufferPool?: BufferPool) {
    this.#onFrame = onFrame;
    this.#bufferPool = bufferPool;
  }

  /** Bytes buffered for an incomplete frame. */
  get buffered(): number {
    return (this.#line?.length ?? 0) + (this.#incomplete?.payload.length ?? 0);
  }

  /** Delivers all complete frames in order. Throws `protocol_error` at the first invalid one. */
  push(chunk: Buffer): void {
    if (this.#error !== undefined) throw this.#error;
    try {
      let at = 0;
      while (at < chunk.length && !this.#isStopped()) {
        at = this.#incomplete === undefined ? this.#takeLine(chunk, at) : this.#takePayload(chunk, at);
      }
    } catch (error) {
      this.#discard();
      this.#error = HoldfastError.from(error);
      throw this.#error;
    }
  }

  /** The stream has ended. Throws if that was in the middle of a frame. */
  end(): void {
    if (this.#stopped || this.#error !== undefined) return;
    if (this.#line !== undefined || this.#incomplete !== undefined) {
      this.#discard();
      throw broken('cut_off', 'the stream ended inside it');
    }
  }

  /** Stops delivering frames. May be called from the listener. */
  stop(): void {
    this.#stopped = true;
    this.#discard();
  }

  /** A method, so that the compiler does not assume that the listener leaves the field unchanged. */
  #isStopped(): boolean {
    return this.#stopped;
  }

  #discard(): void {
    this.#line = undefined;
    this.#lineLength = 0;
    if (this.#incomplete !== undefined) this.#bufferPool?.release(this.#incomplete.payload);
    this.#incomplete = undefined;
  }

  #takeLine(chunk: Buffer, from: number): number {
    const newline = chunk.indexOf(NEWLINE, from);
    const end = newline === -1 ? chunk.length : newline;
    if (this.#lineLength + (end - from) > FRAME_LIMITS.lineBytes) {
      throw broken('line_too_long', `a line is longer than ${FRAME_LIMITS.lineBytes} bytes`);
    }
    if (newline === -1) {
      this.#appendLine(chunk.subarray(from));
      return chunk.length;
    }
    let line = chunk.subarray(from, end);
    if (this.#line !== undefined) {
      this.#appendLine(line);
      line = this.#line.subarray(0, this.#lineLength);
    }
    this.#line = undefined;
    this.#lineLength = 0;
    this.#takeMessage(parseUntrustedLine(line), line.length + 1);
    return newline + 1;
  }

  /** Appends to one buffer that doubles, so that a line that arrives byte by byte costs no quadratic copying. */
  #appendLine(piece: Buffer): void {
    const wanted = this.#lineLength + piece.length;
    let line = this.#line ?? Buffer.allocUnsafe(Math.max(FIRST_CAPACITY, wanted));
    if (line.length < wanted) {
      const larger = Buffer.allocUnsafe(Math.min(FRAME_LIMITS.lineBytes, Math.max(wanted, line.length * 2)));
      line.copy(larger, 0, 0, this.#lineLength);
      line = larger;
    }
    piece.copy(line, this.#lineLength);
    this.#line = line;
    this.#lineLength = wanted;
  }

  #takeMessage(message: JsonObject, lineSize: number): void {
    const announced = message['bytes'];
    if (announced === undefined) {
      this.#onFrame({ message, bytes: undefined, size: lineSize });
      return;
    }
    if (typeof announced !== 'number' || !Number.isSafeInteger(announced) || announced < 0) {
      throw broken('bytes_invalid', '`bytes` is not a count');
    }
    if (announced > FRAME_LIMITS.payloadBytes) {
      throw broken(
        'bytes_too_large',
        `${announced} bytes after a message are more than ${FRAME_LIMITS.payloadBytes}`,
      );
    }
    if (announced === 0) {
      this.#onFrame({ message, bytes: Buffer.alloc(0), size: lineSize });
      return;
    }
    // The buffer grows as bytes arrive, because an announcement alone must not allocate memory.
    const payload =
      this.#bufferPool?.acquireFree(announced) ?? Buffer.allocUnsafeSlow(Math.min(announced, FIRST_PAYLOAD));
    this.#incomplete = { message, length: announced, payload, filled: 0, lineSize };
  }

  #takePayload(chunk: Buffer, from: number): number {
    const incomplete = this.#incomplete;
    if (incomplete === undefined) return from;
    const { message, length, lineSize } = incomplete;
    const taken = Math.min(length - incomplete.filled, chunk.length - from);
    const wanted = incomplete.filled + taken;
    if (incomplete.payload.length < wanted) {
      const larger = this.#allocate(Math.min(length, Math.max(wanted, incomplete.payload.length * 4)));
      incomplete.payload.copy(larger, 0, 0, incomplete.filled);
      incomplete.payload = larger;
    }
    chunk.copy(incomplete.payload, incomplete.filled, from, from + taken);
    incomplete.filled = wanted;
    if (wanted === length) {
      this.#incomplete = undefined;
      this.#onFrame({ message, bytes: incomplete.payload, size: lineSize + length });
    }
    return from + taken;
  }

  #allocate(length: number): Buffer {
    return this.#bufferPool?.acquire(length) ?? Buffer.allocUnsafeSlow(length);
  }
}
