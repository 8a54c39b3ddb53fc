// OpenSSH's server and client, for the suites that reach another machine by ssh.
import { onPath } from './command.mjs';
import { canInstall, install } from './debian.mjs';

/** @returns {Promise<string | undefined>} path of sshd; undefined where there is none and none can be installed */
export async function ensureSshServer() {
  const find = () => onPath('sshd');
  if (find() === undefined || onPath('ssh') === undefined) {
    if (!canInstall()) return undefined;
    await install(['openssh-server', 'openssh-client']);
  }
  return find();
}
