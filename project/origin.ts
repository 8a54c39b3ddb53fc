import { spawn } from 'node:child_process';
import { lstat } from 'node:fs/promises';
import { devNull } from 'node:os';
import { dirname, join } from 'node:path';
import type { ProjectOrigin } from '../protocol/deploy.ts';
import { withoutCredentials } from './git/allowed-config.ts';
import { fromBytes, type RawPath } from './raw-path.ts';

export interface TrackedProject {
  readonly origin: ProjectOrigin;
  /** Blobs in the checked-out commit, by path relative to the project. */
  readonly blobs: ReadonlyMap<RawPath, string>;
}

/** Git is asked for facts; a deploy does not wait longer for them. */
const TIMEOUT_MS = 20_000;
const MOST_OUTPUT = 64 * 2 ** 20;
const MOST_BLOBS = 500_000;

/**
 * Where the project comes from, as git says; null without git or outside a work tree. Runs no hooks, filters or other programs that the
 * repository names, writes nothing and uses no network.
 */
export async function readOrigin(project: string, signal?: AbortSignal): Promise<TrackedProject | null> {
  if (!(await isInWorkTree(project))) return null;
  const deadline = AbortSignal.timeout(TIMEOUT_MS);
  const limits = signal === undefined ? deadline : AbortSignal.any([signal, deadline]);
  const git = (...command: string[]): Promise<Buffer | null> => runGit(project, command, limits);
  const line = async (...command: string[]): Promise<string | null> => {
    const text = (await git(...command))?.toString('utf8').replace(/\n$/, '');
    return text === undefined || text.length > 4096 ? null : text;
  };
  const root = await line('rev-parse', '--show-toplevel');
  signal?.throwIfAborted();
  if (root === null || root === '') return null;
  const [prefix, head, branch, url] = await Promise.all([
    line('rev-parse', '--show-prefix'),
    line('rev-parse', '--verify', '--quiet', 'HEAD^{commit}'),
    line('symbolic-ref', '--quiet', '--short', 'HEAD'),
    line('config', '--get', 'remote.origin.url'),
  ]);
  const commit = head !== null && /^[0-9a-f]{40}$/.test(head) ? head : null;
  const tree = commit === null ? Buffer.alloc(0) : await git('ls-tree', '-r', '-z', commit);
  signal?.throwIfAborted();
  if (tree === null) return null;
  return {
    origin: {
      root,
      prefix: prefix ?? '',
      head: commit,
      branch,
      remote: url === null ? null : withoutCredentials(url),
    },
    blobs: parseTree(tree),
  };
}

/** Without a `.git` above it, git is not even started. */
async function isInWorkTree(project: string): Promise<boolean> {
  for (let folder = project; ; folder = dirname(folder)) {
    const found = await lstat(join(folder, '.git')).catch(() => null);
    if (found !== null) return true;
    if (folder === dirname(folder)) return false;
  }
}

/** `<mode> blob <id>\t<path>\0`; submodules are commits, and have no blob. */
function parseTree(output: Buffer): Map<RawPath, string> {
  const blobs = new Map<RawPath, string>();
  for (const entry of fromBytes(output).split('\0')) {
    const match = /^\d{6} blob ([0-9a-f]{40})\t([^]+)$/.exec(entry);
    if (match !== null && blobs.size < MOST_BLOBS) blobs.set(match[2] ?? '', match[1] ?? '');
  }
  return blobs;
}

/** Its output; null if it fails, is missing, prints too much or takes too long. */
function runGit(folder: string, command: readonly string[], signal: AbortSignal): Promise<Buffer | null> {
  const { promise, resolve } = Promise.withResolvers<Buffer | null>();
  const child = spawn(
    'git',
    ['-c', 'core.fsmonitor=false', '-c', `core.hooksPath=${devNull}`, '-c', 'core.pager=cat', ...command],
    {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'ignore'],
      signal,
      env: {
        ...process.env,
        // Set where a hook runs us; they would name another repository.
        GIT_DIR: undefined,
        GIT_WORK_TREE: undefined,
        GIT_INDEX_FILE: undefined,
        GIT_COMMON_DIR: undefined,
        GIT_OBJECT_DIRECTORY: undefined,
        GIT_ALTERNATE_OBJECT_DIRECTORIES: undefined,
        // A repository that lacks an object may name a program as its remote (`ext::`), and git would fetch from it.
        GIT_ALLOW_PROTOCOL: 'none',
        LC_ALL: 'C',
        GIT_OPTIONAL_LOCKS: '0',
        GIT_TERMINAL_PROMPT: '0',
        GIT_NO_LAZY_FETCH: '1',
        GIT_ATTR_NOSYSTEM: '1',
      },
    },
  );
  const chunks: Buffer[] = [];
  let size = 0;
  child.stdout.on('data', (chunk: Buffer) => {
    size += chunk.length;
    if (size > MOST_OUTPUT) child.kill();
    else chunks.push(chunk);
  });
  child.on('error', () => resolve(null));
  child.on('close', (code) => resolve(code === 0 && size <= MOST_OUTPUT ? Buffer.concat(chunks) : null));
  return promise;
}
