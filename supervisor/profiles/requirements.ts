import { isInConfigFolder } from '../../protocol/agent-config.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Profile } from '../../protocol/profile.ts';
import type { Engine } from '../engine/port.ts';
import type { WrittenTree } from './tree-writer.ts';
import type { UploadedProject } from './uploads.ts';

/** The supervisor connects to a socket of the sidecar, which gVisor keeps inside. */
const UNREACHABLE = /^(runsc|gvisor)/i;

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
  if (UNREACHABLE.test(profile.runtime)) {
    throw new HoldfastError('not_supported', `The profile ${profile.name} cannot be deployed`, {
      why: `the runtime "${profile.runtime}" (gVisor) lets nobody outside reach the sockets that a sandbox makes, and is not tested`,
      next: 'set `runtime: default`',
    });
  }
  if (profile.workspace?.backing === 'directory' && !localPaths) {
    throw new HoldfastError('not_supported', `The profile ${profile.name} cannot be deployed`, {
      why: "the engine does not see this machine's files, so a directory cannot back a workspace",
      next: 'set `workspace.backing: volume`, or omit it',
    });
  }
}

/** Checks that the handler's file is part of the code. Errors: `profile_invalid`. */
export function requireEntry({ agent }: Profile, code: WrittenTree): void {
  if (!('entry' in agent) || code.hasFile(agent.entry)) return;
  throw new HoldfastError('profile_invalid', `The entry ${agent.entry} is not in the project`, {
    why: 'no regular file has that name, or an ignore file excludes it',
    next: 'correct `agent.entry` in holdfast.yaml, or create the file',
    details: { entry: agent.entry },
  });
}

/** Checks that the client sent the configuration that the profile names, and not as a part of the code. Errors: `profile_invalid`. */
export function requireConfiguration({ agent }: Profile, project: UploadedProject): void {
  const inCode = project.code.sources.find(({ path }) => isInConfigFolder(path, agent.config));
  const why =
    inCode !== undefined
      ? `${inCode.path} was sent as a part of the code`
      : (agent.config === undefined) !== (project.configuration === null)
        ? 'the client sent another configuration than holdfast.yaml names'
        : undefined;
  if (why === undefined) return;
  throw new HoldfastError('profile_invalid', 'The configuration of the agent cannot be copied', {
    why,
    next: 'deploy with a program of this version',
  });
}
