import { basename } from 'node:path';
import { dialAt } from '../../protocol/client/socket.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { homeFromEnvironment } from '../../protocol/home.ts';
import { Home } from '../store/home.ts';
import { HomeLock } from '../store/lock.ts';
import {
  closeDescriptors,
  detachStdio,
  openDescriptors,
  inheritedDescriptors,
  suspectedDescriptors,
} from './descriptors.ts';
import { LogFile } from '../base/log.ts';
import { thisProgram } from './program.ts';
import { Supervisor } from './supervisor.ts';
import { idleShutdownMs } from './idle-shutdown.ts';

/** How the process of a supervisor ends. */
export const DAEMON_EXIT = { left: 0, failed: 1, locked: 3, crashed: 70 } as const;

/** The one before us lets go within its drain time. */
const LOCK_WAIT_MS = 20_000;
const LOCK_POLL_MS = 25;
/** By then Node has read what it reads by itself when it starts. */
const LET_GO_MS = 1000;

/** `supervisor run`: becomes the home's supervisor and resolves with the exit code once it has left. */
export async function runSupervisor(bundle: string): Promise<number> {
  // Whoever started us may have gone already, and a reader that has gone must not end us.
  process.stderr.on('error', () => undefined);
  process.umask(0o077);
  const root = homeFromEnvironment(process.env);
  process.chdir('/');
  const suspected = suspectedDescriptors(openDescriptors());
  const home = Home.open(root);
  const log = new LogFile({ path: home.logFile });
  const daemon = log.child('daemon');
  watchForCrashes(log);
  try {
    const lock = await acquire(home);
    if (lock instanceof HoldfastError) {
      // Whoever started us reads the code of this error and goes to the other one.
      daemon.error('another supervisor works in this home', { error: lock });
      return DAEMON_EXIT.locked;
    }
    const supervisor = await Supervisor.start({
      home,
      lock,
      log,
      program: thisProgram(bundle),
      idleShutdownMs: idleShutdownMs(process.env),
    }).catch((error: unknown) => {
      lock.release();
      throw error;
    });
    for (const signal of ['SIGTERM', 'SIGINT'] as const)
      process.on(signal, () => supervisor.shutDown('signal'));
    // A terminal that goes away is none of ours.
    process.on('SIGHUP', () => undefined);
    detachStdio();
    const letGo = setTimeout(() => {
      const inherited = inheritedDescriptors(suspected, openDescriptors(), home.root);
      closeDescriptors(inherited);
      if (inherited.length > 0) daemon.info('closed what was inherited', { descriptors: inherited.length });
    }, LET_GO_MS);
    await supervisor.stopped;
    clearTimeout(letGo);
    return DAEMON_EXIT.left;
  } catch (error) {
    daemon.error('the supervisor could not start', { error });
    throw error;
  } finally {
    log.close();
  }
}

/**
 * The lock, or who has it when another supervisor serves this home. One that holds the lock and does not answer is starting or
 * leaving: then waiting shows which.
 */
async function acquire(home: Home): Promise<HomeLock | HoldfastError> {
  const until = Date.now() + LOCK_WAIT_MS;
  for (;;) {
    try {
      return HomeLock.acquire(home, { waitMs: LOCK_POLL_MS });
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== 'home_locked') throw error;
      if ((await answers(home)) || Date.now() > until) return error;
    }
  }
}

async function answers(home: Home): Promise<boolean> {
  try {
    const socket = await dialAt({ directory: home.socketDirectory, name: basename(home.socket) });
    socket.destroy();
    return true;
  } catch {
    return false; // nobody listens there yet, or any more
  }
}

/** All that was acknowledged is on the disk: leaving at once is safer than going on in a state that nobody foresaw. */
function watchForCrashes(log: LogFile): void {
  const crash = (message: string) => (error: unknown) => {
    log.child('daemon').error(message, { error });
    process.exit(DAEMON_EXIT.crashed);
  };
  process.on('uncaughtException', crash('crashed'));
  process.on('unhandledRejection', crash('crashed: a promise was rejected and nobody listened'));
}
