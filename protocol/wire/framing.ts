import { HoldfastError } from '../errors.ts';
import { FRAME_LIMITS } from './limits.ts';
import type { BufferPool } from './buffer-pool.ts';
import { forbiddenKeyIn, nestsDeeperThan, parseUntrustedLine } from './untrusted-json.ts';
import type { JsonObject } from './untrusted-json.ts';

/** One message and the raw bytes behind it; `bytes` is undefined where the message announced none. */
export interface Frame {
  readonly message: JsonObject;
  readonly bytes: Buffer | undefined;
  /** Bytes the frame took on the wire. */
  readonly size: number;
}

/** A frame ready to be written. */
export interface EncodedFrame {
  /** JSON and newline. */
  readonly line: Buffer;
  readonly bytes: Uint8Array | undefined;
  readonly size: number;
  /** Called once the system has the bytes, or never will; perhaps not at all. */
  readonly onFlushed?: (() => void) | undefined;
}

const NEWLINE = 0x0a;
const FIRST_CAPACITY = 4096;
const FIRST_PAYLOAD = 64 * 1024;

function tooLarge(why: string, reason: string): HoldfastError {
  return new HoldfastError('invalid_request', 'The message cannot be sent', { why, details: { reason } });
}

/**
 * Throws `invalid_request` (with `details.reason`) for what the other side would refuse: then only this message fails,
 * and not the connection.
 */
export function encodeFrame(message: JsonObject, bytes?: Uint8Array, onTaken?: () => void): EncodedFrame {
  if (bytes !== undefined && bytes.length > FRAME_LIMITS.payloadBytes) {
    throw tooLarge(`${bytes.length} bytes are more than ${FRAME_LIMITS.payloadBytes}`, 'bytes_too_large');
  }
  let text: string;
  try {
    text = JSON.stringify(bytes === undefined ? message : { ...message, bytes: bytes.length });
  } catch (cause) {
    // A cycle, a bigint, or nesting so deep that the stack ends.
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
  return { line, bytes, size: line.length + (bytes?.length ?? 0), onFlushed: onTaken };
}

function broken(reason: string, why: string): HoldfastError {
  return new HoldfastError('protocol_error', 'A message cannot be read', { why, details: { reason } });
}

/**
 * Bytes in any pieces → frames. Keeps at most one unfinished line or payload, each byte copied at most twice.
 * After an error the stream has no known place to go on from: the decoder stays broken.
 */
export class FrameDecoder {
  readonly #onFrame: (frame: Frame) => void;
  readonly #payloads: BufferPool | undefined;
  #error: HoldfastError | undefined;
  #stopped = false;
  /** The unfinished line; undefined while there is none. */
  #line: Buffer | undefined;
  #lineLength = 0;
  /** The message whose payload is on its way. */
  #waiting:
    | {
        readonly message: JsonObject;
        readonly length: number;
        payload: Buffer;
        filled: number;
        readonly lineSize: number;
      }
    | undefined;

  /** Large payloads are taken from `payloads`; they are the listener's. */
  constructor(onFrame: (frame: Frame) => void, payloads?: BufferPool) {
    this.#onFrame = onFrame;
    this.#payloads = payloads;
  }

  /** Bytes held for a frame that is not complete. */
  get buffered(): number {
    return (this.#line?.length ?? 0) + (this.#waiting?.payload.length ?? 0);
  }

  /** Delivers every frame that is complete, in order; throws `protocol_error` at the first that is none. */
  push(chunk: Buffer): void {
    if (this.#error !== undefined) throw this.#error;
    try {
      let at = 0;
      while (at < chunk.length && !this.#isStopped()) {
        at = this.#waiting === undefined ? this.#takeLine(chunk, at) : this.#takePayload(chunk, at);
      }
    } catch (error) {
      this.#forget();
      this.#error = HoldfastError.from(error);
      throw this.#error;
    }
  }

  /** The stream has ended: throws if that was in the middle of a frame. */
  end(): void {
    if (this.#stopped || this.#error !== undefined) return;
    if (this.#line !== undefined || this.#waiting !== undefined) {
      this.#forget();
      throw broken('cut_off', 'the stream ended inside it');
    }
  }

  /** No frame is delivered any more; may be called from inside the listener. */
  stop(): void {
    this.#stopped = true;
    this.#forget();
  }

  /** A method, so that the compiler does not take the field for unchanged across the listener. */
  #isStopped(): boolean {
    return this.#stopped;
  }

  #forget(): void {
    this.#line = undefined;
    this.#lineLength = 0;
    if (this.#waiting !== undefined) this.#payloads?.release(this.#waiting.payload);
    this.#waiting = undefined;
  }

  #takeLine(chunk: Buffer, from: number): number {
    const newline = chunk.indexOf(NEWLINE, from);
    const end = newline === -1 ? chunk.length : newline;
    if (this.#lineLength + (end - from) > FRAME_LIMITS.lineBytes) {
      throw broken('line_too_long', `a line is longer than ${FRAME_LIMITS.lineBytes} bytes`);
    }
    if (newline === -1) {
      this.#keepLine(chunk.subarray(from));
      return chunk.length;
    }
    let line = chunk.subarray(from, end);
    if (this.#line !== undefined) {
      this.#keepLine(line);
      line = this.#line.subarray(0, this.#lineLength);
    }
    this.#line = undefined;
    this.#lineLength = 0;
    this.#takeMessage(parseUntrustedLine(line), line.length + 1);
    return newline + 1;
  }

  /** Copies into one buffer that doubles: a line that comes byte by byte must cost neither a list of chunks nor n² copies. */
  #keepLine(piece: Buffer): void {
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
        `${announced} bytes behind a message are more than ${FRAME_LIMITS.payloadBytes}`,
      );
    }
    if (announced === 0) {
      this.#onFrame({ message, bytes: Buffer.alloc(0), size: lineSize });
      return;
    }
    // Grows as the bytes come: an announcement alone must cost nothing.
    const payload =
      this.#payloads?.acquireFree(announced) ?? Buffer.allocUnsafeSlow(Math.min(announced, FIRST_PAYLOAD));
    this.#waiting = { message, length: announced, payload, filled: 0, lineSize };
  }

  #takePayload(chunk: Buffer, from: number): number {
    const waiting = this.#waiting;
    if (waiting === undefined) return from;
    const { message, length, lineSize } = waiting;
    const taken = Math.min(length - waiting.filled, chunk.length - from);
    const wanted = waiting.filled + taken;
    if (waiting.payload.length < wanted) {
      const larger = this.#allocate(Math.min(length, Math.max(wanted, waiting.payload.length * 4)));
      waiting.payload.copy(larger, 0, 0, waiting.filled);
      waiting.payload = larger;
    }
    chunk.copy(waiting.payload, waiting.filled, from, from + taken);
    waiting.filled = wanted;
    if (wanted === length) {
      this.#waiting = undefined;
      this.#onFrame({ message, bytes: waiting.payload, size: lineSize + length });
    }
    return from + taken;
  }

  #allocate(length: number): Buffer {
    return this.#payloads?.acquire(length) ?? Buffer.allocUnsafeSlow(length);
  }
}
