import { setImmediate as immediately } from 'node:timers/promises';
import { EventEmitter } from 'vscode';
import type { Disposable, Event, LogOutputChannel } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ClientInfo, MethodName, Params, Result } from '../../protocol/methods.ts';
import { compareBuilds } from '../../protocol/client/builds.ts';
import { connectSupervisor } from '../../protocol/client/connect.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import type { CallResult, CallOptions } from '../../protocol/wire/shapes.ts';
import type { SupervisorProgram } from './supervisor-program.ts';
import { backoffMs, mayStartSupervisor, connectedState } from './state.ts';
import type { ConnectionState, SupervisorExit } from './state.ts';

/** How often the engine is asked for while nothing else would tell. */
const ENGINE_POLL_MS = 5_000;
const READY_MS = 20_000;
const MOST_DEPARTURES = 10;
const NEXT_ONE_MS = 3_000;
const NEXT_ONE_POLL_MS = 100;

export interface ConnectionOptions {
  readonly home: string;
  readonly client: ClientInfo;
  readonly program: () => Promise<SupervisorProgram>;
  readonly log: LogOutputChannel;
}

export interface ConnectionCallOptions extends CallOptions {
  /** It changes nothing, or nothing more when it happens twice: asked again where the connection broke. */
  readonly repeatable?: boolean;
}

/** The window's hold on the supervisor: found or started at first use, and found again whenever it is lost. */
export class Connection implements Disposable {
  readonly #options: ConnectionOptions;
  readonly #changed = new EventEmitter<ConnectionState>();
  readonly #arrived = new EventEmitter<SupervisorPeer>();
  readonly #ending = new AbortController();
  #state: ConnectionState = { kind: 'unused' };
  #departures: SupervisorExit[] = [];
  #startFailed = false;
  #wake: (() => void) | undefined;
  #poll: NodeJS.Timeout | undefined;

  constructor(options: ConnectionOptions) {
    this.#options = options;
  }

  readonly onDidChange: Event<ConnectionState> = this.#changed.event;
  /** A connection has been made, the first one or a later one: subscribe to what you follow. */
  readonly onDidConnect: Event<SupervisorPeer> = this.#arrived.event;

  get state(): ConnectionState {
    return this.#state;
  }

  /** The peer of now, if there is one. */
  get peer(): SupervisorPeer | undefined {
    return this.#state.kind === 'connected' || this.#state.kind === 'engineDown'
      ? this.#state.peer
      : undefined;
  }

  /** Somebody needs the supervisor: looks for it, without starting one against anybody's will. */
  ensureConnecting(): void {
    if (this.#state.kind !== 'unused' || this.#ending.signal.aborted) return;
    this.#set({ kind: 'connecting' });
    void this.#keep();
  }

  /** A person asked for it: whatever went wrong before, try again now, and start one where none runs. */
  retry(): void {
    this.#departures = [];
    this.#startFailed = false;
    if (this.#state.kind === 'unused') this.ensureConnecting();
    if (this.#state.kind === 'noSupervisor') this.#set({ kind: 'connecting' });
    this.#wake?.();
  }

  /** The connection, as soon as there is one. Errors: why there is none; `timeout`. */
  async ready(timeoutMs = READY_MS): Promise<SupervisorPeer> {
    this.ensureConnecting();
    const { peer } = this;
    if (peer !== undefined) return peer;
    return new Promise<SupervisorPeer>((resolve, reject) => {
      const settle = (): void => {
        clearTimeout(timer);
        listener.dispose();
      };
      const timer = setTimeout(() => {
        settle();
        reject(
          new HoldfastError('timeout', 'The supervisor does not answer', {
            next: 'see the log (Agent: Show Log)',
          }),
        );
      }, timeoutMs);
      const look = (state: ConnectionState): void => {
        if (state.kind === 'noSupervisor') {
          settle();
          reject(state.error);
        } else if (state.kind === 'connected' || state.kind === 'engineDown') {
          settle();
          resolve(state.peer);
        }
      };
      const listener = this.onDidChange(look);
      look(this.#state);
    });
  }

  async call<M extends MethodName>(
    method: M,
    params: Params<M>,
    options: ConnectionCallOptions = {},
  ): Promise<Result<M>> {
    return (await this.callWithBytes(method, params, options)).result;
  }

  async callWithBytes<M extends MethodName>(
    method: M,
    params: Params<M>,
    options: ConnectionCallOptions = {},
  ): Promise<CallResult<Result<M>>> {
    const { repeatable = 'opId' in params && params.opId !== undefined, ...callOptions } = options;
    const peer = await this.ready();
    try {
      return await peer.callWithBytes(method, params, callOptions);
    } catch (error) {
      if (isEngine(error)) void this.#lookAtEngine();
      if (!repeatable || !isBroken(error)) throw error;
      // Whoever leaves closes the connection itself; a second call on it would only fail the same way.
      await peer.closed;
      return (await this.ready()).callWithBytes(method, params, callOptions);
    }
  }

  /** Asks now whether the engine is there, instead of at the next look. */
  async checkEngine(): Promise<void> {
    await this.#lookAtEngine();
  }

  dispose(): void {
    this.#ending.abort();
    clearTimeout(this.#poll);
    this.peer?.close();
    this.#wake?.();
    this.#changed.dispose();
    this.#arrived.dispose();
  }

  async #keep(): Promise<void> {
    const { log } = this.#options;
    // What speaks with the supervisor is loaded now: whoever asked first, most often VS Code's start of the extension, comes to its end before.
    await immediately();
    for (let failures = 0; !this.#ending.signal.aborted;) {
      const start = mayStartSupervisor(this.#departures, this.#startFailed, Date.now()) ? 'auto' : 'never';
      try {
        const peer = await this.#connect(start);
        failures = 0;
        const reason = await peer.closed;
        clearTimeout(this.#poll);
        const onPurpose = reason?.code === 'shutting_down';
        log.info(`The supervisor has left${onPurpose ? ' as it was told to' : ''}`);
        this.#departures = [...this.#departures, { at: Date.now(), onPurpose }].slice(-MOST_DEPARTURES);
        this.#set({ kind: 'connecting' });
      } catch (cause) {
        const error = HoldfastError.from(cause, 'The supervisor could not be reached');
        if (this.#awaitsNextOne()) {
          await this.#pause(NEXT_ONE_POLL_MS);
          continue;
        }
        if (start === 'auto') this.#startFailed = true;
        this.#fail(error, failures);
        await this.#pause(backoffMs(failures));
        failures += 1;
      }
    }
  }

  async #connect(start: 'auto' | 'never'): Promise<SupervisorPeer> {
    const { home, client, log } = this.#options;
    const { signal } = this.#ending;
    const began = Date.now();
    // What is there is taken first: to look for a Node that could start one takes longer than to connect.
    const found = await connectSupervisor({ home, program: client, start: 'never', signal }).catch(
      (error: unknown) => {
        if (start === 'auto' && mayBeStarted(error)) return undefined;
        throw error;
      },
    );
    const tooOld =
      found !== undefined && start === 'auto' && compareBuilds(found.hello.supervisor, client) < 0;
    if (tooOld) found.close();
    const { peer, hello } = found === undefined || tooOld ? await this.#start(signal) : found;
    log.info(
      `Connected with supervisor ${hello.supervisor.version} (build ${hello.supervisor.build}, pid ${hello.supervisor.pid}) of ${hello.home} in ${Date.now() - began} ms`,
    );
    try {
      const { engine } = await peer.call('supervisor/status', {}, { timeoutMs: READY_MS, signal });
      this.#set(connectedState(peer, engine));
    } catch (error) {
      peer.close();
      throw error;
    }
    this.#arrived.fire(peer);
    this.#pollLater();
    return peer;
  }

  async #start(signal: AbortSignal): ReturnType<typeof connectSupervisor> {
    const { home, client, log } = this.#options;
    const { command, environment, node } = await this.#options.program();
    log.info(`Starting a supervisor with ${node}: ${command.join(' ')}`);
    return connectSupervisor({ home, program: client, start: 'auto', command, environment, signal });
  }

  /** One that made room for a newer one is followed by it in a moment. */
  #awaitsNextOne(): boolean {
    const last = this.#departures.at(-1);
    return last?.onPurpose === true && Date.now() - last.at < NEXT_ONE_MS;
  }

  #fail(error: HoldfastError, failures: number): void {
    if (this.#ending.signal.aborted) return;
    // Said once, not at every try.
    if (failures === 0) this.#options.log.error(`${error.code}: ${error.sentence}`);
    if (this.#state.kind === 'noSupervisor' && this.#state.error.sentence === error.sentence) return;
    this.#set({ kind: 'noSupervisor', error });
  }

  #pollLater(): void {
    clearTimeout(this.#poll);
    if (this.#ending.signal.aborted) return;
    this.#poll = setTimeout(() => void this.#lookAtEngine(), ENGINE_POLL_MS);
  }

  async #lookAtEngine(): Promise<void> {
    const { peer } = this;
    if (peer === undefined) return;
    try {
      const { engine } = await peer.call('supervisor/status', {}, { timeoutMs: READY_MS });
      const changed = this.#state.kind !== connectedState(peer, engine).kind;
      if (this.peer === peer && changed) {
        this.#options.log.info(
          engine.reachable ? 'The engine answers again' : `The engine does not answer: ${engine.why ?? ''}`,
        );
        this.#set(connectedState(peer, engine));
      }
    } catch (error) {
      // The end of the connection is noticed by whoever keeps it.
      if (!isBroken(error)) this.#options.log.warn(`status: ${HoldfastError.from(error).sentence}`);
    }
    if (this.peer === peer) this.#pollLater();
  }

  #set(state: ConnectionState): void {
    if (this.#ending.signal.aborted) return;
    this.#state = state;
    this.#changed.fire(state);
  }

  /** Returns early when somebody asks for another try. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(done, ms);
      const wake = (): void => done();
      function done(): void {
        clearTimeout(timer);
        resolve();
      }
      this.#wake = wake;
    });
  }
}

/** None runs there; or the one that runs is older than we are, which `auto` replaces. */
function mayBeStarted(error: unknown): boolean {
  return error instanceof HoldfastError && ['not_found', 'version_mismatch'].includes(error.code);
}

function isBroken(error: unknown): boolean {
  return error instanceof HoldfastError && ['connection_closed', 'shutting_down'].includes(error.code);
}

function isEngine(error: unknown): boolean {
  return error instanceof HoldfastError && ['engine_unavailable', 'engine_error'].includes(error.code);
}
