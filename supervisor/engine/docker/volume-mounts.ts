import { createHash } from 'node:crypto';
import { lstat, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Duplex, Readable } from 'node:stream';
import { HoldfastError } from '../../../protocol/errors.ts';
import { IN_SANDBOX } from '../../../sidecar/wire.ts';
import type { SandboxSpec, WorkspaceSpec } from '../port.ts';
import type { HelperContainers } from './helper-containers.ts';
import type { Containers } from './containers.ts';
import { ExecChannel } from './exec-channel.ts';
import type { Execs } from './exec.ts';
import type { Naming } from './labels.ts';
import { volumeMount } from './mount-strategy.ts';
import type { MountStrategy, SandboxMounts, VolumeWorkspaces } from './mount-strategy.ts';
import type { SandboxPrograms } from './programs.ts';

const SIDECAR = `${IN_SANDBOX.runtime}/sidecar.cjs`;
const LISTEN_MS = 10_000;

/** Exits with 0 once somebody listens on the sidecar's socket. */
const AWAIT_PROGRAM = `
const net = require('node:net');
const until = Date.now() + ${LISTEN_MS};
const attempt = () => {
  const socket = net.connect('${IN_SANDBOX.control}/${IN_SANDBOX.socketName}');
  socket.on('connect', () => process.exit(0));
  socket.on('error', (error) => {
    if (Date.now() > until) { console.error(error.message); process.exit(1); }
    setTimeout(attempt, 10);
  });
};
attempt();
`;

/**
 * For an engine that does not see this machine's files: everything is a volume, filled through the stdin of a helper
 * container, and the sidecar is reached through a relay that runs with exec.
 */
export class VolumeMountStrategy implements MountStrategy {
  readonly localPaths = false;
  readonly #home: string;
  readonly #containers: Containers;
  readonly #helpers: HelperContainers;
  readonly #execs: Execs;
  readonly #naming: Naming;
  readonly #programs: SandboxPrograms;
  readonly #workspaces: VolumeWorkspaces;
  /** Volumes that are being filled, by name. */
  readonly #filling = new Map<string, Promise<void>>();
  /** Sidecars that have listened at least once. */
  readonly #listening = new Set<string>();

  constructor(
    home: string,
    parts: {
      containers: Containers;
      helpers: HelperContainers;
      execs: Execs;
      naming: Naming;
      programs: SandboxPrograms;
      workspaces: VolumeWorkspaces;
    },
  ) {
    this.#home = home;
    this.#containers = parts.containers;
    this.#helpers = parts.helpers;
    this.#execs = parts.execs;
    this.#naming = parts.naming;
    this.#programs = parts.programs;
    this.#workspaces = parts.workspaces;
  }

  async prepareMounts(spec: SandboxSpec, withAgent: boolean): Promise<SandboxMounts> {
    const { sessionId, uid, gid, code } = spec;
    if (spec.workspace.backing === 'directory') throw requiresLocalPaths();
    const run = this.#naming.sessionVolume(sessionId, 'run');
    const control = this.#naming.sessionVolume(sessionId, 'control');
    const ensureOwned = (name: string, role: 'run' | 'control'): Promise<void> =>
      this.#ensureFilled(name, this.#naming.labels(role, { session: sessionId }), () =>
        this.#workspaces.setOwner([name], sessionId, uid, gid),
      );
    const [runtime, published] = await Promise.all([
      this.#runtime(),
      withAgent && code.version !== 0
        ? this.#code(code.profile, code.version)
        : this.#naming.codeVolume(code.profile, code.version),
      this.#workspaces.requireExists(sessionId).then(() => this.#workspaces.ensureHome(spec)),
      ensureOwned(run, 'run'),
      ensureOwned(control, 'control'),
    ]);
    const both = [
      this.#workspaces.mount(sessionId),
      this.#workspaces.homeMount(sessionId),
      volumeMount(run, IN_SANDBOX.run),
      volumeMount(runtime, IN_SANDBOX.runtime, true),
    ];
    return {
      sidecar: [...both, volumeMount(control, IN_SANDBOX.control)],
      // A volume cannot be mounted as a single file: user names are the image's here.
      agent: [...both, ...(code.version === 0 ? [] : [volumeMount(published, IN_SANDBOX.agent, true)])],
    };
  }

  async removeSandboxFiles(sessionId: string): Promise<void> {
    await this.#drop(this.#naming.sessionVolume(sessionId, 'run'));
    await this.#drop(this.#naming.sessionVolume(sessionId, 'control'));
  }

  async createWorkspace(spec: WorkspaceSpec): Promise<void> {
    if (spec.backing === 'directory') throw requiresLocalPaths();
    await this.#workspaces.create(spec);
  }

  async deleteWorkspace(spec: WorkspaceSpec): Promise<void> {
    if (spec.backing === 'directory') throw requiresLocalPaths();
    await this.#workspaces.remove(spec.sessionId);
  }

  workspacePath(): string | null {
    return null;
  }

  async publishCode(profile: string, version: number, directory: string): Promise<void> {
    await this.#fill(this.#naming.codeVolume(profile, version), 'code', () => Promise.resolve(directory));
  }

  async removeCode(profile: string, version: number): Promise<void> {
    await this.#drop(this.#naming.codeVolume(profile, version));
  }

  async programsMount(target: string): Promise<SandboxMounts['agent'][number]> {
    return volumeMount(await this.#runtime(), target, true);
  }

  async dial(sidecarId: string, sessionId: string): Promise<Duplex | null> {
    const what = `Cannot reach the sidecar of ${sessionId}`;
    const streams = { AttachStdout: true, AttachStderr: true, Tty: false };
    if (!this.#listening.has(sidecarId)) {
      const command = { ...streams, AttachStdin: false, Cmd: ['node', '-e', AWAIT_PROGRAM] };
      const waiting = await this.#execs.start(sidecarId, command, false, what);
      if ((await this.#execs.waitForExit(sidecarId, waiting)) !== 0) return null;
      this.#listening.add(sidecarId);
    }
    const relay = { ...streams, AttachStdin: true, Cmd: ['node', SIDECAR, 'relay'] };
    return new ExecChannel(await this.#execs.start(sidecarId, relay, false, what));
  }

  async #runtime(): Promise<string> {
    const name = this.#naming.runtimeVolume(this.#programs.hash);
    await this.#fill(name, 'runtime', () => this.#programs.publish());
    return name;
  }

  async #code(profile: string, version: number): Promise<string> {
    const name = this.#naming.codeVolume(profile, version);
    const folder = join(this.#home, 'deploys', profile, String(version));
    await this.#fill(name, 'code', async () => {
      if (await isFolder(folder)) return folder;
      throw new HoldfastError('sandbox_failed', `The code of ${profile} is missing`, {
        why: `${folder} does not exist`,
        next: 'deploy the profile again',
        details: { profile, version },
      });
    });
    return name;
  }

  #fill(name: string, role: 'runtime' | 'code', folder: () => Promise<string>): Promise<void> {
    return this.#ensureFilled(name, this.#naming.labels(role), async () => {
      const { folderTar } = await import('./folder-tar.ts');
      const stdin: Readable = folderTar(await folder());
      await this.#helpers.run({
        what: `Cannot fill volume ${name}`,
        command: ['busybox', 'tar', '-x', '-f', '-', '-C', '/into'],
        mounts: [volumeMount(name, '/into')],
        user: 'root',
        stdin,
      });
    });
  }

  /** Creates and fills a volume, once in its life, also after a crash half-way. */
  #ensureFilled(name: string, labels: Record<string, string>, fill: () => Promise<void>): Promise<void> {
    const current = this.#filling.get(name);
    if (current !== undefined) return current;
    const work = this.#createAndFill(name, labels, fill).finally(() => this.#filling.delete(name));
    this.#filling.set(name, work);
    return work;
  }

  async #createAndFill(
    name: string,
    labels: Record<string, string>,
    fill: () => Promise<void>,
  ): Promise<void> {
    const instance = await this.#containers.createVolume(name, labels);
    const mark = this.#mark(name);
    if ((await readText(mark)) === instance) return;
    await fill();
    await mkdir(join(this.#home, 'engine/volumes'), { recursive: true, mode: 0o700 });
    await writeFile(`${mark}.new`, instance, { mode: 0o600 });
    await rename(`${mark}.new`, mark);
  }

  async #drop(name: string): Promise<void> {
    await rm(this.#mark(name), { force: true });
    await this.#containers.removeVolume(name);
  }

  /** The file that records which volume of this name was filled; short for any name. */
  #mark(name: string): string {
    const short = createHash('sha256').update(name).digest('hex').slice(0, 32);
    return join(this.#home, 'engine/volumes', short);
  }
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await lstat(path)).isDirectory();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return false;
    throw error;
  }
}

async function readText(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}

function requiresLocalPaths(): HoldfastError {
  return new HoldfastError('not_supported', 'A workspace cannot be a directory on this engine', {
    why: "the engine does not see this machine's files",
    next: 'set `workspace.backing: volume` in holdfast.yaml, or use an engine that runs on this machine',
  });
}
