import { HoldfastError } from '../../protocol/errors.ts';
import type { MethodName, Params, Result } from '../../protocol/methods.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import type { CallOptions } from '../../protocol/wire/shapes.ts';

/** `auto`: start a supervisor where none runs. `never`: fail with `not_found`. */
export type StartMode = 'auto' | 'never';

export type Dial = (start: StartMode) => Promise<SupervisorPeer>;

/** Asking these twice would do something twice, or belongs to one connection: they are never repeated by themselves. */
const ONCE: ReadonlySet<MethodName> = new Set<MethodName>([
  'exec/start',
  'exec/input',
  'exec/resize',
  'exec/kill',
  'session/subscribe',
  'session/unsubscribe',
  'supervisor/stop',
  'supervisor/handover',
  'purge',
]);
const ATTEMPTS = 4;
/** How long a supervisor that said it is leaving may take to be replaced by the one it makes room for. */
const REPLACEMENT_MS = 10_000;
const RETRY_MS = 250;

/**
 * The command line's hold on the supervisor: connects at the first call, and again when the connection breaks in the
 * middle of something that may be asked again (it changes nothing, or carries an opId).
 */
export class Link {
  readonly #dial: Dial;
  readonly #start: StartMode;
  #peer: Promise<SupervisorPeer> | undefined;
  #closed = false;

  constructor(dial: Dial, start: StartMode) {
    this.#dial = dial;
    this.#start = start;
  }

  /** The connection of now; dials where there is none. */
  async peer(): Promise<SupervisorPeer> {
    if (this.#closed)
      throw new HoldfastError('connection_closed', 'The command has let go of the supervisor');
    this.#peer ??= this.#open(this.#start);
    return this.#peer;
  }

  async call<M extends MethodName>(
    method: M,
    params: Params<M>,
    options: CallOptions = {},
  ): Promise<Result<M>> {
    return (await this.callWithBytes(method, params, options)).result;
  }

  async callWithBytes<M extends MethodName>(
    method: M,
    params: Params<M>,
    options: CallOptions = {},
  ): Promise<{ result: Result<M>; bytes: Buffer }> {
    for (let attempt = 1; ; attempt += 1) {
      const peer = await this.peer();
      try {
        return await peer.callWithBytes(method, params, options);
      } catch (error) {
        if (!isBroken(error) || this.#closed || ONCE.has(method) || attempt === ATTEMPTS) throw error;
        await this.#reopen(peer, error, options.signal);
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
    opening.then((peer) => void peer.closed.then(forget), forget);
    return opening;
  }

  /** A supervisor that left on purpose is waited for, not started again: somebody stopped it, or a newer one comes. */
  async #reopen(
    broken: SupervisorPeer,
    error: HoldfastError,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    broken.close();
    if (error.code !== 'shutting_down' && !causedByShutdown(error)) {
      this.#peer = this.#open(this.#start);
      await this.#peer;
      return;
    }
    const until = Date.now() + REPLACEMENT_MS;
    for (;;) {
      this.#peer = this.#open('never');
      try {
        await this.#peer;
        return;
      } catch (failure) {
        if (Date.now() > until || signal?.aborted === true) {
          throw new HoldfastError('connection_closed', 'The supervisor was stopped', {
            why: 'no other took its place',
            next: 'what it ran goes on and is taken up again with the next `holdfast supervisor start`',
            cause: failure,
          });
        }
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

function causedByShutdown(error: HoldfastError): boolean {
  return (
    error.cause instanceof HoldfastError &&
    (error.cause.code === 'shutting_down' || causedByShutdown(error.cause))
  );
}
