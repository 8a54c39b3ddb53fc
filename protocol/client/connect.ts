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
/** An older supervisor finishes the step at hand before it leaves. */
const HANDOVER_MS = 60_000;

export interface ConnectOptions {
  /** Absolute path of the home. */
  readonly home: string;
  /** This program. */
  readonly program: ClientInfo;
  /** `auto`: start a supervisor where none answers, and replace an older one. `never`: take what is there. */
  readonly start: 'auto' | 'never';
  /** How to start a supervisor: program and arguments. It gets the home in HOLDFAST_HOME. */
  readonly command?: readonly string[] | undefined;
  /** What it gets as its environment besides; default: ours. */
  readonly environment?: NodeJS.ProcessEnv | undefined;
  /** How long a supervisor may take to answer, ms. */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface SupervisorConnection {
  readonly peer: SupervisorPeer;
  readonly hello: Result<'hello'>;
  close(): void;
}

/**
 * A connection with the home's supervisor, after hello. Errors: `not_found` (none runs, `start: 'never'`), `timeout`, whatever
 * kept it from starting, `version_mismatch`, `permission_denied` (the home is somebody else's), `cancelled`.
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
      const socket = await dialIfAnybody(home, signal);
      if (socket !== undefined) {
        const met = await meet(socket, options, Math.max(1, deadline - Date.now()));
        if (met.connection !== undefined) return met.connection;
        if (met.handedOver) deadline = Date.now() + timeoutMs;
      } else if (starter === undefined) {
        throw nobody(home);
      } else {
        starter.ensureStarted();
      }
      if (Date.now() > deadline) throw starter?.explainFailure() ?? nobody(home);
      await pause(POLL_MS, signal);
    }
  } finally {
    starter?.release();
  }
}

/** A connection as it is, without hello: for the stdio bridge, whose client says hello itself. */
export async function dialSupervisor(home: string, signal?: AbortSignal): Promise<Socket> {
  const socket = await dialIfAnybody(home, signal);
  if (socket === undefined) throw nobody(home);
  return socket;
}

interface Met {
  readonly connection?: SupervisorConnection;
  readonly handedOver?: boolean;
}

/** Says hello. Without a connection in the answer: look again, somebody is on the way out. */
async function meet(socket: Socket, options: ConnectOptions, timeoutMs: number): Promise<Met> {
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

/** Asks a supervisor to make room and waits until it has let go of the connection. False: it stays. */
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
    // Somebody else asked before us, and it is leaving already.
    if (failure.code === 'connection_closed' || failure.code === 'shutting_down') return true;
    throw failure;
  }
  const limit = AbortSignal.timeout(HANDOVER_MS);
  const ended = await endOf(peer, signal === undefined ? limit : AbortSignal.any([limit, signal]));
  if (ended) return true;
  if (signal?.aborted === true) throw cancelled(signal);
  throw new HoldfastError('timeout', 'The older supervisor was not replaced', {
    why: 'it said that it would leave and did not',
    next: 'end it with `holdfast supervisor stop`',
  });
}

function endOf(peer: SupervisorPeer, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const onAbort = (): void => resolve(false);
    signal.addEventListener('abort', onAbort, { once: true });
    void peer.closed.then(() => {
      signal.removeEventListener('abort', onAbort);
      resolve(true);
    });
  });
}

async function dialIfAnybody(home: string, signal: AbortSignal | undefined): Promise<Socket | undefined> {
  const { socket } = homePaths(home);
  try {
    return await dialAt({ directory: dirname(socket), name: basename(socket) }, signal);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    switch (code) {
      case 'ENOENT': // no home, or no socket in it
      case 'ECONNREFUSED': // the socket of one that was killed
      case 'ECONNRESET':
      case 'EAGAIN': // more clients at once than it could take
        return undefined;
      case 'ENOTDIR':
        throw new HoldfastError('home_damaged', `The home ${home} cannot be used`, {
          why: 'it is not a directory',
          next: 'name another directory in HOLDFAST_HOME',
          cause: error,
        });
      case 'EACCES':
      case 'EPERM':
        throw new HoldfastError('permission_denied', `The supervisor of ${home} cannot be called`, {
          why: 'its socket belongs to another user',
          next: 'run as that user, or name a directory of your own in HOLDFAST_HOME',
          cause: error,
        });
      default:
        throw HoldfastError.from(error, `The supervisor of ${home} cannot be called`);
    }
  }
}

function nobody(home: string): HoldfastError {
  return new HoldfastError('not_found', `No supervisor runs for ${home}`, {
    next: 'start one with `holdfast supervisor start`',
  });
}

function cancelled(signal: AbortSignal): HoldfastError {
  return new HoldfastError('cancelled', 'The supervisor was not called', { cause: signal.reason });
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
