import { HoldfastError } from '../protocol/errors.ts';
import type { MethodName, Params, Result } from '../protocol/methods.ts';
import type { SupervisorPeer } from '../protocol/client/connect.ts';
import type { CallResult, CallOptions } from '../protocol/wire/shapes.ts';

/** `auto`: start a supervisor where none runs. `never`: fail with `not_found`. */
export type StartMode = 'auto' | 'never';

export type Dial = (start: StartMode) => Promise<SupervisorPeer>;

/** Asking these twice is like asking once. What changes something else is repeated only where it carries an opId. */
const REPEATABLE: ReadonlySet<MethodName> = new Set<MethodName>([
  'ping',
  'supervisor/status',
  'supervisor/doctor',
  'profile/list',
  'session/list',
  'session/show',
  'session/pause',
  'session/stop',
  'session/resume',
  'session/update',
  'session/events',
  'session/verify',
  'turn/show',
  'turn/list',
  'turn/wait',
  'turn/cancel',
  'turn/output',
  'terminal/list',
  'terminal/attach',
  'terminal/read',
  'terminal/resize',
  'workspace/info',
  'workspace/wait',
  'files/stat',
  'files/list',
  'files/read',
  'files/find',
  'files/usage',
]);
const ATTEMPTS = 4;
/** How long a supervisor that left on purpose may take to be followed by another. */
const NEXT_ONE_MS = 30_000;
const RETRY_MS = 250;

export interface ClientCallOptions extends CallOptions {
  /**
   * For watching what goes on by itself: when the supervisor leaves on purpose (it was stopped, or makes room for a newer one), wait
   * for the next one instead of starting it against somebody's will.
   */
  readonly waitForSupervisor?: boolean | undefined;
}

/**
 * The command line's hold on the supervisor: connects at the first call, and again when the connection breaks in the
 * middle of something that may be asked again (it changes nothing, or carries an opId).
 */
export class ReconnectingClient {
  readonly #dial: Dial;
  readonly #start: StartMode;
  readonly #onAway: () => void;
  #peer: Promise<SupervisorPeer> | undefined;
  #leftOnPurpose = false;
  #saidAway = false;
  #closed = false;

  /** `onAway` is called when a supervisor has left on purpose and the next one is waited for. */
  constructor(dial: Dial, start: StartMode, onAway: () => void) {
    this.#dial = dial;
    this.#start = start;
    this.#onAway = onAway;
  }

  /** The connection of now; dials where there is none. */
  async peer(
    options: {
      readonly waitForSupervisor?: boolean | undefined;
      readonly signal?: AbortSignal | undefined;
    } = {},
  ): Promise<SupervisorPeer> {
    if (this.#closed)
      throw new HoldfastError('connection_closed', 'The command has let go of the supervisor');
    if (options.waitForSupervisor === true && this.#leftOnPurpose) {
      return this.#nextOne(options.signal);
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
        if (!isBroken(error) || this.#closed || !mayRepeat(method, params) || attempt === ATTEMPTS)
          throw error;
        if (error.code === 'shutting_down') this.#leftOnPurpose = true;
        peer.close();
        // What is dialled next must not be this one.
        await peer.closed;
      }
    }
  }

  close(): void {
    this.#closed = true;
    const peer = this.#peer;
    this.#peer = undefined;
    // A dial that is still under way or has failed was reported to whoever asked for it.
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
      this.#leftOnPurpose = false;
      this.#saidAway = false;
      void peer.closed.then((reason) => {
        if (reason?.code === 'shutting_down') this.#leftOnPurpose = true;
        forget();
      });
    }, forget);
    return opening;
  }

  async #nextOne(signal: AbortSignal | undefined): Promise<SupervisorPeer> {
    const until = Date.now() + NEXT_ONE_MS;
    for (;;) {
      this.#peer ??= this.#open('never');
      try {
        return await this.#peer;
      } catch (cause) {
        if (Date.now() > until || signal?.aborted === true || this.#closed) {
          const why = 'no other took its place';
          throw new HoldfastError('connection_closed', 'The supervisor was stopped', { why, cause });
        }
        if (!this.#saidAway) this.#onAway();
        this.#saidAway = true;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }
}

function mayRepeat(method: MethodName, params: object): boolean {
  return REPEATABLE.has(method) || ('opId' in params && params.opId !== undefined);
}

function isBroken(error: unknown): error is HoldfastError {
  return (
    error instanceof HoldfastError && (error.code === 'connection_closed' || error.code === 'shutting_down')
  );
}
