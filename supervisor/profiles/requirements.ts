import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Profile } from '../../protocol/profile.ts';
import type { Engine } from '../engine/port.ts';
import type { CopiedProject } from './copy.ts';

/** Checks that the engine is reachable and supports the profile. Errors: `engine_unavailable`, `not_supported`. */
export async function requireEngine(engine: Engine, profile: Profile): Promise<void> {
  const status = engine.status().reachable ? engine.status() : await engine.probe();
  if (!status.reachable) {
    throw new HoldfastError('engine_unavailable', `The profile ${profile.name} cannot be deployed now`, {
      why: status.why ?? 'the container engine cannot be reached',
      next: status.next ?? 'see `holdfast doctor`',
    });
  }
  const { runtimes, localPaths } = engine.capabilities();
  if (profile.runtime !== 'default' && !runtimes.includes(profile.runtime)) {
    throw new HoldfastError('not_supported', `The profile ${profile.name} cannot be deployed`, {
      why: `the engine has no runtime "${profile.runtime}"; it has ${runtimes.join(', ')}`,
      next: 'set `runtime: default`, or add that runtime to the engine',
      details: { runtimes: [...runtimes] },
    });
  }
  if (profile.workspace?.backing === 'directory' && !localPaths) {
    throw new HoldfastError('not_supported', `The profile ${profile.name} cannot be deployed`, {
      why: "the engine does not see this machine's files, so a directory cannot back a workspace",
      next: 'set `workspace.backing: volume`, or omit it',
    });
  }
}

/**
 * The real path of a folder to deploy. Agents write to workspaces in the home: an agent could swap folders during a
 * copy from there, and make it read the host's files. Errors: `profile_invalid`.
 */
export async function requireOutsideHome(homeRoot: string, directory: string): Promise<string> {
  const home = await realpath(homeRoot);
  // Reading the profile reports a missing folder.
  const real = await realpath(directory).catch(() => directory);
  if (real !== home && !real.startsWith(join(home, '/'))) return real;
  throw new HoldfastError('profile_invalid', `${directory} cannot be deployed`, {
    why: 'it is in the home of this installation, where agents can write',
    next: 'copy it to a folder outside the home and deploy that',
  });
}

/** Checks that the handler's file was copied. Errors: `profile_invalid`. */
export function requireEntry({ agent }: Profile, copied: CopiedProject): void {
  if (agent.protocol !== 'handler' || copied.hasFile(agent.entry)) return;
  throw new HoldfastError('profile_invalid', `The entry ${agent.entry} is not in the project`, {
    why: 'no regular file has that name, or an ignore file excludes it',
    next: 'correct `agent.entry` in holdfast.yaml, or create the file',
    details: { entry: agent.entry },
  });
}
