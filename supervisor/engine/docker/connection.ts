import { setTimeout as sleep } from 'node:timers/promises';
import type { IncomingMessage } from 'node:http';
import type { EngineStatus } from '../../../protocol/entities.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { EngineCapabilities } from '../port.ts';
import { DockerApi } from './api.ts';
import type { Endpoint } from './endpoint.ts';
import { isRefusal, toHoldfastError, engineUnavailable } from './errors.ts';
import { LABEL } from './labels.ts';
import type { Naming } from './labels.ts';
import { EventReply, InfoReply, VersionReply, parseReply } from './replies.ts';

export interface ConnectionOptions {
  resolveEndpoint(): Endpoint;
  readonly naming: Naming;
  /** Receives errors that occur in the background and have no caller. */
  reportBackgroundError(what: string, error: unknown): void;
  readonly pingIntervalMs: number;
  readonly queryMs: number;
}

export interface EngineChange {
  readonly sessionId: string | null;
}

export interface EngineIdentity {
  readonly info: InfoReply;
  /** Other engines with this API build in another way. */
  readonly hasClassicBuilder: boolean;
  readonly socketPath: string;
}

/**
 * The API version that this driver speaks. Newer engines still offer it; for those that dropped it, the oldest
 * version that they offer is used.
 */
const API_VERSION = '1.41';
const FIRST_BACKOFF_MS = 100;
const LAST_BACKOFF_MS = 5000;
const PROBE_MS = 5000;
/** Events after which a container list may still show the previous state. */
const EMITTED_EARLY = new Set(['die', 'oom', 'pause', 'unpause']);
const EVENTS = ['create', 'start', 'die', 'oom', 'pause', 'unpause', 'destroy'];

/**
 * Tracks whether the engine answers. One loop connects, follows the events of this home, pings, and reconnects with
 * growing delays.
 */
export class EngineConnection {
  readonly #options: ConnectionOptions;
  readonly #statusListeners = new Set<(status: EngineStatus) => void>();
  readonly #changeListeners = new Set<(change: EngineChange) => void>();
  readonly #closing = new AbortController();
  readonly #probeMs: number;
  #endpoint: Endpoint | null = null;
  #api: DockerApi | null = null;
  #connecting: Promise<DockerApi> | null = null;
  #identity: EngineIdentity | null = null;
  #status: EngineStatus;
  /** Until an engine has answered: the usual value on this platform. */
  #localPaths = process.platform === 'linux';
  #events: IncomingMessage | null = null;
  #wake: (() => void) | null = null;
  #loop: Promise<void> | null = null;
  #checking = false;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#probeMs = Math.min(PROBE_MS, options.queryMs);
    this.#status = {
      reachable: false,
      endpoint: '',
      source: 'default',
      version: null,
      apiVersion: null,
      capabilities: null,
      why: 'not connected yet',
      next: null,
    };
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  status(): EngineStatus {
    return this.#status;
  }

  capabilities(): EngineCapabilities {
    return {
      pause: 'freezer',
      execAttach: true,
      localPaths: this.#localPaths,
      runtimes: Object.keys(this.#identity?.info.Runtimes ?? {}),
      builds: this.#identity?.hasClassicBuilder ?? false,
    };
  }

  /** What the engine reported about itself at the last connect. */
  identity(): EngineIdentity | null {
    return this.#identity;
  }

  /** Where the engine keeps its data, as this machine sees it; null: elsewhere. */
  dataFolder(): string | null {
    const folder = this.#identity?.info.DockerRootDir ?? '';
    return folder !== '' && this.#localPaths ? folder : null;
  }

  setLocalPaths(localPaths: boolean): void {
    if (this.#localPaths === localPaths) return;
    this.#localPaths = localPaths;
    if (this.#status.reachable)
      this.#setStatus({ ...this.#status, capabilities: this.#listedCapabilities() });
  }

  /** The API, ready for calls. Connects if necessary. */
  async api(): Promise<DockerApi> {
    if (this.#closing.signal.aborted) {
      throw new HoldfastError('shutting_down', 'The engine is no longer used', {
        why: 'the supervisor is shutting down',
      });
    }
    if (this.#api !== null) return this.#api;
    return this.#connect(this.#options.queryMs);
  }

  async probe(): Promise<EngineStatus> {
    try {
      await this.#connect(this.#probeMs);
    } catch (error) {
      // The failure is the result: callers get it as a status.
      this.#lost(toHoldfastError(error, 'Cannot ask the Docker engine'));
    }
    return this.#status;
  }

  onStatus(listener: (status: EngineStatus) => void): () => void {
    this.#statusListeners.add(listener);
    return () => this.#statusListeners.delete(listener);
  }

  watch(listener: (change: EngineChange) => void): () => void {
    this.#changeListeners.add(listener);
    return () => this.#changeListeners.delete(listener);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#events?.destroy();
    this.#wake?.();
    this.#statusListeners.clear();
    this.#changeListeners.clear();
    await this.#loop;
  }

  /** One attempt at a time, shared by all callers. */
  #connect(timeoutMs: number): Promise<DockerApi> {
    this.#connecting ??= this.#attempt(timeoutMs).finally(() => {
      this.#connecting = null;
    });
    return this.#connecting;
  }

  async #attempt(timeoutMs: number): Promise<DockerApi> {
    const what = 'Cannot ask the Docker engine';
    try {
      // Once an engine was found, a vanished socket does not make us switch to another engine.
      this.#endpoint = this.#identity === null ? this.#options.resolveEndpoint() : this.#endpoint;
      const endpoint = this.#endpoint ?? this.#options.resolveEndpoint();
      const api: DockerApi = new DockerApi(endpoint.socketPath, (error, how) => {
        // A busy engine may miss one call: only that call fails if a ping is still answered.
        if (how === 'late' && this.#api === api) void this.#ping();
        // A late answer from an earlier connection says nothing about the current one.
        else if (this.#api === null || this.#api === api) this.#lost(error);
      });
      const call = { what, method: 'GET', timeoutMs, signal: this.#closing.signal } as const;
      const version = parseReply(VersionReply, what, await api.json({ ...call, path: '/version' }));
      const apiVersion = negotiateApiVersion(version);
      api.useVersion(apiVersion);
      const info = parseReply(InfoReply, what, await api.json({ ...call, path: '/info' }));
      const hasClassicBuilder = (version.Components ?? []).some(({ Name }) => Name === 'Engine');
      this.#identity = { info, hasClassicBuilder, socketPath: endpoint.socketPath };
      this.#api = api;
      this.#setStatus({
        reachable: true,
        endpoint: `unix://${endpoint.socketPath}`,
        source: endpoint.source,
        version: version.Version,
        apiVersion,
        capabilities: this.#listedCapabilities(),
        why: null,
        next: null,
      });
      this.#wake?.();
      return api;
    } catch (error) {
      const known = toHoldfastError(error, what);
      this.#lost(known);
      throw known;
    }
  }

  async #run(): Promise<void> {
    let backoff = FIRST_BACKOFF_MS;
    while (!this.#closing.signal.aborted) {
      const began = performance.now();
      try {
        const api = await this.#connect(this.#options.queryMs);
        await this.#follow(api, () => {
          backoff = FIRST_BACKOFF_MS;
        });
      } catch (error) {
        // A call may have noticed the failure first. Either way the status holds it, and callers read the status.
        if (this.#api !== null) this.#lost(broken(error, this.#api.socketPath));
      }
      // The timeout was delay enough: the engine may be busy and is asked again at once.
      if (performance.now() - began >= this.#options.queryMs) backoff = FIRST_BACKOFF_MS;
      await this.#pause(backoff);
      backoff = Math.min(backoff * 2, LAST_BACKOFF_MS);
    }
  }

  /** Emits changes until the stream ends, which an engine never does while it runs. */
  async #follow(api: DockerApi, connected: () => void): Promise<void> {
    const what = 'Cannot follow the Docker engine';
    const stream = await api.stream({
      what,
      method: 'GET',
      path: '/events',
      query: { filters: this.#options.naming.filters(undefined, { type: ['container'], event: EVENTS }) },
      timeoutMs: this.#options.queryMs,
      signal: this.#closing.signal,
    });
    this.#events = stream;
    if (this.#api !== api) {
      // The connection was lost while the stream was opened. Following it would leave the status unreachable until
      // the next call.
      stream.destroy();
      this.#events = null;
      return;
    }
    const pinging = setInterval(() => void this.#ping(), this.#options.pingIntervalMs);
    try {
      connected();
      this.#emit({ sessionId: null });
      let rest = '';
      stream.setEncoding('utf8');
      for await (const chunk of stream) {
        const lines = (rest + String(chunk)).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) if (line.trim() !== '') this.#changed(api, line);
      }
      throw new Error('the events ended');
    } finally {
      clearInterval(pinging);
      stream.destroy();
      this.#events = null;
    }
  }

  #changed(api: DockerApi, line: string): void {
    try {
      const event = parseReply(EventReply, 'Cannot read an event of the engine', JSON.parse(line));
      const labels = event.Actor.Attributes ?? {};
      // Helper containers come and go during an operation and change no session's state.
      if (labels[LABEL.role] === 'helper') return;
      const change = { sessionId: labels[LABEL.session] ?? null };
      this.#emit(change);
      if (EMITTED_EARLY.has(event.Action)) void this.#emitAgain(api, event.Actor.ID, change);
    } catch (error) {
      this.#options.reportBackgroundError('cannot read an event of the engine', error);
      this.#emit({ sessionId: null });
    }
  }

  /**
   * The engine sends the event before its cleanup, and lists the container as running until then, so an observer may
   * have seen the old state. Inspecting the container waits for the cleanup; then the change is emitted again.
   */
  async #emitAgain(api: DockerApi, id: string, change: EngineChange): Promise<void> {
    const { queryMs: timeoutMs } = this.#options;
    const { signal } = this.#closing;
    const what = 'Cannot inspect a container';
    try {
      await api.json({ what, method: 'GET', path: `/containers/${id}/json`, timeoutMs, signal });
    } catch {
      // The container is gone or the engine unreachable; the next observation shows it.
    }
    this.#emit(change);
  }

  /** Checks whether the engine still answers. */
  async #ping(): Promise<void> {
    const api = this.#api;
    if (api === null || this.#checking || this.#closing.signal.aborted) return;
    this.#checking = true;
    try {
      const what = 'The Docker engine does not answer';
      await api.json({ what, method: 'GET', path: '/_ping', timeoutMs: this.#probeMs });
    } catch (error) {
      // A failure to answer is in the status already; an error response is an answer.
      if (!isRefusal(error) && this.#api !== null) this.#lost(broken(error, api.socketPath));
    } finally {
      this.#checking = false;
    }
  }

  #lost(error: HoldfastError): void {
    if (this.#closing.signal.aborted) return;
    this.#api = null;
    this.#events?.destroy();
    const endpoint = this.#endpoint;
    this.#setStatus({
      reachable: false,
      endpoint: endpoint === null ? '' : `unix://${endpoint.socketPath}`,
      source: endpoint?.source ?? 'default',
      version: this.#status.version,
      apiVersion: this.#status.apiVersion,
      capabilities: this.#status.capabilities,
      why: error.why ?? error.message,
      next: error.next ?? null,
    });
  }

  #listedCapabilities(): NonNullable<EngineStatus['capabilities']> {
    const { runtimes, ...others } = this.capabilities();
    return { ...others, runtimes: [...runtimes] };
  }

  #setStatus(status: EngineStatus): void {
    const before = JSON.stringify(this.#status);
    this.#status = status;
    if (JSON.stringify(status) === before) return;
    for (const listener of this.#statusListeners) this.#notify(() => listener(status));
  }

  #emit(change: EngineChange): void {
    for (const listener of this.#changeListeners) this.#notify(() => listener(change));
  }

  #notify(call: () => void): void {
    try {
      call();
    } catch (error) {
      this.#options.reportBackgroundError('a listener of engine changes failed', error);
    }
  }

  /** Waits until the delay is over, a connect succeeds or the connection is closed. */
  async #pause(ms: number): Promise<void> {
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    try {
      await sleep(ms, undefined, {
        signal: AbortSignal.any([woken.signal, this.#closing.signal]),
        ref: false,
      });
    } catch (error) {
      if (!(error instanceof Error) || error.name !== 'AbortError') throw error;
    } finally {
      this.#wake = null;
    }
  }
}

function broken(error: unknown, socketPath: string): HoldfastError {
  if (error instanceof HoldfastError) return error;
  return engineUnavailable('Cannot follow the Docker engine', socketPath, error);
}

/** Chooses the API version. Errors: `not_supported`. */
export function negotiateApiVersion(version: {
  Version: string;
  ApiVersion: string;
  MinAPIVersion?: string | undefined;
}): string {
  if (isOlder(version.ApiVersion, API_VERSION)) {
    throw new HoldfastError('not_supported', `Docker ${version.Version} is too old`, {
      why: `it offers API ${version.ApiVersion}, and ${API_VERSION} is required`,
      next: 'update Docker to 20.10 or newer',
    });
  }
  const oldest = version.MinAPIVersion ?? API_VERSION;
  return isOlder(API_VERSION, oldest) ? oldest : API_VERSION;
}

function isOlder(one: string, other: string): boolean {
  const [major = 0, minor = 0] = one.split('.').map(Number);
  const [otherMajor = 0, otherMinor = 0] = other.split('.').map(Number);
  return major < otherMajor || (major === otherMajor && minor < otherMinor);
}
