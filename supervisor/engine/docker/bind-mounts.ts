import {
  chmod,
  chown,
  cp,
  lstat,
  mkdir,
  readFile,
  readdir,
  rename,
  rmdir,
  stat,
  writeFile,
} from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Duplex } from 'node:stream';
import { HoldfastError } from '../../../protocol/errors.ts';
import { IN_SANDBOX } from '../../../sidecar/wire.ts';
import { removeTree } from '../../store/remove-tree.ts';
import type { SandboxSpec, WorkspaceSpec } from '../port.ts';
import { accountFiles, NETWORK_FILES } from './container-options.ts';
import { connectToSidecarSocket } from './dial.ts';
import type { MountStrategy, SandboxMounts, VolumeWorkspaces } from './mount-strategy.ts';
import { bindMount, workspaceMissingError } from './mount-strategy.ts';
import type { SandboxPrograms } from './programs.ts';

/** Names in the control folder. */
const NOTES: readonly string[] = [IN_SANDBOX.temporaryChmodsName, IN_SANDBOX.temporaryEntriesName];
/** Prefix of a run directory that is being removed. */
const DISCARDED = '.gone-';
/** How long a session waits for that: an agent can fill its run directory with any number of files. */
const REMOVAL_WAIT_MS = 3_000;

/** For an engine that sees this machine's files: bind-mounts folders of the home. */
export class BindMountStrategy implements MountStrategy {
  readonly localPaths = true;
  readonly #home: string;
  readonly #programs: SandboxPrograms;
  readonly #volumes: VolumeWorkspaces;
  readonly #removalWaitMs: number;
  /** Run directories that are being removed, by path. */
  readonly #removals = new Map<string, Promise<void>>();

  constructor(
    home: string,
    programs: SandboxPrograms,
    volumes: VolumeWorkspaces,
    removalWaitMs = REMOVAL_WAIT_MS,
  ) {
    this.#home = resolve(home);
    this.#programs = programs;
    this.#volumes = volumes;
    this.#removalWaitMs = removalWaitMs;
  }

  async prepareMounts(spec: SandboxSpec): Promise<SandboxMounts> {
    const { sessionId, code } = spec;
    const [durable, programs, etc] = await Promise.all([
      this.#durableMounts(spec.workspace),
      this.#programs.publish(),
      this.#etc(spec),
      this.#owned(this.#run(sessionId, 'agent'), spec),
      this.#owned(this.#run(sessionId, 'control'), spec),
    ]);
    const both = [
      ...durable,
      bindMount(this.#run(sessionId, 'agent'), IN_SANDBOX.run),
      bindMount(programs, IN_SANDBOX.runtime, true),
    ];
    return {
      sidecar: [...both, bindMount(this.#run(sessionId, 'control'), IN_SANDBOX.control)],
      agent: [
        ...both,
        ...(code.version === 0
          ? []
          : [bindMount(this.#code(code.profile, code.version), IN_SANDBOX.agent, true)]),
        ...etc,
      ],
    };
  }

  async removeSandboxFiles(sessionId: string): Promise<void> {
    const runs = join(this.#home, 'run');
    const discarded = join(runs, `${DISCARDED}${sessionId}-${randomBytes(4).toString('hex')}`);
    const notes = await this.#notes(sessionId);
    if (notes.length > 0) await this.#discardExcept(notes, sessionId, discarded);
    else await renameIfExists(this.#run(sessionId), discarded);
    await Promise.race([
      this.#removeDiscarded(sessionId),
      sleep(this.#removalWaitMs, undefined, { ref: false }),
    ]);
  }

  /** Including leftovers of an attempt that was killed. */
  async #removeDiscarded(sessionId: string): Promise<void> {
    const runs = join(this.#home, 'run');
    const names = (await namesIn(runs)).filter((name) => name.startsWith(`${DISCARDED}${sessionId}-`));
    await Promise.all(names.map((name) => this.#remove(join(runs, name))));
  }

  /** Removes what nobody uses any more. A failure is left to the next call. */
  #remove(path: string): Promise<void> {
    const running = this.#removals.get(path);
    if (running !== undefined) return running;
    const removal = removeTree(path)
      .then(() => undefined)
      .finally(() => this.#removals.delete(path));
    this.#removals.set(path, removal);
    return removal;
  }

  async createWorkspace(spec: WorkspaceSpec): Promise<void> {
    if (spec.backing === 'volume') return this.#volumes.create(spec);
    await this.#owned(this.#workspace(spec.sessionId), spec);
    await this.#owned(this.#agentHome(spec.sessionId), spec);
  }

  async deleteWorkspace(spec: WorkspaceSpec): Promise<void> {
    if (spec.backing === 'volume') await this.#volumes.remove(spec.sessionId);
    else {
      await this.#removeEmpty(spec.sessionId);
      await removeTree(this.#agentHome(spec.sessionId));
    }
    await removeTree(this.#run(spec.sessionId));
    await this.#removeDiscarded(spec.sessionId);
  }

  async #removeEmpty(sessionId: string): Promise<void> {
    const path = this.#workspace(sessionId);
    try {
      await rmdir(path);
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return;
      if (codeOf(error) !== 'ENOTEMPTY') throw error;
      throw new HoldfastError('conflict', `The workspace of ${sessionId} is not empty`, {
        why: `${path} still has files`,
        next: 'try again: the content is deleted first',
        details: { session: sessionId, path },
        cause: error,
      });
    }
  }

  workspacePath(spec: WorkspaceSpec): string | null {
    return spec.backing === 'directory' ? this.#workspace(spec.sessionId) : null;
  }

  async publishCode(profile: string, version: number, directory: string): Promise<void> {
    const target = this.#code(profile, version);
    if (resolve(directory) === target || (await isFolder(target))) return;
    await mkdir(dirname(target), { recursive: true, mode: 0o700 });
    const staging = `${target}.staging`;
    await removeTree(staging);
    await cp(directory, staging, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
    await rename(staging, target);
  }

  async removeCode(profile: string, version: number): Promise<void> {
    await removeTree(this.#code(profile, version));
  }

  async programsMount(target: string): Promise<SandboxMounts['agent'][number]> {
    return bindMount(await this.#programs.publish(), target, true);
  }

  dial(_sidecarId: string, sessionId: string): Promise<Duplex | null> {
    return connectToSidecarSocket(join(this.#run(sessionId, 'control'), IN_SANDBOX.socketName));
  }

  /**
   * Notes of a killed sidecar about modes that it changed temporarily or entries that it created in the workspace.
   * The next sidecar of the session, perhaps in another sandbox, reverts them.
   */
  async #notes(sessionId: string): Promise<string[]> {
    const control = this.#run(sessionId, 'control');
    if (!(await isFolder(control))) return [];
    const left = [];
    for (const name of NOTES) {
      const notes = join(control, name);
      if ((await isFolder(notes)) && (await namesIn(notes)).length > 0) left.push(name);
    }
    return left;
  }

  async #discardExcept(notes: readonly string[], sessionId: string, discarded: string): Promise<void> {
    await mkdir(join(discarded, 'control'), { recursive: true, mode: 0o700 });
    const parts: readonly (readonly [part: '' | 'control', kept: readonly string[]])[] = [
      ['', ['control']],
      ['control', notes],
    ];
    for (const [part, kept] of parts) {
      for (const name of await namesIn(this.#run(sessionId, part))) {
        if (!kept.includes(name))
          await renameIfExists(join(this.#run(sessionId, part), name), join(discarded, part, name));
      }
    }
  }

  /** The workspace, which must exist, and HOME, which a session of an earlier version does not have yet. */
  async #durableMounts(spec: WorkspaceSpec): Promise<SandboxMounts['agent']> {
    const { sessionId } = spec;
    if (spec.backing === 'volume') {
      await this.#volumes.requireExists(sessionId);
      await this.#volumes.ensureHome(spec);
      return [this.#volumes.mount(sessionId), this.#volumes.homeMount(sessionId)];
    }
    const path = this.#workspace(sessionId);
    if (!(await isFolder(path))) throw workspaceMissingError(sessionId, `${path} does not exist`);
    const agentHome = this.#agentHome(sessionId);
    await this.#owned(agentHome, spec);
    return [bindMount(path, IN_SANDBOX.workspace), bindMount(agentHome, IN_SANDBOX.home)];
  }

  async #etc(spec: SandboxSpec): Promise<SandboxMounts['agent']> {
    const folder = this.#run(spec.sessionId, 'etc');
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const files = Object.entries({ ...accountFiles(spec.uid, spec.gid), ...NETWORK_FILES });
    await Promise.all(files.map(([name, text]) => writeOnce(join(folder, name), text)));
    return files.map(([name]) => bindMount(join(folder, name), `/etc/${name}`, true));
  }

  /** Creates a folder that belongs to a session's uid and is closed to others. */
  async #owned(path: string, owner: { uid: number; gid: number }): Promise<void> {
    await mkdir(path, { recursive: true, mode: 0o700 });
    const facts = await stat(path);
    if (facts.uid === owner.uid && facts.gid === owner.gid) return;
    try {
      await chown(path, owner.uid, owner.gid);
    } catch (error) {
      throw new HoldfastError('permission_denied', `Cannot give ${path} to uid ${owner.uid}`, {
        why: 'only root may give files to another user',
        next: 'use the uid and gid that the supervisor runs as',
        details: { path, uid: owner.uid, gid: owner.gid },
        cause: error,
      });
    }
  }

  #run(sessionId: string, part = ''): string {
    return join(this.#home, 'run', sessionId, part);
  }

  #workspace(sessionId: string): string {
    return join(this.#home, 'workspaces', sessionId);
  }

  #agentHome(sessionId: string): string {
    return join(this.#home, 'homes', sessionId);
  }

  #code(profile: string, version: number): string {
    return join(this.#home, 'deploys', profile, String(version));
  }
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return [];
    throw error;
  }
}

async function renameIfExists(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await lstat(path)).isDirectory();
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false;
    throw error;
  }
}

/** Keeps an equal file: a running container has that very inode mounted. */
async function writeOnce(path: string, text: string): Promise<void> {
  try {
    if ((await readFile(path, 'utf8')) === text) return;
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
  const temporary = `${path}.${randomBytes(4).toString('hex')}`;
  await writeFile(temporary, text, { mode: 0o644 });
  await chmod(temporary, 0o644);
  await rename(temporary, path);
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}
