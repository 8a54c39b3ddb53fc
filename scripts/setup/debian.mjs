// Debian and Ubuntu packages, where we may install them.
import { readFileSync } from 'node:fs';
import { onPath, run } from './command.mjs';

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

/** @param {string[]} packages */
export async function install(packages) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const next = `Install ${packages.join(' ')} yourself and run this again`;
  await run('apt-get', ['update', '-q'], { env, next });
  await run('apt-get', ['install', '-y', '-q', '--no-install-recommends', ...packages], { env, next });
}
