import { spawn } from 'node:child_process';
import type { PauseGuard } from '../port.ts';

/**
 * Starts `program` (thaw.ts) beside us: should this process end before `release`, however it ends, that one thaws the container.
 * It has begun to be before this returns, so that no moment is left uncovered; where it cannot be started, `failed` is told.
 */
export function guardPause(
  program: string,
  socketPath: string,
  container: string,
  failed: (error: Error) => void,
): PauseGuard {
  const child = spawn(process.execPath, [program, socketPath, container], {
    // A session of its own: what is sent to our group does not end it.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    cwd: '/',
    // Where we run in an editor's program, so does it.
    env: { ELECTRON_RUN_AS_NODE: '1' },
  });
  child.on('error', failed);
  child.stdin.on('error', () => undefined); // it ended before us: then it has nothing more to hear
  child.unref();
  return { release: () => void child.stdin.end('thawed\n') };
}
