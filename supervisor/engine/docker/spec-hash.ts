import { createHash } from 'node:crypto';
import type { SandboxSpec } from '../port.ts';
import { SECCOMP_VERSION } from './seccomp-profile.ts';

/** For each container, a hash of everything whose change requires a new one; the label `dev.holdfast.spec`. */
export function specHashes(
  spec: SandboxSpec,
  sidecarImage: string,
  programs: string,
): { sidecar: string; agent: string } {
  const both = {
    session: spec.sessionId,
    uid: spec.uid,
    gid: spec.gid,
    backing: spec.workspace.backing,
    runtime: spec.runtime,
    programs,
    seccomp: SECCOMP_VERSION,
  };
  const env = Object.entries(spec.env).sort(([one], [other]) => (one < other ? -1 : 1));
  const { profile, version } = spec.code;
  const { memoryBytes, cpus, pids } = spec.limits;
  return {
    sidecar: digest({ ...both, image: sidecarImage }),
    agent: digest({ ...both, image: spec.image, profile, version, memoryBytes, cpus, pids, env }),
  };
}

function digest(value: object): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 32);
}
