// Debian and Ubuntu packages, where we may install them.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { onPath, run } from './command.mjs';
import { SetupError } from './project.mjs';

/** @returns {boolean} whether packages can be installed here without asking anybody */
export function canInstall() {
  return process.getuid?.() === 0 && isDebian();
}

/** @returns {boolean} */
export function isDebian() {
  try {
    const release = readFileSync('/etc/os-release', 'utf8');
    return /^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(release) && onPath('apt-get') !== undefined;
  } catch {
    return false; // not a Linux that names itself
  }
}

/** What apt says when another run of apt or dpkg holds one of its locks. Its own option does not wait for all of them. */
const LOCKED =
  /Could not get lock|Unable to lock directory|Unable to acquire the dpkg|is another process using it/;
const AGAIN_MS = 1000;
/** An upgrade of the whole system, or the updates of a machine that has just booted. */
const WAIT_MS = 15 * 60_000;

/**
 * @param {string[]} packages
 * @param {{ show: (text: string) => void, waitMs?: number }} [options] show: says what is waited for; waitMs: how long another run
 * of apt or dpkg may hold its locks
 */
export async function install(packages, { show, waitMs = WAIT_MS } = { show: () => undefined }) {
  const names = packages.join(' ');
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C' };
  const until = Date.now() + waitMs;
  /** @param {string[]} args */
  const apt = async (args) => {
    for (;;) {
      try {
        await run('apt-get', args, { env, next: `Install ${names} yourself and run this again` });
        return;
      } catch (error) {
        if (!(error instanceof SetupError) || !LOCKED.test(error.message)) throw error;
        if (Date.now() > until) {
          throw new SetupError(
            `${names} cannot be installed: another run of apt or dpkg holds its lock`,
            'Wait for it to end ("ps -C apt-get,apt,dpkg,unattended-upgr"), and run this again',
            error,
          );
        }
      }
      show(`waiting for another run of apt or dpkg, then installing ${names}`);
      await sleep(AGAIN_MS);
    }
  };
  await apt(['update', '-q']);
  await apt(['install', '-y', '-q', '--no-install-recommends', ...packages]);
}
