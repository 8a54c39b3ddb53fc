import { readFileSync } from 'node:fs';
import { setImmediate as immediately } from 'node:timers/promises';
import { EventEmitter } from 'vscode';
import type { Disposable, Event, LogOutputChannel } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import { homePaths } from '../../protocol/home.ts';
import type { ClientInfo, MethodName, Params, Result } from '../../protocol/methods.ts';
import { compareBuilds } from '../../protocol/client/builds.ts';
import { connectSupervisor } from '../../protocol/client/connect.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import { mayRepeat } from '../../protocol/client/repeat.ts';
import type { CallResult, CallOptions } from '../../protocol/wire/shapes.ts';
import type { SupervisorProgram } from './supervisor-program.ts';
import { backoffMs, mayStartSupervisor, connectedState } from './state.ts';
import type { ConnectionState, SupervisorExit } from './state.ts';

/** How often the state of the engine is polled. */
const ENGINE_POLL_MS = 5_000;
const READY_MS = 20_000;
const MAX_EXITS = 10;
/** As `HomeIdSchema`, which is in the second bundle. */
const HOME_ID = /^[a-z2-7]{26}$/;
/** How long a replaced supervisor's successor may take to answer, and how often it is tried. */
const SUCCESSOR_MS = 3_000;
const SUCCESSOR_POLL_MS = 100;

export interface ConnectionOptions {
  readonly home: string;
  readonly client: ClientInfo;
  readonly program: () => Promise<SupervisorProgram>;
  readonly log: LogOutputChannel;
}

/**
 * The window's connection to the supervisor: made at first use, which may start a supervisor, and re-established when
 * it breaks.
 */
export class Connection implements Disposable {
  readonly #options: ConnectionOptions;
  readonly #changed = new EventEmitter<ConnectionState>();
  readonly #connected = new EventEmitter<SupervisorPeer>();
  readonly #disposed = new AbortController();
  #state: ConnectionState = { kind: 'unused' };
  #homeId: string | undefined;
  #exits: SupervisorExit[] = [];
  #startFailed = false;
  #wake: (() => void) | undefined;
  #poll: NodeJS.Timeout | undefined;

  constructor(options: ConnectionOptions) {
    this.#options = options;
  }

  readonly onDidChange: Event<ConnectionState> = this.#changed.event;
  /** Fires after every connect and reconnect. Subscriptions must be made again then. */
  readonly onDidConnect: Event<SupervisorPeer> = this.#connected.event;

  get state(): ConnectionState {
    return this.#state;
  }

  /**
   * The id of the home, which links name. It is known before there is a connection, because the home is on this machine.
   * Undefined: nothing has created the home yet.
   */
  get homeId(): string | undefined {
    this.#homeId ??= readHomeId(this.#options.home);
    return this.#homeId;
  }

  /** The current peer, if there is a connection. */
  get peer(): SupervisorPeer | undefined {
    return this.#state.kind === 'connected' || this.#state.kind === 'engineDown'
      ? this.#state.peer
      : undefined;
  }

  /** Starts to connect, if that has not happened yet. */
  ensureConnecting(): void {
    if (this.#state.kind !== 'unused' || this.#disposed.signal.aborted) return;
    this.#set({ kind: 'connecting' });
    void this.#keepConnected();
  }

  /** For a person's command: tries again now, and may start a supervisor whatever failed before. */
  retry(): void {
    this.#exits = [];
    this.#startFailed = false;
    if (this.#state.kind === 'unused') this.ensureConnecting();
    if (this.#state.kind === 'noSupervisor') this.#set({ kind: 'connecting' });
    this.#wake?.();
  }

  /** Resolves with the peer as soon as there is a connection. Errors: the reason why there is none; `timeout`. */
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
      const onState = (state: ConnectionState): void => {
        if (state.kind === 'noSupervisor') {
          settle();
          reject(state.error);
        } else if (state.kind === 'connected' || state.kind === 'engineDown') {
          settle();
          resolve(state.peer);
        }
      };
      const listener = this.onDidChange(onState);
      onState(this.#state);
    });
  }

  /** The home of the supervisor on this machine. */
  get home(): string {
    return this.#options.home;
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
  ): Promise<CallResult<Result<M>>> {
    const peer = await this.ready();
    try {
      return await peer.callWithBytes(method, params, options);
    } catch (error) {
      if (isEngineError(error)) void this.#pollEngine();
      if (!isConnectionError(error) || !mayRepeat(method, params)) throw error;
      // A supervisor that shuts down refuses calls before it closes the connection.
      await peer.closed;
      return (await this.ready()).callWithBytes(method, params, options);
    }
  }

  /** Checks the engine now, instead of at the next poll. */
  async checkEngine(): Promise<void> {
    await this.#pollEngine();
  }

  dispose(): void {
    this.#disposed.abort();
    clearTimeout(this.#poll);
    this.peer?.close();
    this.#wake?.();
    this.#changed.dispose();
    this.#connected.dispose();
  }

  async #keepConnected(): Promise<void> {
    const { log } = this.#options;
    // Connecting loads the second bundle. The caller, most often the activation of the extension, returns before that.
    await immediately();
    for (let failures = 0; !this.#disposed.signal.aborted;) {
      const start = mayStartSupervisor(this.#exits, this.#startFailed, Date.now()) ? 'auto' : 'never';
      try {
        const peer = await this.#connect(start);
        failures = 0;
        const reason = await peer.closed;
        clearTimeout(this.#poll);
        const isIntended = reason?.code === 'shutting_down';
        log.info(isIntended ? 'The supervisor was stopped' : 'The connection to the supervisor broke');
        this.#exits = [...this.#exits, { at: Date.now(), isIntended }].slice(-MAX_EXITS);
        this.#set({ kind: 'connecting' });
      } catch (cause) {
        const error = HoldfastError.from(cause, 'The supervisor could not be reached');
        if (this.#expectsSuccessor()) {
          await this.#pause(SUCCESSOR_POLL_MS);
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
    const { signal } = this.#disposed;
    const startedAt = Date.now();
    // Tries to connect first, because finding a Node that could start a supervisor takes longer.
    const found = await connectSupervisor({ home, program: client, start: 'never', signal }).catch(
      (error: unknown) => {
        if (start === 'auto' && needsStart(error)) return undefined;
        throw error;
      },
    );
    const tooOld =
      found !== undefined && start === 'auto' && compareBuilds(found.hello.supervisor, client) < 0;
    if (tooOld) found.close();
    const { peer, hello } = found === undefined || tooOld ? await this.#start(signal) : found;
    log.info(
      `Connected to supervisor ${hello.supervisor.version} (build ${hello.supervisor.build}, ` +
        `pid ${hello.supervisor.pid}) of ${hello.home} in ${Date.now() - startedAt} ms`,
    );
    this.#homeId = hello.homeId;
    try {
      const { engine } = await peer.call('supervisor/status', {}, { timeoutMs: READY_MS, signal });
      this.#set(connectedState(peer, engine));
    } catch (error) {
      peer.close();
      throw error;
    }
    this.#connected.fire(peer);
    this.#scheduleEnginePoll();
    return peer;
  }

  async #start(signal: AbortSignal): ReturnType<typeof connectSupervisor> {
    const { home, client, log } = this.#options;
    const { command, environment, node } = await this.#options.program();
    log.info(`Starting a supervisor with ${node}: ${command.join(' ')}`);
    return connectSupervisor({ home, program: client, start: 'auto', command, environment, signal });
  }

  /** A supervisor that a newer one replaces is followed by that one at once. */
  #expectsSuccessor(): boolean {
    const last = this.#exits.at(-1);
    return last?.isIntended === true && Date.now() - last.at < SUCCESSOR_MS;
  }

  #fail(error: HoldfastError, failures: number): void {
    if (this.#disposed.signal.aborted) return;
    // Logged once, not at every attempt.
    if (failures === 0) this.#options.log.error(`${error.code}: ${error.sentence}`);
    if (this.#state.kind === 'noSupervisor' && this.#state.error.sentence === error.sentence) return;
    this.#set({ kind: 'noSupervisor', error });
  }

  #scheduleEnginePoll(): void {
    clearTimeout(this.#poll);
    if (this.#disposed.signal.aborted) return;
    this.#poll = setTimeout(() => void this.#pollEngine(), ENGINE_POLL_MS);
  }

  async #pollEngine(): Promise<void> {
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
      // `#keepConnected` handles a broken connection.
      if (!isConnectionError(error)) this.#options.log.warn(`status: ${HoldfastError.from(error).sentence}`);
    }
    if (this.peer === peer) this.#scheduleEnginePoll();
  }

  #set(state: ConnectionState): void {
    if (this.#disposed.signal.aborted) return;
    this.#state = state;
    this.#changed.fire(state);
  }

  /** Waits; `retry` ends the wait early. */
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

/** Undefined where the home or its id cannot be read: the supervisor then says why, or creates it. */
function readHomeId(home: string): string | undefined {
  try {
    return HOME_ID.exec(readFileSync(homePaths(home).id, 'utf8').trim())?.[0];
  } catch {
    return undefined;
  }
}

/** Whether starting a supervisor would help: none runs, or the running one is older than this client. */
function needsStart(error: unknown): boolean {
  return error instanceof HoldfastError && ['not_found', 'version_mismatch'].includes(error.code);
}

function isConnectionError(error: unknown): boolean {
  return error instanceof HoldfastError && ['connection_closed', 'shutting_down'].includes(error.code);
}

function isEngineError(error: unknown): boolean {
  return error instanceof HoldfastError && ['engine_unavailable', 'engine_error'].includes(error.code);
}
