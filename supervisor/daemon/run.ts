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

/** Exit codes of the supervisor process. */
export const DAEMON_EXIT = { stopped: 0, failed: 1, locked: 3, crashed: 70 } as const;

/** An earlier supervisor releases the lock within its drain time. */
const LOCK_WAIT_MS = 20_000;
const LOCK_POLL_MS = 25;
/** By then Node has closed the files that it reads during startup. */
const CLOSE_INHERITED_MS = 1000;

/** `supervisor run`: runs the home's supervisor, and resolves with the exit code when it has stopped. */
export async function runSupervisor(bundle: string): Promise<number> {
  // The process that started us may have exited: a broken pipe must not end this one.
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
      // The process that started us reads the code of this error and connects to the other supervisor.
      daemon.error('another supervisor serves this home', { error: lock });
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
    // The supervisor does not end with a terminal.
    process.on('SIGHUP', () => undefined);
    detachStdio();
    const closeInherited = setTimeout(() => {
      const inherited = inheritedDescriptors(suspected, openDescriptors(), home.root);
      closeDescriptors(inherited);
      if (inherited.length > 0)
        daemon.info('closed inherited descriptors', { descriptors: inherited.length });
    }, CLOSE_INHERITED_MS);
    await supervisor.stopped;
    clearTimeout(closeInherited);
    return DAEMON_EXIT.stopped;
  } catch (error) {
    daemon.error('the supervisor could not start', { error });
    throw error;
  } finally {
    log.close();
  }
}

/**
 * Returns the lock, or the error that names its holder when another supervisor serves this home. A holder that does not answer is
 * starting or shutting down, so this waits.
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
    return false; // nobody listens
  }
}

/** Everything acknowledged is on disk: exiting at once is safer than continuing in an unknown state. */
function watchForCrashes(log: LogFile): void {
  const crash = (message: string) => (error: unknown) => {
    log.child('daemon').error(message, { error });
    process.exit(DAEMON_EXIT.crashed);
  };
  process.on('uncaughtException', crash('crashed'));
  process.on('unhandledRejection', crash('crashed: unhandled rejection'));
}
