import { HoldfastError } from '../protocol/errors.ts';
import type { MethodName, Params, Result } from '../protocol/methods.ts';
import type { SupervisorPeer } from '../protocol/client/connect.ts';
import type { CallResult, CallOptions } from '../protocol/wire/shapes.ts';

/** `auto`: start a supervisor where none runs. `never`: fail with `not_found`. */
export type StartMode = 'auto' | 'never';

export type Dial = (start: StartMode) => Promise<SupervisorPeer>;

const ATTEMPTS = 4;
/** How long to wait for another supervisor after one was stopped deliberately. */
const REPLACEMENT_TIMEOUT_MS = 30_000;
const RETRY_MS = 250;

export interface ClientCallOptions extends CallOptions {
  /**
   * For calls that only watch: when the supervisor was stopped deliberately or is being replaced by a newer one,
   * wait for the next one instead of starting it.
   */
  readonly waitForSupervisor?: boolean | undefined;
}

/**
 * A client of the supervisor that connects at the first call. When the connection breaks during a call that is safe
 * to repeat (METHODS says which), it reconnects and sends the request again.
 */
export class ReconnectingClient {
  readonly #dial: Dial;
  readonly #start: StartMode;
  readonly #onAway: () => void;
  #peer: Promise<SupervisorPeer> | undefined;
  #wasStopped = false;
  #isAwayReported = false;
  #closed = false;

  /** Calls `onAway` when the supervisor was stopped deliberately and the client waits for the next one. */
  constructor(dial: Dial, start: StartMode, onAway: () => void) {
    this.#dial = dial;
    this.#start = start;
    this.#onAway = onAway;
  }

  /** The current connection. Connects if there is none. */
  async peer(
    options: {
      readonly waitForSupervisor?: boolean | undefined;
      readonly signal?: AbortSignal | undefined;
    } = {},
  ): Promise<SupervisorPeer> {
    if (this.#closed)
      throw new HoldfastError('connection_closed', 'The connection to the supervisor was closed');
    if (options.waitForSupervisor === true && this.#wasStopped) {
      return this.#waitForReplacement(options.signal);
    }
    this.#peer ??= this.#open(this.#start);
    return this.#peer;
  }

  async call<M extends MethodName>(
    method: M,
    params: Params<M>,
    options: ClientCallOptions = {},
  ): Promise<Result<M>> {
    return (await this.callWithBytes(method, params, options)).result;
  }

  async callWithBytes<M extends MethodName>(
    method: M,
    params: Params<M>,
    options: ClientCallOptions = {},
  ): Promise<CallResult<Result<M>>> {
    const { waitForSupervisor, ...callOptions } = options;
    for (let attempt = 1; ; attempt += 1) {
      const peer = await this.peer({ waitForSupervisor, signal: options.signal });
      try {
        return await peer.callWithBytes(method, params, callOptions);
      } catch (error) {
        if (!isBroken(error) || this.#closed || attempt === ATTEMPTS) throw error;
        // Loaded already: the connection needed it.
        const { mayRepeat } = await import('../protocol/client/repeat.ts');
        if (!mayRepeat(method, params)) throw error;
        if (error.code === 'shutting_down') this.#wasStopped = true;
        peer.close();
        // Wait until this connection has ended, so that the next attempt gets a new one.
        await peer.closed;
      }
    }
  }

  close(): void {
    this.#closed = true;
    const peer = this.#peer;
    this.#peer = undefined;
    // The caller that dialled sees its failure.
    peer?.then(
      (open) => open.close(),
      () => undefined,
    );
  }

  #open(start: StartMode): Promise<SupervisorPeer> {
    const opening = this.#dial(start);
    const forget = () => {
      if (this.#peer === opening) this.#peer = undefined;
    };
    opening.then((peer) => {
      this.#wasStopped = false;
      this.#isAwayReported = false;
      void peer.closed.then((reason) => {
        if (reason?.code === 'shutting_down') this.#wasStopped = true;
        forget();
      });
    }, forget);
    return opening;
  }

  async #waitForReplacement(signal: AbortSignal | undefined): Promise<SupervisorPeer> {
    const until = Date.now() + REPLACEMENT_TIMEOUT_MS;
    for (;;) {
      this.#peer ??= this.#open('never');
      try {
        return await this.#peer;
      } catch (cause) {
        if (Date.now() > until || signal?.aborted === true || this.#closed) {
          const why = 'no other supervisor has started';
          throw new HoldfastError('connection_closed', 'The supervisor was stopped', { why, cause });
        }
        if (!this.#isAwayReported) this.#onAway();
        this.#isAwayReported = true;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }
}

function isBroken(error: unknown): error is HoldfastError {
  return (
    error instanceof HoldfastError && (error.code === 'connection_closed' || error.code === 'shutting_down')
  );
}
