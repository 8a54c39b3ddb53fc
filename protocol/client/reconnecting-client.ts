import { HoldfastError } from '../errors.ts';
import type { MethodName, Params, Result } from '../methods.ts';
import type { CallResult, CallOptions } from '../wire/shapes.ts';
import type { SupervisorPeer } from './connect.ts';
import { backoffMs, expectsSuccessor, mayStartSupervisor } from './reconnect-plan.ts';
import type { SupervisorExit } from './reconnect-plan.ts';

/** `auto`: start a supervisor where none runs. `never`: fail with `not_found`. */
export type StartMode = 'auto' | 'never';

export type ClientState =
  /** Nothing has needed the supervisor since the last connection ended. */
  | { readonly kind: 'unconnected' }
  | { readonly kind: 'connecting' }
  | { readonly kind: 'connected'; readonly peer: SupervisorPeer }
  /** There is no supervisor. Only a client that keeps connected tries again by itself. `since`: ms since 1970. */
  | { readonly kind: 'away'; readonly error: HoldfastError; readonly since: number };

export interface ReconnectingClientOptions {
  /** Connects and says hello. The connection is used once this has resolved. */
  readonly connect: (start: StartMode, signal: AbortSignal) => Promise<SupervisorPeer>;
  /** Whether a call may start a supervisor. A client that keeps connected decides by `mayStartSupervisor`. */
  readonly start?: StartMode;
  /** Called after each change of the state. Subscriptions of a lost connection are made again at `connected`. */
  readonly onState?: (state: ClientState) => void;
  /** A connection has ended. Called before the state changes. */
  readonly onLost?: (exit: SupervisorExit) => void;
  /** The supervisor was stopped deliberately, and a call waits for the next one. Called once until that one answers. */
  readonly onWaiting?: () => void;
}

export interface ClientCallOptions extends CallOptions {
  /**
   * For calls that only watch: when the supervisor was stopped deliberately or is being replaced by a newer one,
   * wait for the next one instead of starting it.
   */
  readonly waitForSupervisor?: boolean | undefined;
}

const ATTEMPTS = 4;
const READY_MS = 20_000;
/** How long to wait for another supervisor after one was stopped deliberately, and how often it is tried. */
const REPLACEMENT_TIMEOUT_MS = 30_000;
const RETRY_MS = 250;
/** How often the successor of a replaced supervisor is tried. */
const SUCCESSOR_POLL_MS = 100;
const MAX_EXITS = 10;

/**
 * A client of the supervisor that survives lost connections. It connects at the first call or, after `keepConnected`, at once and
 * whenever the connection breaks. When it breaks during a call that is safe to repeat (METHODS says which), the call is sent again
 * on the next connection.
 */
export class ReconnectingClient {
  readonly #options: ReconnectingClientOptions;
  readonly #closed = new AbortController();
  readonly #lost = new WeakSet<SupervisorPeer>();
  readonly #waiting = new Set<(state: ClientState) => void>();
  #state: ClientState = { kind: 'unconnected' };
  #opening: Promise<SupervisorPeer> | undefined;
  #exits: readonly SupervisorExit[] = [];
  #isKeptConnected = false;
  #startFailed = false;
  #isWaitReported = false;
  #wake: (() => void) | undefined;

  constructor(options: ReconnectingClientOptions) {
    this.#options = options;
  }

  get state(): ClientState {
    return this.#state;
  }

  /** Connects now, and again whenever the connection breaks, until `close`. */
  keepConnected(): void {
    if (this.#isKeptConnected || this.#closed.signal.aborted) return;
    this.#isKeptConnected = true;
    void this.#keepConnected();
  }

  /** For a person's command: tries again now, and may start a supervisor whatever failed before. */
  retry(): void {
    this.#exits = [];
    this.#startFailed = false;
    if (this.#state.kind === 'away') this.#set({ kind: 'connecting' });
    this.#wake?.();
  }

  /** The current connection. Connects if there is none. Errors: the reason why there is none. */
  async peer(
    options: {
      readonly waitForSupervisor?: boolean | undefined;
      readonly signal?: AbortSignal | undefined;
      readonly timeoutMs?: number | undefined;
    } = {},
  ): Promise<SupervisorPeer> {
    if (this.#closed.signal.aborted)
      throw new HoldfastError('connection_closed', 'The connection to the supervisor was closed');
    if (this.#isKeptConnected) return this.#untilConnected(options.timeoutMs ?? READY_MS);
    if (options.waitForSupervisor === true && this.#exits.at(-1)?.isIntended === true)
      return this.#waitForReplacement(options.signal);
    return this.#open(this.#options.start ?? 'auto');
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
        if (!isConnectionError(error) || this.#closed.signal.aborted || attempt === ATTEMPTS) throw error;
        // The supervisor answered with this error, about another connection: this one is in order.
        if (error.code === 'connection_closed' && !peer.isClosed) throw error;
        // Loaded already, because the connection needs it. A program that only prints its help does not load it.
        const { mayRepeat } = await import('./repeat.ts');
        if (!mayRepeat(method, params)) throw error;
        if (error.code === 'shutting_down') this.#recordExit(peer, true);
        // A supervisor that shuts down refuses calls before it closes the connection. Others may still wait for answers on one
        // that is kept.
        if (!this.#isKeptConnected) peer.close();
        await peer.closed;
      }
    }
  }

  close(): void {
    if (this.#closed.signal.aborted) return;
    this.#closed.abort();
    this.#wake?.();
    const opening = this.#opening;
    this.#opening = undefined;
    // The caller that connects sees its failure.
    opening?.then(
      (peer) => peer.close(),
      () => undefined,
    );
    const error = new HoldfastError('connection_closed', 'The connection to the supervisor was closed');
    for (const listener of [...this.#waiting]) listener({ kind: 'away', error, since: Date.now() });
  }

  /** The connection that is open or being opened, or a new one. */
  #open(start: StartMode): Promise<SupervisorPeer> {
    if (this.#opening !== undefined) return this.#opening;
    const opening = this.#connect(start);
    this.#opening = opening;
    const forget = (): void => {
      if (this.#opening === opening) this.#opening = undefined;
    };
    opening.then((peer) => void peer.closed.then(forget), forget);
    return opening;
  }

  async #connect(start: StartMode): Promise<SupervisorPeer> {
    if (this.#state.kind === 'unconnected') this.#set({ kind: 'connecting' });
    let peer: SupervisorPeer;
    try {
      peer = await this.#options.connect(start, this.#closed.signal);
    } catch (cause) {
      if (!this.#isKeptConnected) this.#setAway(cause);
      throw cause;
    }
    this.#isWaitReported = false;
    void peer.closed.then((reason) => {
      this.#recordExit(peer, reason?.code === 'shutting_down');
      this.#set({ kind: this.#isKeptConnected ? 'connecting' : 'unconnected' });
    });
    this.#set({ kind: 'connected', peer });
    return peer;
  }

  async #keepConnected(): Promise<void> {
    const { signal } = this.#closed;
    for (let failures = 0; !signal.aborted;) {
      const start = mayStartSupervisor(this.#exits, this.#startFailed, Date.now()) ? 'auto' : 'never';
      try {
        const peer = await this.#open(start);
        failures = 0;
        await peer.closed;
      } catch (cause) {
        if (expectsSuccessor(this.#exits, Date.now())) {
          await this.#pause(SUCCESSOR_POLL_MS);
          continue;
        }
        if (start === 'auto') this.#startFailed = true;
        this.#setAway(cause);
        await this.#pause(backoffMs(failures));
        failures += 1;
      }
    }
  }

  #untilConnected(timeoutMs: number): Promise<SupervisorPeer> {
    if (this.#state.kind === 'connected') return Promise.resolve(this.#state.peer);
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(onState);
      };
      const timer = setTimeout(() => {
        settle();
        reject(new HoldfastError('timeout', 'The supervisor does not answer', { next: 'see its log' }));
      }, timeoutMs);
      const onState = (state: ClientState): void => {
        if (state.kind === 'away') {
          settle();
          reject(state.error);
        } else if (state.kind === 'connected') {
          settle();
          resolve(state.peer);
        }
      };
      this.#waiting.add(onState);
      onState(this.#state);
    });
  }

  async #waitForReplacement(signal: AbortSignal | undefined): Promise<SupervisorPeer> {
    const until = Date.now() + REPLACEMENT_TIMEOUT_MS;
    for (;;) {
      try {
        return await this.#open('never');
      } catch (cause) {
        if (Date.now() > until || signal?.aborted === true || this.#closed.signal.aborted) {
          const why = 'no other supervisor has started';
          throw new HoldfastError('connection_closed', 'The supervisor was stopped', { why, cause });
        }
        if (!this.#isWaitReported) this.#options.onWaiting?.();
        this.#isWaitReported = true;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  /** A call may see a shutdown before the connection ends: the first report counts. */
  #recordExit(peer: SupervisorPeer, isIntended: boolean): void {
    if (this.#lost.has(peer)) return;
    this.#lost.add(peer);
    const exit = { at: Date.now(), isIntended };
    this.#exits = [...this.#exits, exit].slice(-MAX_EXITS);
    if (!this.#closed.signal.aborted) this.#options.onLost?.(exit);
  }

  #setAway(cause: unknown): void {
    const error = HoldfastError.from(cause, 'The supervisor could not be reached');
    const before = this.#state;
    if (before.kind === 'away' && before.error.sentence === error.sentence) return;
    this.#set({ kind: 'away', error, since: before.kind === 'away' ? before.since : Date.now() });
  }

  #set(state: ClientState): void {
    if (this.#closed.signal.aborted) return;
    this.#state = state;
    this.#options.onState?.(state);
    for (const listener of [...this.#waiting]) listener(state);
  }

  /** Waits; `retry` and `close` end the wait early. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#wake = done;
    });
  }
}

export function isConnectionError(error: unknown): error is HoldfastError {
  return (
    error instanceof HoldfastError && (error.code === 'connection_closed' || error.code === 'shutting_down')
  );
}
