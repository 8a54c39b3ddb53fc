import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { lstat, open } from 'node:fs/promises';
import { fromBytes, type RawPath } from '../project/raw-path.ts';
import type { Git } from './git.ts';
import { readCommit } from './repository.ts';
import { withIndexOf } from './temporary-index.ts';
import { readBlobs } from './working-tree.ts';
import { WorkingFiles } from './working-files.ts';

/** Git LFS writes no longer ones. */
const MAX_POINTER_BYTES = 1024;
const POINTER =
  /^version https:\/\/git-lfs\.github\.com\/spec\/v1\noid sha256:([0-9a-f]{64})\nsize (\d{1,15})\n$/;

export interface Changed {
  /** The two letters of `git status`. */
  readonly state: string;
  readonly path: RawPath;
}

export interface WorktreeChanges {
  readonly changes: readonly Changed[];
  /** Files that Git LFS wrote in place of their pointers, and nobody has changed since. */
  readonly intact: readonly RawPath[];
}

/**
 * Everything that differs from the commit that is checked out, with untracked and ignored files. `inside`: git without filters, so
 * that a file is as its bytes are. The worktree's own index may say of files that nobody is to look at them: one of our own does
 * not.
 */
export async function changesIn(inside: Git): Promise<WorktreeChanges> {
  const status = async (env: Readonly<Record<string, string>>): Promise<Changed[]> => {
    const flags = ['--porcelain=v1', '-z', '--no-renames', '--untracked-files=all', '--ignored=traditional'];
    const listing = await inside.bytes(['status', ...flags], { env });
    return fromBytes(listing)
      .split('\0')
      .filter((entry) => entry.length > 3)
      .map((entry) => ({ state: entry.slice(0, 2), path: entry.slice(3) }));
  };
  const seen = await status({});
  const known = new Set(seen.map(({ path }) => path));
  const hidden = await withIndexOf(inside, 'HEAD', status);
  const all = [...seen, ...hidden.filter(({ path }) => !known.has(path))];
  const intact = await filledPointers(
    inside,
    all.filter(({ state }) => state === ' M').map(({ path }) => path),
  );
  const isIntact = new Set(intact);
  return { changes: all.filter(({ path }) => !isIntact.has(path)), intact };
}

export function isMissing({ state }: Changed): boolean {
  return state.trim() === 'D';
}

/** Those of the files that hold what the pointer names which is committed in their place: LFS need not run to say so. */
async function filledPointers(inside: Git, paths: readonly RawPath[]): Promise<RawPath[]> {
  if (paths.length === 0) return [];
  const committed = await readCommit(inside, 'HEAD');
  const candidates = paths.flatMap((path) => {
    const entry = committed.get(path);
    return entry?.mode.startsWith('100') === true ? [{ path, ...entry }] : [];
  });
  const input = Buffer.from(candidates.map(({ blob }) => `${blob}\n`).join(''));
  const sizes = await inside.text(['cat-file', '--batch-check=%(objectname) %(objectsize)'], { input });
  const small = sizes.split('\n').flatMap((line) => {
    const [blob = '', size] = line.split(' ');
    return Number(size) <= MAX_POINTER_BYTES ? [blob] : [];
  });
  const pointers = await readBlobs(inside, [...new Set(small)]);
  const files = new WorkingFiles(inside.folder, '');
  const filled: RawPath[] = [];
  for (const { path, mode, blob } of candidates) {
    const [, hash, size] = POINTER.exec(pointers.get(blob)?.toString('latin1') ?? '') ?? [];
    if (hash === undefined) continue;
    const isExecutable = mode === '100755';
    if (await isFileOf(files.at(path), { hash, size: Number(size), isExecutable })) filled.push(path);
  }
  return filled;
}

/** Whether it is a file with this SHA-256, size in bytes and executable bit. */
async function isFileOf(
  path: Buffer,
  {
    hash,
    size,
    isExecutable,
  }: { readonly hash: string; readonly size: number; readonly isExecutable: boolean },
): Promise<boolean> {
  const status = await lstat(path).catch(() => null);
  if (status?.isFile() !== true || status.size !== size) return false;
  if (((status.mode & 0o100) !== 0) !== isExecutable) return false;
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  const found = createHash('sha256');
  for await (const bytes of file.createReadStream()) found.update(bytes as Buffer);
  return found.digest('hex') === hash;
}
