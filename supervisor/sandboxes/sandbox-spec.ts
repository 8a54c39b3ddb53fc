import { credentialEnvironment, credentialsOf } from '../../protocol/credentials.ts';
import { PROFILE_DEFAULTS, type Profile } from '../../protocol/profile.ts';
import { GIT_SETTINGS, NODE_ENVIRONMENT, proxyEnvironment } from '../egress/environment.ts';
import type { SandboxSpec, WorkspaceSpec } from '../engine/port.ts';
import type { SessionRow } from '../store/sessions.ts';

/** How long an agent container may take to end after TERM. */
export const STOP_GRACE_MS = 3000;

export function workspaceSpec(row: Pick<SessionRow, 'id' | 'backing' | 'uid' | 'gid'>): WorkspaceSpec {
  return { sessionId: row.id, backing: row.backing, uid: row.uid, gid: row.gid };
}

/** What the engine needs to run the sandbox of `row` with this version of its profile. */
export function sandboxSpec(
  row: SessionRow,
  profile: Profile,
  image: string,
  codeVersion: number,
): SandboxSpec {
  return {
    sessionId: row.id,
    generation: row.generation,
    image,
    uid: row.uid,
    gid: row.gid,
    workspace: workspaceSpec(row),
    code: { profile: row.profile, version: codeVersion },
    env: {
      ...proxyEnvironment(),
      ...(profile.egress === undefined ? {} : NODE_ENVIRONMENT),
      ...credentialEnvironment(credentialsOf(profile), GIT_SETTINGS),
      ...profile.env,
      HOLDFAST_SESSION: row.id,
      HOLDFAST_SESSION_NAME: row.name,
      HOLDFAST_PROFILE: row.profile,
    },
    limits: {
      memoryBytes: profile.limits?.memory ?? PROFILE_DEFAULTS.limits.memory,
      cpus: profile.limits?.cpus ?? PROFILE_DEFAULTS.limits.cpus,
      pids: profile.limits?.pids ?? PROFILE_DEFAULTS.limits.pids,
    },
    runtime: profile.runtime,
  };
}

/** Enough to start a sidecar, never an agent: for a session whose profile is undeployed, and for what is no session. */
export function sidecarOnlySpec(
  row: Pick<SessionRow, 'id' | 'backing' | 'uid' | 'gid' | 'profile'> & { readonly generation?: number },
): SandboxSpec {
  const { memory, cpus, pids } = PROFILE_DEFAULTS.limits;
  return {
    sessionId: row.id,
    generation: row.generation ?? 0,
    image: '',
    uid: row.uid,
    gid: row.gid,
    workspace: workspaceSpec(row),
    code: { profile: row.profile, version: 0 },
    env: {},
    limits: { memoryBytes: memory, cpus, pids },
    runtime: 'default',
  };
}
