import { setImmediate as immediately } from 'node:timers/promises';
import { EventEmitter } from 'vscode';
import type { Disposable, Event, LogOutputChannel } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { EngineStatus } from '../../protocol/entities.ts';
import type { MethodName, Params, Result } from '../../protocol/methods.ts';
import type { SupervisorConnection, SupervisorPeer } from '../../protocol/client/connect.ts';
import { ReconnectingClient, isConnectionError } from '../../protocol/client/reconnecting-client.ts';
import type { ClientState, StartMode } from '../../protocol/client/reconnecting-client.ts';
import type { CallResult, CallOptions } from '../../protocol/wire/shapes.ts';
import { LOCAL } from './host-name.ts';
import { connectedState } from './state.ts';
import type { ConnectionState } from './state.ts';

const READY_MS = 20_000;

/** How the supervisor of one host is reached, and started where none runs. */
export interface HostSupervisor {
  /** The id of its home, if that is known without a connection. */
  readonly homeId: string | undefined;
  /** Errors: why there is no supervisor to talk to. */
  connect(
    start: StartMode,
    options: { readonly signal: AbortSignal; readonly onStage: (stage: string) => void },
  ): Promise<SupervisorConnection>;
  /** A person waits for the next attempt, and can be asked. */
  expectPerson(): void;
}

export interface HostConnectionOptions {
  /** `local`, or a name of the list of hosts. */
  readonly name: string;
  readonly supervisor: HostSupervisor;
  readonly log: LogOutputChannel;
}

/**
 * The window's connection to the supervisor of one host: made at first use, which may start a supervisor, and
 * re-established when it breaks.
 */
export class HostConnection implements Disposable {
  readonly #options: HostConnectionOptions;
  readonly #changed = new EventEmitter<ConnectionState>();
  readonly #connected = new EventEmitter<SupervisorPeer>();
  readonly #disposed = new AbortController();
  #state: ConnectionState = { kind: 'unused' };
  #homeId: string | undefined;
  #client: Promise<ReconnectingClient> | undefined;
  /** What the supervisor of the newest connection said of its engine. */
  #engine: EngineStatus | undefined;

  /** What a person sees of an attempt. */
  #stage: string | undefined;
  /** When the last connection broke, and why the attempts since have failed. */
  #lost: { readonly since: number; readonly why?: string } | undefined;
  #isDisconnected = false;

  constructor(options: HostConnectionOptions) {
    this.#options = options;
  }

  /** `local`, or a name of the list of hosts. */
  get name(): string {
    return this.#options.name;
  }

  readonly onDidChange: Event<ConnectionState> = this.#changed.event;
  /** Fires after every connect and reconnect. Subscriptions must be made again then. */
  readonly onDidConnect: Event<SupervisorPeer> = this.#connected.event;

  get state(): ConnectionState {
    return this.#state;
  }

  /** The id of the home, which links name. Undefined where it is not known yet. */
  get homeId(): string | undefined {
    this.#homeId ??= this.#options.supervisor.homeId;
    return this.#homeId;
  }

  /** The current peer, if there is a connection. */
  get peer(): SupervisorPeer | undefined {
    if (this.#disposed.signal.aborted) return undefined;
    return this.#state.kind === 'connected' || this.#state.kind === 'engineDown'
      ? this.#state.peer
      : undefined;
  }

  /** This one: it has every session that it is asked about. */
  of(_session: string): this {
    return this;
  }

  /** Starts to connect, if that has not happened yet. */
  ensureConnecting(): void {
    void this.#load().catch(() => undefined);
  }

  /** For a person's command: tries again now, and may start a supervisor whatever failed before. */
  retry(): void {
    this.#isDisconnected = false;
    this.#options.supervisor.expectPerson();
    if (this.#state.kind === 'noSupervisor') this.#set(this.#connecting());
    void this.#load().then((client) => client.retry());
  }

  /** Ends the connection; nothing but `retry` makes another one. Turns on the host go on. */
  disconnect(): void {
    const client = this.#client;
    this.#client = undefined;
    this.#isDisconnected = true;
    this.#lost = undefined;
    void client?.then((one) => one.close());
    this.#set({ kind: 'unused' });
  }

  /** Resolves with the peer as soon as there is a connection. Errors: the reason why there is none; `timeout`. */
  async ready(): Promise<SupervisorPeer> {
    return this.peer ?? (await this.#load()).peer();
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
      if (!isConnectionError(error))
        this.#options.log.warn(`${this.#prefix}status: ${HoldfastError.from(error).sentence}`);
    }
  }

  /** The supervisor at the other end of `peer` reported the state of its engine. */
  reportEngine(peer: SupervisorPeer, engine: EngineStatus): void {
    if (this.peer !== peer || this.#state.kind === connectedState(peer, engine).kind) return;
    this.#log(
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

  async #load(): Promise<ReconnectingClient> {
    if (this.#disposed.signal.aborted)
      throw new HoldfastError('not_found', `There is no host ${JSON.stringify(this.name)} any more`);
    if (this.#isDisconnected) {
      throw new HoldfastError('connection_closed', `This window is not connected to ${this.name}`, {
        next: 'run “Agent: Connect to Host…”',
      });
    }
    if (this.#client === undefined) {
      // First, because whoever hears of the new state may call.
      this.#client = this.#createClient();
      this.#set(this.#connecting());
    }
    return this.#client;
  }

  async #createClient(): Promise<ReconnectingClient> {
    // The client is in the second bundle. The caller, most often the activation of the extension, returns before that is loaded.
    await immediately();
    const client: ReconnectingClient = new ReconnectingClient({
      connect: (start, signal) => this.#connect(start, signal),
      onState: (state) => this.#follow(state),
      onLost: ({ isIntended }) => {
        this.#lost = { since: Date.now() };
        this.#log(isIntended ? 'The supervisor was stopped' : 'The connection to the supervisor broke');
      },
    });
    if (this.#disposed.signal.aborted || this.#isDisconnected) client.close();
    else client.keepConnected();
    return client;
  }

  #follow(state: ClientState): void {
    switch (state.kind) {
      case 'unconnected':
      case 'connecting':
        if (this.#state.kind !== 'connecting') this.#set(this.#connecting());
        break;
      case 'connected':
        if (this.#engine === undefined) break;
        this.#lost = undefined;
        this.#set(connectedState(state.peer, this.#engine));
        this.#connected.fire(state.peer);
        break;
      case 'away':
        // Logged once, not at every attempt.
        if (this.#state.kind !== 'noSupervisor') {
          const { code, sentence } = state.error;
          this.#options.log.error(`${this.#prefix}${code}: ${sentence}`);
        }
        this.#lost = { since: this.#lost?.since ?? state.since, why: state.error.sentence };
        this.#set({ kind: 'noSupervisor', error: state.error, since: this.#lost.since });
    }
  }

  async #connect(start: StartMode, signal: AbortSignal): Promise<SupervisorPeer> {
    const startedAt = Date.now();
    const onStage = (stage: string): void => {
      this.#stage = stage;
      if (this.#state.kind === 'connecting') this.#set(this.#connecting());
    };
    try {
      const { peer, hello } = await this.#options.supervisor.connect(start, { signal, onStage });
      const { version, build, pid } = hello.supervisor;
      this.#log(
        `Connected to supervisor ${version} (build ${build}, pid ${pid}) of ${hello.home} in ${Date.now() - startedAt} ms`,
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
    } finally {
      this.#stage = undefined;
    }
  }

  #connecting(): ConnectionState {
    return {
      kind: 'connecting',
      ...(this.#stage === undefined ? {} : { stage: this.#stage }),
      ...(this.#lost === undefined ? {} : { lost: this.#lost }),
    };
  }

  get #prefix(): string {
    return this.name === LOCAL ? '' : `${this.name}: `;
  }

  #log(text: string): void {
    this.#options.log.info(`${this.#prefix}${text}`);
  }

  #set(state: ConnectionState): void {
    if (this.#disposed.signal.aborted) return;
    this.#state = state;
    this.#changed.fire(state);
  }
}

function isEngineError(error: unknown): boolean {
  return error instanceof HoldfastError && ['engine_unavailable', 'engine_error'].includes(error.code);
}
