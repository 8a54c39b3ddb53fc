import { isAbsolute, join, resolve } from 'node:path';
import { homedir } from 'node:os';

/** The paths of one installation that clients need. */
export interface HomePaths {
  readonly root: string;
  readonly id: string;
  readonly socket: string;
  readonly lock: string;
  /** Describes the owner of the lock, for messages only. */
  readonly holder: string;
  readonly logs: string;
  readonly log: string;
}

export function homePaths(root: string): HomePaths {
  const logs = join(root, 'logs');
  return {
    root,
    id: join(root, 'id'),
    socket: join(root, 'supervisor.sock'),
    lock: join(root, 'supervisor.lock'),
    holder: join(root, 'supervisor.holder.json'),
    logs,
    log: join(logs, 'supervisor.log'),
  };
}

/** `$HOLDFAST_HOME`, or `~/.holdfast`, as an absolute path. */
export function homeFromEnvironment(env: Readonly<Record<string, string | undefined>>): string {
  const named = env['HOLDFAST_HOME'];
  if (named === undefined || named === '') return join(homedir(), '.holdfast');
  return isAbsolute(named) ? named : resolve(named);
}
