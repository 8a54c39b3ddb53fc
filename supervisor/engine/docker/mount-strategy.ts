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

/**
 * How files get into containers and how the sidecar is reached: by bind mounts of this machine's paths, or by volumes
 * and exec.
 */
export interface MountStrategy {
  readonly localPaths: boolean;
  /** Everything to mount exists afterwards; what only the agent needs, only `withAgent`. */
  prepareMounts(spec: SandboxSpec, withAgent: boolean): Promise<SandboxMounts>;
  /** Removes the files and volumes of a sandbox whose containers are gone. Never the workspace or HOME. */
  removeSandboxFiles(sessionId: string): Promise<void>;

  createWorkspace(spec: WorkspaceSpec): Promise<void>;
  deleteWorkspace(spec: WorkspaceSpec): Promise<void>;
  workspacePath(spec: WorkspaceSpec): string | null;
  publishCode(profile: string, version: number, directory: string): Promise<void>;
  removeCode(profile: string, version: number): Promise<void>;

  /** Our program files, read-only. */
  programsMount(target: string): Promise<MountSettings>;

  /** One attempt; null if nobody listens yet. */
  dial(sidecarId: string, sessionId: string): Promise<Duplex | null>;
}

export function bindMount(source: string, target: string, readOnly = false): MountSettings {
  return { Type: 'bind', Source: source, Target: target, ReadOnly: readOnly };
}

export function volumeMount(name: string, target: string, readOnly = false): MountSettings {
  // NoCopy: the image's files at the mount point must not be copied into our volume.
  return {
    Type: 'volume',
    Source: name,
    Target: target,
    ReadOnly: readOnly,
    VolumeOptions: { NoCopy: true },
  } as MountSettings;
}

/** Workspaces and HOMEs in named volumes: the same with and without local paths. */
export class VolumeWorkspaces {
  readonly #containers: Containers;
  readonly #helpers: HelperContainers;
  readonly #naming: Naming;

  constructor(containers: Containers, helpers: HelperContainers, naming: Naming) {
    this.#containers = containers;
    this.#helpers = helpers;
    this.#naming = naming;
  }

  mount(sessionId: string): MountSettings {
    return volumeMount(this.#naming.sessionVolume(sessionId, 'workspace'), IN_SANDBOX.workspace);
  }

  homeMount(sessionId: string): MountSettings {
    return volumeMount(this.#naming.sessionVolume(sessionId, 'home'), IN_SANDBOX.home);
  }

  async create({ sessionId, uid, gid }: WorkspaceSpec): Promise<void> {
    const roles = ['workspace', 'home'] as const;
    for (const role of roles) {
      const labels = this.#naming.labels(role, { session: sessionId });
      await this.#containers.createVolume(this.#naming.sessionVolume(sessionId, role), labels);
    }
    const names = roles.map((role) => this.#naming.sessionVolume(sessionId, role));
    // Also for an existing volume: we may have been killed before it got its owner.
    await this.setOwner(names, sessionId, uid, gid);
  }

  /** A session of an earlier version has no volume for HOME yet. */
  async ensureHome({ sessionId, uid, gid }: Omit<WorkspaceSpec, 'backing'>): Promise<void> {
    const name = this.#naming.sessionVolume(sessionId, 'home');
    if (await this.#containers.hasVolume(name)) return;
    await this.#containers.createVolume(name, this.#naming.labels('home', { session: sessionId }));
    await this.setOwner([name], sessionId, uid, gid);
  }

  /** The engine would silently create a missing volume, empty. Errors: `sandbox_failed`. */
  async requireExists(sessionId: string): Promise<void> {
    const name = this.#naming.sessionVolume(sessionId, 'workspace');
    if (await this.#containers.hasVolume(name)) return;
    throw workspaceMissingError(sessionId, `volume ${name} does not exist`);
  }

  async remove(sessionId: string): Promise<void> {
    await this.#containers.removeVolume(this.#naming.sessionVolume(sessionId, 'home'));
    await this.#containers.removeVolume(this.#naming.sessionVolume(sessionId, 'workspace'));
  }

  /** Gives the root directories of volumes to a session's uid, mode 0700. */
  async setOwner(names: readonly string[], session: string, uid: number, gid: number): Promise<void> {
    const places = names.map((name, index) => ({ name, place: `/volumes/${index}` }));
    await this.#helpers.run({
      what: `Cannot change the owner of the volumes of ${session}`,
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
  return new HoldfastError('sandbox_failed', `The workspace of ${sessionId} is missing`, {
    why,
    next: 'restore it from a backup, or delete the session',
    details: { session: sessionId },
  });
}
