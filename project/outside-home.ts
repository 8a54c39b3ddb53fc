import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';

/**
 * The real path of a folder to deploy. Agents write to workspaces in the home: an agent could swap folders during a
 * copy from there, and make it read the host's files. Errors: `profile_invalid`.
 */
export async function requireOutsideHome(homeRoot: string, directory: string): Promise<string> {
  // A client of a supervisor on another machine may have no home.
  const home = await realpath(homeRoot).catch(() => homeRoot);
  // Reading the profile reports a missing folder.
  const real = await realpath(directory).catch(() => directory);
  if (real !== home && !real.startsWith(join(home, '/'))) return real;
  throw new HoldfastError('profile_invalid', `${directory} cannot be deployed`, {
    why: 'it is in the home of this installation, where agents can write',
    next: 'copy it to a folder outside the home and deploy that',
  });
}
