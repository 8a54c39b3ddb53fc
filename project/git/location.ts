import type { Stats } from 'node:fs';
import { lstat, realpath } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { hasErrorCode } from '../file-error.ts';
import { parseGitConfig } from './config.ts';
import { readSmallFile } from './read-file.ts';
import { gitHistoryError } from './error.ts';

export interface GitLocation {
  /** Has HEAD and the index of this work tree. */
  readonly gitDirectory: string;
  /** Has refs, objects and config; differs only in a linked work tree. */
  readonly commonDirectory: string;
}

const LONGEST_POINTER = 4096 + 16;
const MOST_PARENTS = 100;
const LARGEST_CONFIG = 2 ** 20;

/**
 * Finds the git directory of the work tree whose root is `project`. Errors: `profile_invalid` (no repository, or the
 * project is a folder inside a work tree).
 */
export async function locateRepository(project: string): Promise<GitLocation> {
  const dotGit = join(project, '.git');
  const status = await lstatOrNull(dotGit);
  if (status === null) throw await noRepository(project);
  if (status.isDirectory()) {
    if ((await lstatOrNull(join(dotGit, 'commondir'))) !== null)
      throw gitHistoryError(
        'its .git folder has a file `commondir`',
        'deploy a plain clone of the repository',
      );
    return { gitDirectory: dotGit, commonDirectory: dotGit };
  }
  if (!status.isFile())
    throw gitHistoryError(
      '.git is neither a folder nor a regular file',
      'deploy a plain clone of the repository',
    );

  const target = /^gitdir: ([^\0\n]+)\n*$/.exec(await readPointer(dotGit))?.[1];
  if (target === undefined)
    throw gitHistoryError(
      'the file .git does not contain `gitdir: FOLDER`',
      'repair it with `git worktree repair`',
    );
  const gitDirectory = resolve(project, target);
  if ((await lstatOrNull(gitDirectory))?.isDirectory() !== true)
    throw gitHistoryError(
      `the file .git names ${gitDirectory}, which is not a folder`,
      'repair it with `git worktree repair`',
    );
  if ((await lstatOrNull(join(gitDirectory, 'commondir'))) === null) {
    await requireWorkTree(gitDirectory, project);
    return { gitDirectory, commonDirectory: gitDirectory };
  }

  // Git's own record of the linked work tree must agree: a `.git` file alone could name the work tree of another
  // repository.
  const back = resolve(gitDirectory, lineOf(await readPointer(join(gitDirectory, 'gitdir'))));
  const [named, own] = [await realpath(back).catch(() => null), await realpath(dotGit)];
  if (named !== own)
    throw gitHistoryError(
      `${gitDirectory} is the data of another work tree (${back})`,
      'repair it with `git worktree repair`',
    );
  const commonDirectory = resolve(gitDirectory, lineOf(await readPointer(join(gitDirectory, 'commondir'))));
  if ((await lstatOrNull(commonDirectory))?.isDirectory() !== true)
    throw gitHistoryError(
      `the work tree names ${commonDirectory}, which is not a folder`,
      'repair it with `git worktree repair`',
    );
  // The project could contain that record too. Git keeps the records of linked work trees in the repository itself.
  const worktrees = join(await realpath(commonDirectory), 'worktrees');
  if (dirname(await realpath(gitDirectory)) !== worktrees)
    throw gitHistoryError(
      `${gitDirectory} is not a work tree of ${commonDirectory}`,
      'repair it with `git worktree repair`',
    );
  return { gitDirectory, commonDirectory };
}

/**
 * A project by an untrusted author could name any repository of this machine in its `.git` file. The data of a
 * submodule names its work tree.
 */
async function requireWorkTree(gitDirectory: string, project: string): Promise<void> {
  const config = await readSmallFile(join(gitDirectory, 'config'), LARGEST_CONFIG);
  const entries = config === null ? [] : parseGitConfig(config.toString('utf8'));
  const tree = entries.findLast(
    ({ section, subsection, key }) => section === 'core' && subsection === null && key === 'worktree',
  )?.value;
  const named =
    typeof tree === 'string' ? await realpath(resolve(gitDirectory, tree)).catch(() => null) : null;
  if (named === (await realpath(project))) return;
  throw gitHistoryError(
    `the file .git names ${gitDirectory}, which does not name this folder as its work tree`,
    'deploy a plain clone of the repository',
  );
}

async function readPointer(path: string): Promise<string> {
  const bytes = await readSmallFile(path, LONGEST_POINTER);
  if (bytes === null) throw gitHistoryError(`${path} is missing`, 'repair it with `git worktree repair`');
  return bytes.toString('utf8');
}

function lineOf(text: string): string {
  return text.replace(/\n+$/, '');
}

async function noRepository(project: string): Promise<Error> {
  let folder = dirname(project);
  for (let count = 0; count < MOST_PARENTS && folder !== dirname(folder); count += 1) {
    if ((await lstatOrNull(join(folder, '.git'))) !== null)
      return gitHistoryError(
        `the project is a folder inside the repository ${folder}, and only a whole repository can be deployed with its history`,
        `move holdfast.yaml to ${folder} and deploy that folder`,
      );
    folder = dirname(folder);
  }
  return gitHistoryError('the project has no .git folder', 'create a repository with `git init`');
}

export async function lstatOrNull(path: string): Promise<Stats | null> {
  try {
    return await lstat(path);
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT') || hasErrorCode(error, 'ENOTDIR')) return null;
    throw error;
  }
}
