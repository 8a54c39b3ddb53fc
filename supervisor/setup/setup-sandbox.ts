import { PROFILE_DEFAULTS, type Profile } from '../../protocol/profile.ts';
import type { SandboxSpec, WorkspaceSpec } from '../engine/port.ts';
import type { SetupRow } from '../store/setups.ts';

/** The sandbox of a setup: its sidecar, and at times a container without code. */
export type SetupSandbox = Pick<SetupRow, 'id' | 'profile' | 'backing' | 'uid' | 'gid' | 'hasCommands'>;

export function workspaceOf({ id, backing, uid, gid }: SetupSandbox): WorkspaceSpec {
  return { sessionId: id, backing, uid, gid };
}

export function sandboxOf(
  row: SetupSandbox,
  profile: Pick<Profile, 'name' | 'limits' | 'runtime'>,
): SandboxSpec {
  return {
    sessionId: row.id,
    generation: 1,
    image: '',
    uid: row.uid,
    gid: row.gid,
    workspace: workspaceOf(row),
    code: { profile: profile.name, version: 0 },
    env: {},
    limits: {
      memoryBytes: profile.limits?.memory ?? PROFILE_DEFAULTS.limits.memory,
      cpus: profile.limits?.cpus ?? PROFILE_DEFAULTS.limits.cpus,
      pids: profile.limits?.pids ?? PROFILE_DEFAULTS.limits.pids,
    },
    runtime: profile.runtime,
  };
}
