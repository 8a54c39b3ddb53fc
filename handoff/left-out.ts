import { lstat, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isInConfigFolder } from '../protocol/agent-config.ts';
import { IGNORE_FILES, IgnoreRules } from '../project/ignore-rules.ts';
import { PROFILE_FILE } from '../project/profile-file.ts';
import { wantedConfiguration } from '../project/profile-text.ts';
import { type RawPath, readable, toBytes } from '../project/raw-path.ts';
import { PROFILE_BYTES } from '../protocol/deploy.ts';
import { HoldfastError } from '../protocol/errors.ts';
import { batchesOf, contentsOf, sizesOf } from './blobs.ts';
import type { CommittedEntry, Repository } from './repository.ts';

const LARGEST_IGNORE_FILE = 2 ** 20;

/** Texts of a project's ignore files and of its profile, by their paths in the project. */
type Texts = ReadonlyMap<RawPath, string>;

/**
 * Whether a deploy of the project would leave out a path, relative to the project, of the commit. Its ignore files count as they are in
 * the commit and as they are in the work tree: one that nobody committed is obeyed by a deploy, too. Errors: `not_supported` for an
 * ignore file above 1 MiB.
 */
export async function readLeftOut(
  { git, root }: Pick<Repository, 'git' | 'root'>,
  { committed, prefix }: { committed: ReadonlyMap<RawPath, CommittedEntry>; prefix: RawPath },
  signal?: AbortSignal,
): Promise<(path: RawPath) => boolean> {
  const sources = [await committedTexts(git, committed, prefix)];
  if (root !== null) sources.push(await textsOnDisk(root, committed, prefix, signal));
  const left = await Promise.all(
    sources.map(async (texts) => {
      const rules = new FolderRules(texts);
      const configuration = await wantedConfiguration(texts.get(PROFILE_FILE) ?? '');
      return (path: RawPath): boolean =>
        rules.ignores(path) || isInConfigFolder(readable(path), configuration?.folder);
    }),
  );
  return (path) => left.some((leavesOut) => leavesOut(path));
}

/** The rules of each folder. What is below an ignored folder is ignored. */
class FolderRules {
  readonly #texts: Texts;
  /** By folder, relative to the project; null for one that is ignored. */
  readonly #rules = new Map<RawPath, IgnoreRules | null>();

  constructor(texts: Texts) {
    this.#texts = texts;
  }

  ignores(path: RawPath): boolean {
    if (path === PROFILE_FILE) return false;
    return this.#of(folderOf(path))?.ignores(readable(path), false) ?? true;
  }

  #of(folder: RawPath): IgnoreRules | null {
    const known = this.#rules.get(folder);
    if (known !== undefined) return known;
    const above = folder === '' ? IgnoreRules.none() : this.#of(folderOf(folder));
    const isIgnored = above === null || (folder !== '' && above.ignores(readable(folder), true));
    const rules = isIgnored ? null : above.within(readable(folder), this.#textsIn(folder));
    this.#rules.set(folder, rules);
    return rules;
  }

  #textsIn(folder: RawPath): string[] {
    return IGNORE_FILES.flatMap((name) => this.#texts.get(inFolder(folder, name)) ?? []);
  }
}

async function committedTexts(
  git: Repository['git'],
  committed: ReadonlyMap<RawPath, CommittedEntry>,
  prefix: RawPath,
): Promise<Texts> {
  const found: { readonly path: RawPath; readonly blob: string }[] = [];
  for (const [path, { mode, blob }] of committed) {
    const inProject = path.slice(prefix.length);
    // As in a deploy, a link is no ignore file.
    if (path.startsWith(prefix) && mode.startsWith('100') && isRead(inProject))
      found.push({ path: inProject, blob });
  }
  const sizes = await sizesOf(git, [...new Set(found.map(({ blob }) => blob))]);
  for (const { path, blob } of found) requireSmall(path, sizes.get(blob) ?? 0);
  const texts = new Map<string, string>();
  for (const batch of batchesOf([...sizes].map(([blob, size]) => ({ blob, size })))) {
    const contents = await contentsOf(git, batch);
    for (const [at, { blob }] of batch.entries()) texts.set(blob, contents[at]?.toString('utf8') ?? '');
  }
  return new Map(found.map(({ path, blob }) => [path, texts.get(blob) ?? '']));
}

async function textsOnDisk(
  root: string,
  committed: ReadonlyMap<RawPath, CommittedEntry>,
  prefix: RawPath,
  signal?: AbortSignal,
): Promise<Texts> {
  const folders = new Set<RawPath>(['']);
  for (const path of committed.keys()) {
    if (!path.startsWith(prefix)) continue;
    for (let folder = folderOf(path.slice(prefix.length)); !folders.has(folder); folder = folderOf(folder))
      folders.add(folder);
  }
  const texts = new Map<RawPath, string>();
  for (const folder of folders) {
    signal?.throwIfAborted();
    for (const name of folder === '' ? [...IGNORE_FILES, PROFILE_FILE] : IGNORE_FILES) {
      const path = inFolder(folder, name);
      const onDisk = Buffer.concat([Buffer.from(join(root, '/')), toBytes(prefix + path)]);
      const status = await lstat(onDisk).catch(() => null);
      if (status?.isFile() !== true) continue;
      requireSmall(path, status.size);
      texts.set(path, await readFile(onDisk, 'utf8'));
    }
  }
  return texts;
}

function isRead(path: RawPath): boolean {
  const name = path.slice(path.lastIndexOf('/') + 1);
  return path === PROFILE_FILE || IGNORE_FILES.some((one) => one === name);
}

function requireSmall(path: RawPath, size: number): void {
  const most = path === PROFILE_FILE ? PROFILE_BYTES : LARGEST_IGNORE_FILE;
  if (size <= most) return;
  throw new HoldfastError('not_supported', `The commit cannot be the base of a review: ${readable(path)}`, {
    why: `it has ${size} bytes, and the maximum is ${most}`,
    next: 'shorten it, or use --base start',
  });
}

function folderOf(path: RawPath): RawPath {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')));
}

function inFolder(folder: RawPath, name: string): RawPath {
  return folder === '' ? name : `${folder}/${name}`;
}
