import { spawn } from 'node:child_process';
import type { PauseGuard } from '../port.ts';

/**
 * Starts `program` (thaw.ts) as a watchdog: if this process ends before `release`, the watchdog unpauses the
 * container. It is spawned before this returns, so no moment is uncovered; `failed` is called if it cannot start.
 */
export function guardPause(
  program: string,
  socketPath: string,
  container: string,
  failed: (error: Error) => void,
): PauseGuard {
  const child = spawn(process.execPath, [program, socketPath, container], {
    // A process group of its own: signals to our group do not end it.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    cwd: '/',
    // If we run in VS Code's own executable, so does the watchdog.
    env: { ELECTRON_RUN_AS_NODE: '1' },
  });
  child.on('error', failed);
  child.stdin.on('error', () => undefined); // the watchdog ended first
  child.unref();
  return { release: () => void child.stdin.end('thawed\n') };
}
