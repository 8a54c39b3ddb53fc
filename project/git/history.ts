import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { mkdir, open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { PROJECT_LIMITS } from '../../protocol/deploy.ts';
import { explainFileError } from '../file-error.ts';
import type { ProjectItem } from '../read-project.ts';
import { allowedConfig, requireKnownFormat } from './allowed-config.ts';
import { type ConfigEntry, parseGitConfig } from './config.ts';
import { LARGEST_INDEX, portableIndex } from './index-file.ts';
import { type GitLocation, locateRepository, lstatOrNull } from './location.ts';
import { openRegular, readSmallFile } from './read-file.ts';
import { namesIn, packedRefs, readHead, readRefs, requireFolder } from './refs.ts';
import { gitHistoryError } from './error.ts';

const LARGEST_CONFIG = 2 ** 20;
const LARGEST_LIST = 2 ** 20;
const CHUNK = 256 * 1024;
const OBJECT_MODE = 0o444;

export interface HistoryReadOptions {
  /** Whether a new workspace starts with the path; one character per byte. */
  readonly isSeeded: (path: string) => boolean;
  /** Throws if a folder must not be read. */
  readonly requireAllowed: (folder: string) => Promise<unknown>;
  readonly signal?: AbortSignal;
}

export interface HistoryLimits {
  readonly bytes: number;
  readonly files: number;
}

export interface HistoryCopyOptions {
  /** Limits of the history and the project's own files together; `used` counts the files. */
  readonly limits?: HistoryLimits;
  readonly used?: HistoryLimits;
  readonly signal?: AbortSignal | undefined;
  readonly progress?: (files: number) => void;
}

/**
 * The git history of a project for new workspaces: refs, index and objects of the repository, and a config of our
 * own. Everything else is excluded: hooks, reflogs, merge state, alternates, links.
 */
export class GitHistory {
  readonly #location: GitLocation;
  /** File contents by path below .git. */
  readonly #files: ReadonlyMap<string, Buffer>;
  /** Equal for equal history, index and config, however git packs the objects. */
  readonly hash: string;

  private constructor(location: GitLocation, files: ReadonlyMap<string, Buffer>) {
    this.#location = location;
    this.#files = files;
    const hash = createHash('sha256');
    for (const [path, content] of files)
      hash.update(`${path.length}:${path}${content.length}:`).update(content);
    this.hash = hash.digest('hex');
  }

  /** Reads everything but the objects. Errors: `profile_invalid` for a kind of repository that is not supported. */
  static async read(
    project: string,
    { isSeeded, requireAllowed, signal }: HistoryReadOptions,
  ): Promise<GitHistory> {
    return await reading(async () => {
      const location = await locateRepository(project);
      await requireAllowed(location.gitDirectory);
      await requireAllowed(location.commonDirectory);
      return await GitHistory.#readAt(location, isSeeded, signal);
    });
  }

  /** Like `read`, for a git directory that a client has uploaded. */
  static async readUploaded(
    gitDirectory: string,
    { isSeeded, signal }: Pick<HistoryReadOptions, 'isSeeded' | 'signal'>,
  ): Promise<GitHistory> {
    const location = { gitDirectory, commonDirectory: gitDirectory };
    return await reading(() => GitHistory.#readAt(location, isSeeded, signal));
  }

  static async #readAt(
    location: GitLocation,
    isSeeded: (path: string) => boolean,
    signal: AbortSignal | undefined,
  ): Promise<GitHistory> {
    const { gitDirectory, commonDirectory } = location;
    const config = await readConfig(commonDirectory);
    requireKnownFormat(config);
    await requireOwnObjects(commonDirectory);
    // Objects are copied after everything that refers to them, so objects of a concurrent commit are not missed.
    const head = await readHead(gitDirectory);
    const refs = await readRefs(commonDirectory, signal);
    const files = new Map<string, Buffer>([
      ['HEAD', Buffer.from(head)],
      ['config', Buffer.from(allowedConfig(config))],
      ['packed-refs', packedRefs(refs)],
    ]);
    for (const [name, target] of refs.symbolic) files.set(name, Buffer.from(`ref: ${target}\n`));
    const shallow = await readSmallFile(join(commonDirectory, 'shallow'), LARGEST_LIST);
    if (shallow !== null) {
      if (!/^(?:[0-9a-f]{40}\n)*$/.test(shallow.toString('latin1')))
        throw gitHistoryError('the file `shallow` is damaged', 'deploy a plain clone');
      if (shallow.length > 0) files.set('shallow', shallow);
    }
    await requireFolder(join(commonDirectory, 'info'));
    const exclude = await readSmallFile(join(commonDirectory, 'info', 'exclude'), LARGEST_LIST);
    if (exclude !== null) files.set('info/exclude', exclude);
    const index = await readSmallFile(join(gitDirectory, 'index'), LARGEST_INDEX);
    if (index !== null) files.set('index', portableIndex(index, isSeeded));
    return new GitHistory(location, files);
  }

  /** Everything that `copyTo` would write, for an upload; a folder before its entries. */
  async *items(signal?: AbortSignal): AsyncGenerator<ProjectItem> {
    const folders = new Set<string>(['.']);
    const missingFolders = (path: string): string[] => {
      const above = dirname(path);
      if (folders.has(above)) return [];
      const missing = [...missingFolders(above), above];
      folders.add(above);
      return missing;
    };
    for (const [path, content] of this.#files) {
      for (const folder of missingFolders(path)) yield { kind: 'folder', path: folder };
      yield { kind: 'file', path, size: content.length, executable: false, content: () => chunksOf(content) };
    }
    const objects = join(this.#location.commonDirectory, 'objects');
    for await (const path of objectFiles(objects)) {
      signal?.throwIfAborted();
      for (const folder of missingFolders(`objects/${path}`)) yield { kind: 'folder', path: folder };
      const file = await openRegular(join(objects, path));
      if (file === null) throw changed();
      try {
        const { size } = await file.stat();
        yield {
          kind: 'file',
          path: `objects/${path}`,
          size,
          executable: false,
          content: () => contentOf(file, size),
        };
      } finally {
        await file.close();
      }
    }
  }

  /**
   * Writes the history to `target`, which must not exist; all bytes are on disk when it returns. Errors: as
   * `copyProject`.
   */
  async copyTo(target: string, options: HistoryCopyOptions = {}): Promise<void> {
    const { limits = PROJECT_LIMITS, used = { files: 0, bytes: 0 }, signal, progress } = options;
    const sum = { files: used.files, bytes: used.bytes };
    const count = (files: number, bytes: number): void => {
      signal?.throwIfAborted();
      sum.files += files;
      sum.bytes += bytes;
      if (sum.files > limits.files || sum.bytes > limits.bytes)
        throw gitHistoryError(
          `the project and its history have more than ${limits.files} files or ${limits.bytes} bytes`,
          'run `git gc`, deploy a shallow clone (`git clone --depth`)',
        );
      if (files > 0 && sum.files % 200 === 0) progress?.(sum.files);
    };
    await reading(async () => {
      const folders = new Set<string>();
      const folder = async (path: string): Promise<void> => {
        if (folders.has(path)) return;
        if (path !== target) await folder(dirname(path));
        await mkdir(path, { mode: 0o755 });
        folders.add(path);
      };
      for (const path of ['refs/heads', 'refs/tags', 'objects/pack', 'objects/info'])
        await folder(join(target, path));
      for (const [path, content] of this.#files) {
        await folder(dirname(join(target, path)));
        count(1, content.length);
        await writeNew(join(target, path), 0o644, async (write) => await write(content));
      }
      const objects = join(this.#location.commonDirectory, 'objects');
      for await (const path of objectFiles(objects)) {
        await folder(dirname(join(target, 'objects', path)));
        count(1, 0);
        await copyFile(join(objects, path), join(target, 'objects', path), (bytes) => count(0, bytes));
      }
      for (const path of folders) await syncFolder(path);
      progress?.(sum.files);
    });
  }
}

async function* chunksOf(content: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < content.length; at += CHUNK) yield content.subarray(at, at + CHUNK);
}

async function* contentOf(
  file: NonNullable<Awaited<ReturnType<typeof openRegular>>>,
  size: number,
): AsyncGenerator<Buffer> {
  const buffer = Buffer.alloc(CHUNK);
  for (let left = size; left > 0;) {
    const { bytesRead } = await file.read(buffer, 0, Math.min(CHUNK, left), null);
    if (bytesRead === 0) throw changed();
    left -= bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

async function readConfig(commonDirectory: string): Promise<ConfigEntry[]> {
  const bytes = await readSmallFile(join(commonDirectory, 'config'), LARGEST_CONFIG);
  return parseGitConfig(bytes?.toString('utf8') ?? '');
}

async function requireOwnObjects(commonDirectory: string): Promise<void> {
  for (const name of ['alternates', 'http-alternates']) {
    if ((await lstatOrNull(join(commonDirectory, 'objects', 'info', name))) === null) continue;
    throw gitHistoryError(
      `it uses objects of another repository (objects/info/${name})`,
      'copy them with `git repack -a -d` and delete that file',
    );
  }
}

/** Loose objects first, then packs with their index: a concurrent repack moves objects in this direction. */
async function* objectFiles(objects: string): AsyncGenerator<string> {
  for (const first of await namesIn(objects)) {
    if (!/^[0-9a-f]{2}$/.test(first)) continue;
    for (const rest of await namesIn(join(objects, first)))
      if (/^[0-9a-f]{38}$/.test(rest)) yield `${first}/${rest}`;
  }
  const packs = new Set(await namesIn(join(objects, 'pack')));
  for (const name of packs) {
    const pack = /^(pack-[0-9a-f]{40})\.pack$/.exec(name)?.[1];
    if (pack === undefined || !packs.has(`${pack}.idx`)) continue;
    yield `pack/${pack}.pack`;
    yield `pack/${pack}.idx`;
  }
}

async function copyFile(source: string, target: string, addBytes: (bytes: number) => void): Promise<void> {
  const from = await openRegular(source);
  if (from === null) throw changed();
  try {
    const buffer = Buffer.alloc(CHUNK);
    await writeNew(target, OBJECT_MODE, async (write) => {
      for (;;) {
        const { bytesRead } = await from.read(buffer, 0, CHUNK, null);
        if (bytesRead === 0) return;
        addBytes(bytesRead);
        await write(buffer.subarray(0, bytesRead));
      }
    });
  } finally {
    await from.close();
  }
}

async function writeNew(
  path: string,
  mode: number,
  fill: (write: (bytes: Buffer) => Promise<void>) => Promise<void>,
): Promise<void> {
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const file = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    await fill(async (bytes) => {
      for (let offset = 0; offset < bytes.length;)
        offset += (await file.write(bytes, offset, bytes.length - offset, null)).bytesWritten;
    });
    await file.chmod(mode);
    await file.datasync();
  } finally {
    await file.close();
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

async function reading<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw explainFileError(error, 'The git history of the project cannot be copied', '.git');
  }
}

function changed(): HoldfastError {
  return new HoldfastError('conflict', 'The git history of the project cannot be copied', {
    why: 'the repository was repacked while it was being copied',
    next: 'deploy again',
  });
}
