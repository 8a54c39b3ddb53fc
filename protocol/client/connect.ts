import type { Socket } from 'node:net';
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

export interface ConnectOptions {
  /** Absolute path of the home. */
  readonly home: string;
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
  const { home, start, signal } = options;
  const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  const starter =
    start === 'auto' ? new SupervisorStarter(home, options.command ?? [], options.environment) : undefined;
  let deadline = Date.now() + timeoutMs;
  try {
    for (;;) {
      if (signal?.aborted === true) throw cancelled(signal);
      const socket = await dialIfRunning(home, signal);
      if (socket !== undefined) {
        const result = await attempt(socket, options, Math.max(1, deadline - Date.now()));
        if (result.connection !== undefined) return result.connection;
        if (result.handedOver) deadline = Date.now() + timeoutMs;
      } else if (starter === undefined) {
        throw notRunning(home);
      } else {
        starter.ensureStarted();
      }
      if (Date.now() > deadline) throw starter?.explainFailure() ?? notRunning(home);
      await pause(POLL_MS, signal);
    }
  } finally {
    starter?.release();
  }
}

/** Connects without hello: for the stdio bridge, whose client says hello itself. */
export async function dialSupervisor(home: string, signal?: AbortSignal): Promise<Socket> {
  const socket = await dialIfRunning(home, signal);
  if (socket === undefined) throw notRunning(home);
  return socket;
}

interface Attempt {
  readonly connection?: SupervisorConnection;
  readonly handedOver?: boolean;
}

/** Says hello. A result without a connection means that the supervisor is exiting: try again. */
async function attempt(socket: Socket, options: ConnectOptions, timeoutMs: number): Promise<Attempt> {
  const peer = createSupervisorPeer(socket);
  let keep = false;
  try {
    const greeting = await sayHello(peer, options.program, options.home, {
      timeoutMs,
      signal: options.signal,
    });
    if (greeting.kind === 'gone') return {};
    if (options.start === 'auto' && isOlder(greeting, options.program) && (await handOver(peer, options))) {
      return { handedOver: true };
    }
    if (greeting.kind === 'mismatch') throw greeting.error;
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
