import { HoldfastError } from '../protocol/errors.ts';
import { fromBytes, type RawPath, readable } from '../project/raw-path.ts';
import type { Git } from './git.ts';
import { readCommit } from './repository.ts';
import { withIndexOf } from './temporary-index.ts';

/** Commands as `git lfs install` writes them. They start one program, which is looked up in absolute folders of `PATH`. */
const LFS_COMMAND = /^git[ -]lfs (?:clean|smudge|filter-process)(?: --skip)?(?: --)?(?: %f)?$/;
/** Settings by which Git LFS starts other programs. */
const LFS_PROGRAMS = String.raw`^lfs\.(extension|customtransfer|.*standalonetransferagent)`;
/** The file of a tree that configures Git LFS. */
const LFS_CONFIGURATION = '.lfsconfig';
/** Commands by which a file is checked out as it was committed. */
const NO_CHANGE: ReadonlySet<string> = new Set(['', 'cat']);

type Driver = Partial<Record<string, string>>;

/** The filters of the person's configuration: programs that git runs for files which attributes choose. */
async function drivers(git: Git): Promise<Map<string, Driver>> {
  const found = new Map<string, Driver>();
  const { output } = await git.run(
    ['config', '-z', '--get-regexp', String.raw`^filter\..*\.(clean|smudge|process)$`],
    { accept: [0, 1], what: 'The filters of the repository cannot be read' },
  );
  for (const entry of fromBytes(output).split('\0')) {
    const end = entry.indexOf('\n');
    const key = end === -1 ? entry : entry.slice(0, end);
    if (key === '') continue;
    const name = key.slice('filter.'.length, key.lastIndexOf('.'));
    const kind = key.slice(key.lastIndexOf('.') + 1);
    found.set(name, { ...found.get(name), [kind]: end === -1 ? '' : entry.slice(end + 1) });
  }
  return found;
}

function configuredWithout(git: Git, names: Iterable<string>): Git {
  return git.configured(
    [...names].flatMap((name) => [
      ...['clean', 'smudge', 'process'].map((kind) => `filter.${name}.${kind}=`),
      `filter.${name}.required=false`,
    ]),
  );
}

/**
 * Git that applies no filter, in a folder with files that an agent wrote: whatever the command, it may start one of them. Files that
 * the person's attributes filter look changed to it.
 */
export async function withoutFilters(git: Git): Promise<Git> {
  return configuredWithout(git, (await drivers(git)).keys());
}

/** As `withoutFilters`, but with Git LFS. `changed`: the files that an agent wrote. */
export async function withLfsAlone(git: Git, changed: readonly RawPath[]): Promise<Git> {
  return configuredWithout(git, (await otherDrivers(git, changed)).keys());
}

/** All filters but Git LFS, which is one of them if the agent or other settings say what it starts. */
async function otherDrivers(git: Git, changed: readonly RawPath[]): Promise<Map<string, Driver>> {
  const all = await drivers(git);
  const isLfs = (driver: Driver): boolean =>
    Object.values(driver).every((command = '') => command === '' || LFS_COMMAND.test(command));
  const others = new Map([...all].filter(([, driver]) => !isLfs(driver)));
  if (others.size === all.size) return all;
  const isConfigured =
    changed.some((path) => path.toLowerCase() === LFS_CONFIGURATION) ||
    (await git.ask(['config', '--get-regexp', LFS_PROGRAMS])) !== null;
  return isConfigured ? all : others;
}

/**
 * Errors: `conflict` if files of the tree need a filter other than Git LFS: git would run it in the new worktree, and nobody can tell
 * from a command which of the agent's files it starts or loads. The attributes are those of the commit `onto`.
 */
export async function requireNoOtherFilters(
  git: Git,
  {
    onto,
    tree,
    changed,
  }: { readonly onto: string; readonly tree: string; readonly changed: readonly RawPath[] },
): Promise<void> {
  const running = new Map(
    [...(await otherDrivers(git, changed))].filter(
      ([, { smudge = '', process = '' }]) => process !== '' || !NO_CHANGE.has(smudge),
    ),
  );
  if (running.size === 0) return;
  const files = [...(await readCommit(git, tree))].filter(([, { mode }]) => mode.startsWith('100'));
  const filters = await readFilters(
    git,
    onto,
    files.map(([path]) => path),
  );
  const filtered = filters.find(({ filter }) => running.has(filter));
  if (filtered === undefined) return;
  throw new HoldfastError('conflict', 'The worktree was not made', {
    why: `the filter ${filtered.filter} of your git configuration would run for ${readable(filtered.path)} in a folder that has the agent's files, and could start one of them`,
    next: 'hand off with --to branch or --to patch, and look at the changes before you check them out',
  });
}

/** The value of the attribute `filter` of each path, by the attributes of a commit. `unspecified` and `unset` are none. */
export async function readFilters(
  git: Git,
  onto: string,
  paths: readonly RawPath[],
): Promise<{ readonly path: RawPath; readonly filter: string }[]> {
  return await withIndexOf(git, onto, async (env) => {
    const input = Buffer.from(paths.map((path) => `${path}\0`).join(''), 'latin1');
    const output = await git.bytes(['check-attr', '--cached', '-z', '--stdin', 'filter'], { input, env });
    const parts = fromBytes(output).split('\0');
    const found: { path: RawPath; filter: string }[] = [];
    for (let at = 0; at + 2 < parts.length; at += 3)
      found.push({ path: parts[at] ?? '', filter: parts[at + 2] ?? '' });
    return found;
  });
}
