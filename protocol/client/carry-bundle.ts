import { HoldfastError } from '../errors.ts';
import type { MethodName, Params, Result } from '../methods.ts';
import type { CallOptions, CallResult } from '../wire/shapes.ts';

/** What one message carries: keystrokes of other clients on the same connection wait for no more. */
const PART_BYTES = 64 * 1024;
/** Parts on their way at once, so that a slow network is used. */
const PARTS_AHEAD = 16;
/** How often a connection may break without a byte between. */
const ATTEMPTS = 5;
const RETRY_MS = 500;
const CUT: readonly string[] = ['connection_closed', 'shutting_down'];

interface Caller {
  call<M extends MethodName>(method: M, params: Params<M>, options?: CallOptions): Promise<Result<M>>;
  callWithBytes<M extends MethodName>(
    method: M,
    params: Params<M>,
    options?: CallOptions,
  ): Promise<CallResult<Result<M>>>;
}

export interface CarryOptions {
  readonly source: Caller;
  readonly target: Caller;
  /** The export of the source, and the import of the target. */
  readonly leaving: string;
  readonly arriving: string;
  readonly signal: AbortSignal;
  readonly onProgress: (bytes: number) => void;
}

/** A part that the target has not acknowledged. */
interface Part {
  /** Of its first byte in the file. */
  readonly offset: number;
  readonly bytes: Buffer;
  readonly sending: Promise<unknown>;
}

/**
 * Carries the bytes of a bundle from one host to another. When a connection breaks, goes on over the next one with what the other side
 * lacks. Errors: that of the connection where a side cannot go on; those of the methods.
 */
export async function carryBundle(options: CarryOptions): Promise<void> {
  await new Carrier(options).run();
}

class Carrier {
  readonly #options: CarryOptions;
  /** Of the source. */
  #read = 0;
  #unacknowledged: readonly Part[] = [];
  #failures = 0;

  constructor(options: CarryOptions) {
    this.#options = options;
  }

  async run(): Promise<void> {
    for (let isEnd = false; !isEnd;) isEnd = await this.#copyNext();
    while (this.#unacknowledged.length > 0) await this.#awaitFirst();
  }

  /** True: those were the last bytes. */
  async #copyNext(): Promise<boolean> {
    const { bytes, isEnd, release } = await this.#readNext();
    for (let at = 0; at < bytes.length; at += PART_BYTES) {
      while (this.#unacknowledged.length >= PARTS_AHEAD) await this.#awaitFirst();
      // Kept until it is acknowledged, so it is a copy.
      const part = Buffer.from(bytes.subarray(at, at + PART_BYTES));
      this.#unacknowledged = [...this.#unacknowledged, this.#send(this.#read, part)];
      this.#read += part.length;
      this.#options.onProgress(this.#read);
    }
    release();
    return isEnd;
  }

  async #readNext(): Promise<{ bytes: Buffer; isEnd: boolean; release: () => void }> {
    const { source, leaving, signal } = this.#options;
    // Bytes that come again although they had arrived.
    let known = 0;
    for (;;) {
      try {
        const { result, bytes, release } = await source.callWithBytes(
          'bundle/read',
          { bundle: leaving },
          { signal },
        );
        if (known > bytes.length) throw outOfPlace();
        this.#failures = 0;
        return { bytes: bytes.subarray(known), isEnd: result.end, release };
      } catch (error) {
        const offset = await this.#resume(source, leaving, error);
        known = this.#read - offset;
        if (known < 0) throw outOfPlace();
      }
    }
  }

  /** Returns once the first part was acknowledged, or those that were lost are on their way again. */
  async #awaitFirst(): Promise<void> {
    const [first, ...others] = this.#unacknowledged;
    if (first === undefined) return;
    try {
      await first.sending;
      this.#unacknowledged = others;
      this.#failures = 0;
    } catch (error) {
      await Promise.allSettled(others.map(({ sending }) => sending));
      const { target, arriving } = this.#options;
      const offset = await this.#resume(target, arriving, error);
      if (offset < first.offset || offset > this.#read) throw outOfPlace();
      this.#unacknowledged = this.#unacknowledged
        .filter((part) => part.offset + part.bytes.length > offset)
        .map(({ offset: at, bytes }) => {
          const taken = Math.max(0, offset - at);
          return this.#send(at + taken, bytes.subarray(taken));
        });
    }
  }

  #send(offset: number, bytes: Buffer): Part {
    const { target, arriving, signal } = this.#options;
    const sending = target.call('bundle/append', { bundle: arriving }, { bytes, signal });
    // Its failure is handled when its turn comes.
    sending.catch(() => undefined);
    return { offset, bytes, sending };
  }

  /** Errors: `error` itself, if it is no broken connection or the other side has nothing to go on with. */
  async #resume(caller: Caller, bundle: string, error: unknown): Promise<number> {
    const { signal } = this.#options;
    for (let failure = error; ;) {
      this.#failures += 1;
      const isCut = failure instanceof HoldfastError && CUT.includes(failure.code);
      if (!isCut || this.#failures > ATTEMPTS || signal.aborted) throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS * (this.#failures - 1)));
      try {
        return (await caller.call('bundle/resume', { bundle }, { signal })).offset;
      } catch (next) {
        failure = next;
      }
    }
  }
}

function outOfPlace(): HoldfastError {
  return new HoldfastError('protocol_error', 'The session was not moved', {
    why: 'the other host wants bytes that are out of place',
    next: 'repeat the command',
  });
}
