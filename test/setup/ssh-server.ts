import { ensureSshServer } from '../../scripts/setup/ssh-server.mjs';

/** Before the suites that reach another machine by ssh. Where sshd cannot be had, they are skipped. */
export default async function setup(): Promise<void> {
  await ensureSshServer().catch(() => undefined);
}
