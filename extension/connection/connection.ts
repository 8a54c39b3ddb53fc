import { readFileSync } from 'node:fs';
import { setImmediate as immediately } from 'node:timers/promises';
import { EventEmitter } from 'vscode';
import type { Disposable, Event, LogOutputChannel } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import { homePaths } from '../../protocol/home.ts';
import type { EngineStatus } from '../../protocol/entities.ts';
import type { ClientInfo, MethodName, Params, Result } from '../../protocol/methods.ts';
import { compareBuilds } from '../../protocol/client/builds.ts';
import { connectSupervisor } from '../../protocol/client/connect.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import { ReconnectingClient, isConnectionError } from '../../protocol/client/reconnecting-client.ts';
import type { ClientState } from '../../protocol/client/reconnecting-client.ts';
import type { CallResult, CallOptions } from '../../protocol/wire/shapes.ts';
import type { SupervisorProgram } from './supervisor-program.ts';
import { connectedState } from './state.ts';
import type { ConnectionState } from './state.ts';

const READY_MS = 20_000;
/** As `HomeIdSchema`, which is in the second bundle. */
const HOME_ID = /^[a-z2-7]{26}$/;

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
  #client: Promise<ReconnectingClient> | undefined;
  /** What the supervisor of the newest connection said of its engine. */
  #engine: EngineStatus | undefined;

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
    void this.#load();
  }

  /** For a person's command: tries again now, and may start a supervisor whatever failed before. */
  retry(): void {
    if (this.#state.kind === 'noSupervisor') this.#set({ kind: 'connecting' });
    void this.#load().then((client) => client.retry());
  }

  /** Resolves with the peer as soon as there is a connection. Errors: the reason why there is none; `timeout`. */
  async ready(): Promise<SupervisorPeer> {
    return this.peer ?? (await this.#load()).peer();
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
    const client = await this.#load();
    try {
      return await client.callWithBytes(method, params, options);
    } catch (error) {
      if (isEngineError(error)) void this.checkEngine();
      throw error;
    }
  }

  /** Asks the supervisor for the state of its engine, which it also reports by itself. */
  async checkEngine(): Promise<void> {
    const { peer } = this;
    if (peer === undefined) return;
    try {
      const { engine } = await peer.call('supervisor/status', {}, { timeoutMs: READY_MS });
      this.reportEngine(peer, engine);
    } catch (error) {
      // The client handles a broken connection.
      if (!isConnectionError(error)) this.#options.log.warn(`status: ${HoldfastError.from(error).sentence}`);
    }
  }

  /** The supervisor at the other end of `peer` reported the state of its engine. */
  reportEngine(peer: SupervisorPeer, engine: EngineStatus): void {
    if (this.peer !== peer || this.#state.kind === connectedState(peer, engine).kind) return;
    this.#options.log.info(
      engine.reachable ? 'The engine answers again' : `The engine does not answer: ${engine.why ?? ''}`,
    );
    this.#set(connectedState(peer, engine));
  }

  dispose(): void {
    this.#disposed.abort();
    void this.#client?.then((client) => client.close());
    this.#changed.dispose();
    this.#connected.dispose();
  }

  #load(): Promise<ReconnectingClient> {
    if (this.#client === undefined) {
      // First, because whoever hears of the new state may call.
      this.#client = this.#createClient();
      this.#set({ kind: 'connecting' });
    }
    return this.#client;
  }

  async #createClient(): Promise<ReconnectingClient> {
    // The client is in the second bundle. The caller, most often the activation of the extension, returns before that is loaded.
    await immediately();
    const client = new ReconnectingClient({
      connect: (start) => this.#connect(start),
      onState: (state) => this.#follow(state),
      onLost: ({ isIntended }) => {
        const { log } = this.#options;
        log.info(isIntended ? 'The supervisor was stopped' : 'The connection to the supervisor broke');
      },
    });
    if (this.#disposed.signal.aborted) client.close();
    else client.keepConnected();
    return client;
  }

  #follow(state: ClientState): void {
    switch (state.kind) {
      case 'unconnected':
      case 'connecting':
        if (this.#state.kind !== 'connecting') this.#set({ kind: 'connecting' });
        break;
      case 'connected':
        if (this.#engine === undefined) break;
        this.#set(connectedState(state.peer, this.#engine));
        this.#connected.fire(state.peer);
        break;
      case 'away':
        // Logged once, not at every attempt.
        if (this.#state.kind !== 'noSupervisor')
          this.#options.log.error(`${state.error.code}: ${state.error.sentence}`);
        this.#set({ kind: 'noSupervisor', error: state.error });
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
      this.#engine = engine;
      return peer;
    } catch (error) {
      peer.close();
      throw error;
    }
  }

  async #start(signal: AbortSignal): ReturnType<typeof connectSupervisor> {
    const { home, client, log } = this.#options;
    const { command, environment, node } = await this.#options.program();
    log.info(`Starting a supervisor with ${node}: ${command.join(' ')}`);
    return connectSupervisor({ home, program: client, start: 'auto', command, environment, signal });
  }

  #set(state: ConnectionState): void {
    if (this.#disposed.signal.aborted) return;
    this.#state = state;
    this.#changed.fire(state);
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

function isEngineError(error: unknown): boolean {
  return error instanceof HoldfastError && ['engine_unavailable', 'engine_error'].includes(error.code);
}
