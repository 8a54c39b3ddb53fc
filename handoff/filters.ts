import { posix } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';
import { fromBytes, type RawPath, readable } from '../project/raw-path.ts';
import type { Git } from './git.ts';

const NO_PATH = /[\s'"`;&|()<>$=]+/;

interface FilterCommand {
  readonly driver: string;
  readonly command: string;
}

/** The filters of the person's configuration: programs that git runs for files which attributes choose. */
async function filterCommands(git: Git): Promise<FilterCommand[]> {
  const { code, output } = await git.run(
    ['config', '-z', '--get-regexp', String.raw`^filter\..*\.(clean|smudge|process)$`],
    { accept: [0, 1], what: 'The filters of the repository cannot be read' },
  );
  if (code !== 0) return [];
  return fromBytes(output)
    .split('\0')
    .flatMap((entry) => {
      const end = entry.indexOf('\n');
      const key = end === -1 ? entry : entry.slice(0, end);
      const driver = key.slice('filter.'.length, key.lastIndexOf('.'));
      return key === '' ? [] : [{ driver, command: end === -1 ? '' : entry.slice(end + 1) }];
    });
}

/**
 * Git that applies no filter, in a folder whose attributes an agent wrote. Files that the person's own attributes filter look changed
 * to it.
 */
export async function withoutFilters(git: Git): Promise<Git> {
  const drivers = new Set((await filterCommands(git)).map(({ driver }) => driver));
  return git.configured(
    [...drivers].flatMap((driver) => [
      ...['clean', 'smudge', 'process'].map((kind) => `filter.${driver}.${kind}=`),
      `filter.${driver}.required=false`,
    ]),
  );
}

/**
 * Errors: `conflict` if a filter runs a file of the tree which is handed over: git would run it in the new worktree, as the agent
 * left it.
 */
export async function requireForeignFilters(git: Git, changed: readonly RawPath[]): Promise<void> {
  const paths = new Set(changed);
  for (const { driver, command } of await filterCommands(git)) {
    const [program = '', ...rest] = command.split(NO_PATH);
    // A program without a slash is looked up in the person's PATH.
    const named = [...(program.includes('/') ? [program] : []), ...rest].map((word) => posix.normalize(word));
    const own = named.find((word) => paths.has(word));
    if (own === undefined) continue;
    throw new HoldfastError('conflict', 'The worktree was not made', {
      why: `the filter ${driver} of your git configuration runs ${readable(own)}, which is one of the changed files`,
      next: 'hand off with --to branch and look at that file first, or leave it out with --paths',
    });
  }
}
