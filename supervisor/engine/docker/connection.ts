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
  /** Told what was noticed in the background and has no caller. */
  reportBackgroundError(what: string, error: unknown): void;
  readonly pingIntervalMs: number;
  readonly queryMs: number;
}

export interface EngineChange {
  readonly sessionId: string | null;
}

export interface EngineIdentity {
  readonly info: InfoReply;
  readonly socketPath: string;
}

/** What is written against; newer engines still speak it, and those that dropped it are asked for the oldest they have. */
const API_VERSION = '1.41';
const FIRST_BACKOFF_MS = 100;
const LAST_BACKOFF_MS = 5000;
const PROBE_MS = 5000;
/** Those after which a list still shows what was before. */
const TOLD_EARLY = new Set(['die', 'oom', 'pause', 'unpause']);
const EVENTS = ['create', 'start', 'die', 'oom', 'pause', 'unpause', 'destroy'];

/**
 * Knows whether the engine can be asked, and keeps at it: one loop that connects, follows the events of this home, pings, and
 * goes back to connecting with a growing pause.
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
  /** Until an engine has answered, what is usual on this platform. */
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
      why: 'not asked yet',
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
    };
  }

  /** The engine as it described itself when it was last connected to. */
  identity(): EngineIdentity | null {
    return this.#identity;
  }

  setLocalPaths(localPaths: boolean): void {
    if (this.#localPaths === localPaths) return;
    this.#localPaths = localPaths;
    if (this.#status.reachable)
      this.#setStatus({ ...this.#status, capabilities: this.#listedCapabilities() });
  }

  /** Ready for calls. Connects when it is not. */
  async api(): Promise<DockerApi> {
    if (this.#closing.signal.aborted) {
      throw new HoldfastError('shutting_down', 'The engine is no longer used', {
        why: 'the supervisor is leaving',
      });
    }
    if (this.#api !== null) return this.#api;
    return this.#connect(this.#options.queryMs);
  }

  async probe(): Promise<EngineStatus> {
    try {
      await this.#connect(this.#probeMs);
    } catch (error) {
      // The failure is the answer; whoever probes gets it as a status.
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

  /** One attempt at a time, shared by all who need it. */
  #connect(timeoutMs: number): Promise<DockerApi> {
    this.#connecting ??= this.#attempt(timeoutMs).finally(() => {
      this.#connecting = null;
    });
    return this.#connecting;
  }

  async #attempt(timeoutMs: number): Promise<DockerApi> {
    const what = 'Cannot ask the Docker engine';
    try {
      // Once an engine was found, a vanished socket does not make us change to another engine.
      this.#endpoint = this.#identity === null ? this.#options.resolveEndpoint() : this.#endpoint;
      const endpoint = this.#endpoint ?? this.#options.resolveEndpoint();
      const api: DockerApi = new DockerApi(endpoint.socketPath, (error, how) => {
        // Of one call too many for a busy engine only that call fails, if it still answers what costs it nothing.
        if (how === 'late' && this.#api === api) void this.#ping();
        // A late answer about an earlier connection says nothing about the present one.
        else if (this.#api === null || this.#api === api) this.#lost(error);
      });
      const call = { what, method: 'GET', timeoutMs, signal: this.#closing.signal } as const;
      const version = parseReply(VersionReply, what, await api.json({ ...call, path: '/version' }));
      const apiVersion = negotiateApiVersion(version);
      api.useVersion(apiVersion);
      const info = parseReply(InfoReply, what, await api.json({ ...call, path: '/info' }));
      this.#identity = { info, socketPath: endpoint.socketPath };
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
        // Known already when a call noticed it first; either way it has become the status, which is what others see.
        if (this.#api !== null) this.#lost(broken(error, this.#api.socketPath));
      }
      // An engine that was waited for in vain has had its pause; it may be busy, and is asked again at once.
      if (performance.now() - began >= this.#options.queryMs) backoff = FIRST_BACKOFF_MS;
      await this.#pause(backoff);
      backoff = Math.min(backoff * 2, LAST_BACKOFF_MS);
    }
  }

  /** Passes changes on until the stream ends, which an engine never does while it lives. */
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
      // Lost while the stream was opened: followed like this, it would stay lost until somebody asks.
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
      // Helpers come and go in the middle of a verb: nobody's state changes by them.
      if (labels[LABEL.role] === 'helper') return;
      const change = { sessionId: labels[LABEL.session] ?? null };
      this.#emit(change);
      if (TOLD_EARLY.has(event.Action)) void this.#tellAgain(api, event.Actor.ID, change);
    } catch (error) {
      this.#options.reportBackgroundError('an event of the engine was not understood', error);
      this.#emit({ sessionId: null });
    }
  }

  /**
   * The engine tells of an end before it has cleaned up, and lists the container as running until then; whoever looked in between saw what
   * was before. Inspecting one waits for that.
   */
  async #tellAgain(api: DockerApi, id: string, change: EngineChange): Promise<void> {
    const { queryMs: timeoutMs } = this.#options;
    const { signal } = this.#closing;
    const what = 'Cannot look at a container';
    try {
      await api.json({ what, method: 'GET', path: `/containers/${id}/json`, timeoutMs, signal });
    } catch {
      // Gone, or not to be asked: whoever looks now is told.
    }
    this.#emit(change);
  }

  /** Some time went by: is the engine still there? */
  async #ping(): Promise<void> {
    const api = this.#api;
    if (api === null || this.#checking || this.#closing.signal.aborted) return;
    this.#checking = true;
    try {
      const what = 'The Docker engine does not answer';
      await api.json({ what, method: 'GET', path: '/_ping', timeoutMs: this.#probeMs });
    } catch (error) {
      // A failure to answer has become the status; a refusal is an answer.
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
    for (const listener of this.#statusListeners) this.#tell(() => listener(status));
  }

  #emit(change: EngineChange): void {
    for (const listener of this.#changeListeners) this.#tell(() => listener(change));
  }

  #tell(call: () => void): void {
    try {
      call();
    } catch (error) {
      this.#options.reportBackgroundError('a listener to the engine failed', error);
    }
  }

  /** Waits, but not longer than until somebody has connected or the end. */
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

/** The API version to speak. Errors: `not_supported`. */
export function negotiateApiVersion(version: {
  Version: string;
  ApiVersion: string;
  MinAPIVersion?: string | undefined;
}): string {
  if (older(version.ApiVersion, API_VERSION)) {
    throw new HoldfastError('not_supported', `Docker ${version.Version} is too old`, {
      why: `it speaks API ${version.ApiVersion}, and ${API_VERSION} is needed`,
      next: 'update Docker to 20.10 or newer',
    });
  }
  const oldest = version.MinAPIVersion ?? API_VERSION;
  return older(API_VERSION, oldest) ? oldest : API_VERSION;
}

function older(one: string, other: string): boolean {
  const [major = 0, minor = 0] = one.split('.').map(Number);
  const [otherMajor = 0, otherMinor = 0] = other.split('.').map(Number);
  return major < otherMajor || (major === otherMajor && minor < otherMinor);
}
