import { constants } from 'node:fs';
import { lstat, open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { CONFIG_LIMITS, type ConfigurationList, OWN_HOME } from '../../protocol/agent-config.ts';
import { HomePathSchema } from '../../protocol/agent-home.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { PRESETS } from '../../protocol/presets/index.ts';
import { isPresetName } from '../../protocol/presets/names.ts';
import { hasErrorCode } from '../file-error.ts';
import { describeKind } from '../project-error.ts';
import { fromText } from '../raw-path.ts';
import type { ProjectItem } from '../read-project.ts';
import { isSignInFile } from './sign-in-files.ts';
import { type LeftOut, withoutKeys } from './without-keys.ts';

export interface Configuration {
  readonly list: ConfigurationList;
  /** A folder before its entries. */
  items(): AsyncGenerator<ProjectItem>;
}

export interface ConfigurationOptions {
  /** The project's folder. */
  readonly directory: string;
  /** `agent.config` of the profile. */
  readonly folder: string;
  readonly preset: string | null;
  /** The person's own HOME. */
  readonly ownHome: string;
  readonly signal?: AbortSignal | undefined;
}

interface Found {
  readonly path: string;
  readonly content: Buffer;
  readonly executable: boolean;
}

/**
 * Reads a person's configuration of an agent. Links are not followed, and what looks like a key is left out. Errors:
 * `profile_invalid` (no such folder, too large), `conflict` (changed meanwhile).
 */
export async function readConfiguration(options: ConfigurationOptions): Promise<Configuration> {
  const { directory, folder, preset, ownHome } = options;
  const reader = new Reader(folder === OWN_HOME ? ownHome : join(directory, folder), options);
  if (folder === OWN_HOME) {
    if (!isPresetName(preset))
      throw unreadable(folder, '`~` needs a preset', 'name a preset, or a folder of the project');
    for (const path of PRESETS[preset].configuration) await reader.readListed(path);
  } else await reader.readFolder();
  const files = reader.files.sort((one, other) => (one.path < other.path ? -1 : 1));
  const list = {
    folder,
    files: files.map(({ path, content }) => ({ path, bytes: content.length })),
    leftOut: reader.leftOut,
  };
  return { list, items: () => itemsOf(files) };
}

class Reader {
  readonly files: Found[] = [];
  readonly leftOut: LeftOut[] = [];
  readonly #root: string;
  readonly #options: ConfigurationOptions;
  #bytes = 0;
  #entries = 0;

  constructor(root: string, options: ConfigurationOptions) {
    this.#root = root;
    this.#options = options;
  }

  async readFolder(): Promise<void> {
    const { folder } = this.#options;
    let at = this.#options.directory;
    // The folder itself, and what is above it in the project, are no links out of it either.
    for (const name of folder.split('/')) {
      at = join(at, name);
      const status = await lstat(at).catch(() => undefined);
      if (status?.isDirectory() === true) continue;
      throw unreadable(
        folder,
        status === undefined
          ? 'there is no such folder in the project'
          : `${name} is ${describeKind(status)}`,
        'correct `agent.config` in holdfast.yaml: a folder that is laid out as HOME (`agent-home/.claude/CLAUDE.md`)',
      );
    }
    await this.#readEntries('');
  }

  /** A path that need not exist. */
  async readListed(path: string): Promise<void> {
    const names = path.split('/');
    for (let depth = 1; depth < names.length; depth += 1) {
      const parent = names.slice(0, depth).join('/');
      const status = await lstat(join(this.#root, parent)).catch(() => undefined);
      if (status === undefined) return;
      if (status.isDirectory()) continue;
      if (!this.leftOut.some((one) => one.path === parent))
        this.#leaveOut(parent, `it is ${describeKind(status)}`);
      return;
    }
    const exists = await lstat(join(this.#root, path)).then(
      () => true,
      (error: unknown) => {
        if (hasErrorCode(error, 'ENOENT')) return false;
        throw error;
      },
    );
    if (exists) await this.#read(path);
  }

  async #read(path: string): Promise<void> {
    this.#options.signal?.throwIfAborted();
    const at = join(this.#root, path);
    const status = await lstat(at);
    this.#entries += 1;
    if (this.#entries > 2 * CONFIG_LIMITS.files) throw tooLarge(this.#options.folder);
    if (!HomePathSchema.safeParse(path).success) this.#leaveOut(path, 'its path is too long or too deep');
    else if (isSignInFile(path)) this.#leaveOut(path, 'the agent signs in with it');
    else if (status.isDirectory()) {
      if (path.split('/').includes('.git')) this.#leaveOut(path, 'it is git data');
      else await this.#readEntries(path);
    } else if (!status.isFile()) this.#leaveOut(path, `it is ${describeKind(status)}`);
    else await this.#readFile(path, at);
  }

  async #readEntries(path: string): Promise<void> {
    for (const name of (await readdir(join(this.#root, path))).sort()) {
      await this.#read(path === '' ? name : `${path}/${name}`);
    }
  }

  async #readFile(path: string, at: string): Promise<void> {
    const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
    const handle = await open(at, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    try {
      const status = await handle.stat();
      if (!status.isFile() || status.nlink === 0) throw changed(path);
      if (status.size > CONFIG_LIMITS.fileBytes) {
        this.#leaveOut(path, `it has more than ${CONFIG_LIMITS.fileBytes / 2 ** 20} MiB`);
        return;
      }
      const buffer = Buffer.alloc(status.size + 1);
      let length = 0;
      for (;;) {
        const { bytesRead } = await handle.read(buffer, length, buffer.length - length, length);
        length += bytesRead;
        if (bytesRead === 0) break;
        if (length === buffer.length) throw changed(path);
      }
      const { content, leftOut } = await withoutKeys(path, buffer.subarray(0, length));
      this.leftOut.push(...leftOut);
      if (content === null) return;
      this.#bytes += content.length;
      this.files.push({ path, content, executable: (status.mode & 0o111) !== 0 });
      if (this.files.length > CONFIG_LIMITS.files || this.#bytes > CONFIG_LIMITS.bytes)
        throw tooLarge(this.#options.folder);
    } finally {
      await handle.close();
    }
  }

  #leaveOut(path: string, why: string): void {
    this.leftOut.push({ path, why });
  }
}

async function* itemsOf(files: readonly Found[]): AsyncGenerator<ProjectItem> {
  const made = new Set<string>();
  for (const { path, content, executable } of files) {
    const names = path.split('/');
    for (let depth = 1; depth < names.length; depth += 1) {
      const folder = names.slice(0, depth).join('/');
      if (made.has(folder)) continue;
      made.add(folder);
      yield { kind: 'folder', path: fromText(folder) };
    }
    yield {
      kind: 'file',
      path: fromText(path),
      size: content.length,
      executable,
      async *content() {
        if (content.length > 0) yield content;
      },
    };
  }
}

function unreadable(folder: string, why: string, next: string): HoldfastError {
  return new HoldfastError('profile_invalid', `The configuration ${folder} cannot be copied`, { why, next });
}

function tooLarge(folder: string): HoldfastError {
  return unreadable(
    folder,
    `it has more than ${CONFIG_LIMITS.files} files or ${CONFIG_LIMITS.bytes / 2 ** 20} MiB`,
    'keep only configuration in it; data belongs into the project or the image',
  );
}

function changed(path: string): HoldfastError {
  return new HoldfastError('conflict', `${path} cannot be copied`, {
    why: 'the file changed while it was being read',
    next: 'deploy again',
  });
}
