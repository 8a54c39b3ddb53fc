import { ensureSshServer } from '../../scripts/setup/ssh-server.mjs';
import { RunFolders } from './run-folders.ts';

/** Shared by all projects of a run: the last one checks that nothing is left. */
interface Shared {
  users: number;
  readonly folders: RunFolders;
  readonly ready: Promise<unknown>;
}
const SHARED = Symbol.for('holdfast.test.ssh-server');
const place = globalThis as typeof globalThis & { [SHARED]?: Shared | undefined };

/**
 * Before the suites that reach another machine by ssh. Where sshd cannot be had, they are skipped. After them: fails if a
 * suite left the folder of such a machine.
 */
export default async function setup(): Promise<() => void> {
  const shared = (place[SHARED] ??= {
    users: 0,
    folders: new RunFolders(),
    ready: ensureSshServer().catch(() => undefined),
  });
  shared.users += 1;
  await shared.ready;
  return () => {
    shared.users -= 1;
    if (shared.users === 0) shared.folders.dispose();
  };
}
