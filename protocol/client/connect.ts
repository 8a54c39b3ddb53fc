import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { basename, dirname } from 'node:path';
import { HoldfastError } from '../errors.ts';
import { homePaths } from '../home.ts';
import type { ClientInfo, Result } from '../methods.ts';
import { compareBuilds } from './builds.ts';
import { sayHello, createSupervisorPeer } from './hello.ts';
import type { HelloOutcome, SupervisorPeer } from './hello.ts';
import { dialAt } from './socket.ts';
import { SupervisorStarter } from './start.ts';

export type { SupervisorPeer } from './hello.ts';

const POLL_MS = 15;
const DEFAULT_TIMEOUT_MS = 15_000;
/** An older supervisor finishes its current step before it exits. */
const HANDOVER_MS = 60_000;

/** How a supervisor is reached: on this machine through its socket, on another one through a connector. */
export interface SupervisorReach {
  /** As errors name it: `the supervisor on far`. */
  readonly name: string;
  /** What a person does to get a newer one, in the imperative. */
  readonly update: string;
  /** Connects to the supervisor. Undefined: none is running. */
  dial(signal: AbortSignal | undefined): Promise<Duplex | undefined>;
  /** Called repeatedly while none runs. Throws if it cannot be started. */
  ensureStarted(): void;
  /** Why no supervisor responds, if that is known. */
  explainFailure(): HoldfastError | undefined;
  /** The error for `start: 'never'`. */
  notRunning(): HoldfastError;
  /** What a person does about one that does not answer, in the imperative. */
  readonly whenSilent: string;
  release(): void;
}

export interface ConnectOptions {
  /** Absolute path of the home. Undefined: the supervisor is on another machine, which knows its home. */
  readonly home: string | undefined;
  /** Default: the socket of the home. */
  readonly reach?: SupervisorReach | undefined;
  /** This program. */
  readonly program: ClientInfo;
  /** `auto`: start a supervisor if none is running, and replace an older one. `never`: use the running one. */
  readonly start: 'auto' | 'never';
  /** The program and arguments that start a supervisor. It gets the home in HOLDFAST_HOME. */
  readonly command?: readonly string[] | undefined;
  /** The rest of its environment; default: ours. */
  readonly environment?: NodeJS.ProcessEnv | undefined;
  /** How long the supervisor may take to respond, ms. */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface SupervisorConnection {
  readonly peer: SupervisorPeer;
  readonly hello: Result<'hello'>;
  close(): void;
}

/**
 * Connects to the supervisor of a home and says hello. Errors: `not_found` (none is running, `start: 'never'`), `timeout`,
 * the reason why it could not start, `version_mismatch`, `permission_denied` (another user owns the home), `cancelled`.
 */
export async function connectSupervisor(options: ConnectOptions): Promise<SupervisorConnection> {
  const { start, signal } = options;
  const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  const reach = options.reach ?? new LocalReach(options);
  let deadline = Date.now() + timeoutMs;
  try {
    for (;;) {
      if (signal?.aborted === true) throw cancelled(signal);
      const stream = await reach.dial(signal);
      if (stream !== undefined) {
        // Reaching another machine may have taken a while.
        if (options.reach !== undefined) deadline = Math.max(deadline, Date.now() + timeoutMs);
        const result = await attempt(stream, reach, options, Math.max(1, deadline - Date.now()));
        if (result.connection !== undefined) return result.connection;
        if (result.handedOver) deadline = Date.now() + timeoutMs;
      } else if (start === 'never') {
        throw reach.notRunning();
      } else {
        reach.ensureStarted();
      }
      if (Date.now() > deadline) throw reach.explainFailure() ?? reach.notRunning();
      await pause(POLL_MS, signal);
    }
  } finally {
    reach.release();
  }
}

/** The supervisor of a home on this machine. */
class LocalReach implements SupervisorReach {
  readonly name = 'the supervisor';
  readonly update = 'end it with `holdfast supervisor stop`, and try again';
  readonly whenSilent = 'try again, or see `holdfast supervisor logs`';
  readonly #home: string;
  readonly #starter: SupervisorStarter | undefined;

  constructor({ home, start, command, environment }: ConnectOptions) {
    if (home === undefined) throw new HoldfastError('internal', 'There is no home to connect to');
    this.#home = home;
    this.#starter = start === 'auto' ? new SupervisorStarter(home, command ?? [], environment) : undefined;
  }

  dial(signal: AbortSignal | undefined): Promise<Duplex | undefined> {
    return dialIfRunning(this.#home, signal);
  }

  ensureStarted(): void {
    this.#starter?.ensureStarted();
  }

  explainFailure(): HoldfastError | undefined {
    return this.#starter?.explainFailure();
  }

  notRunning(): HoldfastError {
    return notRunning(this.#home);
  }

  release(): void {
    this.#starter?.release();
  }
}

/** Connects without hello: for the stdio bridge, whose client says hello itself. */
export async function dialSupervisor(home: string, signal?: AbortSignal): Promise<Socket> {
  const socket = await dialIfRunning(home, signal);
  if (socket === undefined) throw notRunning(home);
  return socket;
}

/**
 * Connects without hello, and with `start: 'auto'` starts a supervisor where none runs. For the far end of a connection
 * to another machine: the client says hello, and asks an older supervisor to hand over. Undefined: none is running.
 */
export async function dialOrStart(
  options: Pick<ConnectOptions, 'start' | 'command' | 'environment' | 'timeoutMs' | 'signal'> & {
    readonly home: string;
  },
): Promise<Socket | undefined> {
  const { home, start, signal } = options;
  const deadline = Date.now() + (options.timeoutMs ?? DEFAULT_TIMEOUT_MS);
  if (start === 'never') return dialIfRunning(home, signal);
  const starter = new SupervisorStarter(home, options.command ?? [], options.environment);
  try {
    for (;;) {
      const socket = await dialIfRunning(home, signal);
      if (socket !== undefined) return socket;
      if (Date.now() > deadline) throw starter.explainFailure();
      starter.ensureStarted();
      await pause(POLL_MS, signal);
    }
  } finally {
    starter.release();
  }
}

interface Attempt {
  readonly connection?: SupervisorConnection;
  readonly handedOver?: boolean;
}

/** Says hello. A result without a connection means that the supervisor is exiting: try again. */
async function attempt(
  stream: Duplex,
  reach: SupervisorReach,
  options: ConnectOptions,
  timeoutMs: number,
): Promise<Attempt> {
  const peer = createSupervisorPeer(stream, reach);
  let keep = false;
  try {
    const greeting = await sayHello(peer, options.program, options.home, {
      timeoutMs,
      signal: options.signal,
    }).catch((error: unknown) => {
      throw isTimeout(error) ? notAnswering(reach, timeoutMs, error) : error;
    });
    if (greeting.kind === 'gone') return {};
    if (options.start === 'auto' && isOlder(greeting, options.program) && (await handOver(peer, options))) {
      return { handedOver: true };
    }
    if (greeting.kind === 'mismatch') throw greeting.error;
    if (compareBuilds(greeting.supervisor, options.program) > 0) peer.acceptNewer();
    keep = true;
    return { connection: { peer, hello: greeting.hello, close: () => peer.close() } };
  } finally {
    if (!keep) peer.close();
  }
}

function isOlder(greeting: Exclude<HelloOutcome, { kind: 'gone' }>, program: ClientInfo): boolean {
  return greeting.supervisor !== undefined && compareBuilds(greeting.supervisor, program) < 0;
}

/** Asks a supervisor to hand over and waits until it has closed the connection. False: it refuses. */
async function handOver(peer: SupervisorPeer, options: ConnectOptions): Promise<boolean> {
  const { signal } = options;
  try {
    const { leaving } = await peer.call(
      'supervisor/handover',
      { to: options.program },
      { timeoutMs: HANDOVER_MS, signal },
    );
    if (!leaving) return false;
  } catch (error) {
    const failure = HoldfastError.from(error);
    // Another client has asked first, and it is already exiting.
    if (failure.code === 'connection_closed' || failure.code === 'shutting_down') return true;
    throw failure;
  }
  const limit = AbortSignal.timeout(HANDOVER_MS);
  const ended = await closedWithin(peer, signal === undefined ? limit : AbortSignal.any([limit, signal]));
  if (ended) return true;
  if (signal?.aborted === true) throw cancelled(signal);
  throw new HoldfastError('timeout', 'The older supervisor was not replaced', {
    why: 'it agreed to exit but did not',
    next: 'stop it with `holdfast supervisor stop`',
  });
}

function closedWithin(peer: SupervisorPeer, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const onAbort = (): void => resolve(false);
    signal.addEventListener('abort', onAbort, { once: true });
    void peer.closed.then(() => {
      signal.removeEventListener('abort', onAbort);
      resolve(true);
    });
  });
}

async function dialIfRunning(home: string, signal: AbortSignal | undefined): Promise<Socket | undefined> {
  const { socket } = homePaths(home);
  try {
    return await dialAt({ directory: dirname(socket), name: basename(socket) }, signal);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    switch (code) {
      case 'ENOENT': // no home, or no socket in it
      case 'ECONNREFUSED': // a supervisor that was killed left its socket
      case 'ECONNRESET':
      case 'EAGAIN': // its listen backlog is full
        return undefined;
      case 'ENOTDIR':
        throw new HoldfastError('home_damaged', `The home ${home} cannot be used`, {
          why: 'it is not a directory',
          next: 'set HOLDFAST_HOME to another directory',
          cause: error,
        });
      case 'EACCES':
      case 'EPERM':
        throw new HoldfastError('permission_denied', `Cannot connect to the supervisor of ${home}`, {
          why: 'its socket belongs to another user',
          next: 'run as that user, or set HOLDFAST_HOME to a directory of your own',
          cause: error,
        });
      default:
        throw HoldfastError.from(error, `Cannot connect to the supervisor of ${home}`);
    }
  }
}

function isTimeout(error: unknown): boolean {
  return error instanceof HoldfastError && error.code === 'timeout';
}

function notAnswering({ name, whenSilent }: SupervisorReach, ms: number, cause: unknown): HoldfastError {
  return new HoldfastError('timeout', `${name.replace(/^t/, 'T')} does not answer`, {
    why: `it did not say hello within ${Math.ceil(ms / 1000)} s`,
    next: whenSilent,
    cause,
  });
}

function notRunning(home: string): HoldfastError {
  return new HoldfastError('not_found', `No supervisor is running for ${home}`, {
    next: 'start one with `holdfast supervisor start`',
  });
}

function cancelled(signal: AbortSignal): HoldfastError {
  return new HoldfastError('cancelled', 'Connecting to the supervisor was cancelled', {
    cause: signal.reason,
  });
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      clearTimeout(timer);
      if (signal !== undefined) reject(cancelled(signal));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}
