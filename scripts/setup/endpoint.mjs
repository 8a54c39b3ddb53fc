// Which engine: the one that DOCKER_HOST or the current Docker context names, else the default socket.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { SetupError } from './project.mjs';

export const DEFAULT_SOCKET = '/var/run/docker.sock';

/** @typedef {{ socket: string, from: string, isDefault: boolean }} Endpoint */

/** @param {NodeJS.ProcessEnv} [env] @returns {Endpoint} */
export function endpoint(env = process.env) {
  const host = env['DOCKER_HOST'];
  if (host !== undefined && host !== '') return unixOnly(host, 'DOCKER_HOST');
  const directory = env['DOCKER_CONFIG'] || join(homedir(), '.docker');
  const context = env['DOCKER_CONTEXT'] || currentContext(directory);
  if (context === undefined || context === 'default') {
    return { socket: DEFAULT_SOCKET, from: 'the default socket', isDefault: true };
  }
  const id = createHash('sha256').update(context).digest('hex');
  const path = join(directory, 'contexts/meta', id, 'meta.json');
  /** @type {unknown} */
  let named;
  try {
    named = JSON.parse(readFileSync(path, 'utf8')).Endpoints?.docker?.Host;
  } catch (cause) {
    throw new SetupError(
      `the Docker context "${context}" cannot be read (${path})`,
      'Choose another one with "docker context use NAME", or set DOCKER_HOST=unix:///path/to/docker.sock',
      cause,
    );
  }
  return unixOnly(typeof named === 'string' ? named : '', `the Docker context "${context}"`);
}

/** @param {string} host @param {string} from @returns {Endpoint} */
function unixOnly(host, from) {
  if (!host.startsWith('unix://')) {
    throw new SetupError(
      `${from} names "${host}", and only engines behind a unix socket are supported so far`,
      'Set DOCKER_HOST=unix:///path/to/docker.sock, or run "docker context use default"',
    );
  }
  const socket = host.slice('unix://'.length);
  return { socket, from, isDefault: socket === DEFAULT_SOCKET || socket === '/run/docker.sock' };
}

/** @param {string} directory */
function currentContext(directory) {
  try {
    const config = JSON.parse(readFileSync(join(directory, 'config.json'), 'utf8'));
    return typeof config.currentContext === 'string' && config.currentContext !== ''
      ? config.currentContext
      : undefined;
  } catch {
    return undefined; // Docker itself falls back to the default when it has no settings
  }
}
