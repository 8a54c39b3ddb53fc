import type { Duplex } from 'node:stream';
import type { MountSettings } from 'dockerode';
import { HoldfastError } from '../../../protocol/errors.ts';
import { IN_SANDBOX } from '../../../sidecar/wire.ts';
import type { SandboxSpec, WorkspaceSpec } from '../port.ts';
import type { HelperContainers } from './helper-containers.ts';
import type { Containers } from './containers.ts';
import type { Naming } from './labels.ts';

export interface SandboxMounts {
  readonly sidecar: MountSettings[];
  readonly agent: MountSettings[];
}

/** How things get into containers and how the sidecar is reached: by this machine's paths, or by volumes and exec. */
export interface MountStrategy {
  readonly localPaths: boolean;
  /** Everything that is mounted is in place afterwards; what only the agent needs, only if it is wanted. */
  prepareMounts(spec: SandboxSpec, withAgent: boolean): Promise<SandboxMounts>;
  /** Removes what belongs to a sandbox, once its containers are gone. Never the workspace. */
  removeSandboxFiles(sessionId: string): Promise<void>;

  createWorkspace(spec: WorkspaceSpec): Promise<void>;
  deleteWorkspace(spec: WorkspaceSpec): Promise<void>;
  workspacePath(spec: WorkspaceSpec): string | null;
  publishCode(profile: string, version: number, directory: string): Promise<void>;
  removeCode(profile: string, version: number): Promise<void>;

  /** One attempt. Null when nothing listens yet. */
  dial(sidecarId: string, sessionId: string): Promise<Duplex | null>;
}

export function bindMount(source: string, target: string, readOnly = false): MountSettings {
  return { Type: 'bind', Source: source, Target: target, ReadOnly: readOnly };
}

export function volumeMount(name: string, target: string, readOnly = false): MountSettings {
  // NoCopy: what an image has at that place must not get into our volumes.
  return {
    Type: 'volume',
    Source: name,
    Target: target,
    ReadOnly: readOnly,
    VolumeOptions: { NoCopy: true },
  } as MountSettings;
}

/** Workspaces that are named volumes: the same with and without local paths. */
export class VolumeWorkspaces {
  readonly #containers: Containers;
  readonly #chores: HelperContainers;
  readonly #naming: Naming;

  constructor(containers: Containers, chores: HelperContainers, naming: Naming) {
    this.#containers = containers;
    this.#chores = chores;
    this.#naming = naming;
  }

  mount(sessionId: string): MountSettings {
    return volumeMount(this.#naming.sessionVolume(sessionId, 'workspace'), IN_SANDBOX.workspace);
  }

  async create({ sessionId, uid, gid }: WorkspaceSpec): Promise<void> {
    const name = this.#naming.sessionVolume(sessionId, 'workspace');
    await this.#containers.createVolume(name, this.#naming.labels('workspace', { session: sessionId }));
    // Also when it was there: we may have been killed before it got its owner.
    await this.setOwner([name], sessionId, uid, gid);
  }

  /** A volume that is missing would be made anew, empty, by the engine: never silently. */
  async requireExists(sessionId: string): Promise<void> {
    const name = this.#naming.sessionVolume(sessionId, 'workspace');
    if (await this.#containers.hasVolume(name)) return;
    throw workspaceMissingError(sessionId, `volume ${name} does not exist`);
  }

  async remove(sessionId: string): Promise<void> {
    await this.#containers.removeVolume(this.#naming.sessionVolume(sessionId, 'workspace'));
  }

  /** Gives the roots of volumes to a session's uid, mode 0700. */
  async setOwner(names: readonly string[], session: string, uid: number, gid: number): Promise<void> {
    const places = names.map((name, index) => ({ name, place: `/volumes/${index}` }));
    await this.#chores.run({
      what: `Cannot hand the volumes of ${session} to their owner`,
      command: [
        'node',
        '-e',
        `const fs = require('node:fs');
         const [uid, gid, ...places] = process.argv.slice(1);
         for (const place of places) { fs.chmodSync(place, 0o700); fs.chownSync(place, Number(uid), Number(gid)); }`,
        String(uid),
        String(gid),
        ...places.map(({ place }) => place),
      ],
      mounts: places.map(({ name, place }) => volumeMount(name, place)),
      user: 'root',
      session,
    });
  }
}

export function workspaceMissingError(sessionId: string, why: string): HoldfastError {
  return new HoldfastError('sandbox_failed', `The workspace of ${sessionId} is gone`, {
    why,
    next: 'bring it back from a backup, or delete the session',
    details: { session: sessionId },
  });
}
