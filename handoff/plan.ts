import type { Result } from '../protocol/methods.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { HandoffTarget } from '../protocol/handoff.ts';
import { SessionIdSchema } from '../protocol/ids.ts';
import { matchesPattern } from '../protocol/path-patterns.ts';
import { PlainIgnoreRules } from '../protocol/plain-ignore.ts';
import type { Risk } from '../protocol/risk.ts';
import { fromText, type RawPath, readable } from '../project/raw-path.ts';
import { type Change, type HandoffConnection, listChanges, type TreeNames } from './changes.ts';
import { Contents } from './contents.ts';
import { readFilters } from './filters.ts';
import { findCollisions, prefixOf, whyRefused } from './path-check.ts';
import { quarantineReasons } from './quarantine.ts';
import { type CommittedEntry, readCommit, type Repository } from './repository.ts';

const MAX_IGNORE_FILES = 200;
const MAX_IGNORE_BYTES = 64 * 1024;
/** Git's names of a file that a filter keeps elsewhere. */
const FILTERED = /^(?!unspecified$|unset$)/;

/** A change at its place in the repository. */
export interface PlannedChange {
  readonly path: RawPath;
  readonly change: Change;
  /** Its entry in the commit that the handoff starts from; null if it has none. */
  readonly committed: CommittedEntry | null;
}

export interface LeftOut {
  readonly path: RawPath;
  readonly why: string;
}

export interface Quarantined {
  readonly path: RawPath;
  readonly risks: readonly Risk[];
}

/** What a handoff will do, before anything is written. */
export interface HandoffPlan {
  readonly begun: Result<'handoff/begin'>;
  readonly trees: TreeNames;
  /** What the paths of this plan have before those of the workspace: empty, or with a slash at its end. */
  readonly prefix: RawPath;
  /** The commit that the changes are applied to; null without a repository. */
  readonly onto: string | null;
  /** The commit that the session began with; null if it is not known or not in the repository. */
  readonly baseCommit: string | null;
  readonly travels: readonly PlannedChange[];
  /** Those of them that the person let through. */
  readonly released: readonly Quarantined[];
  /** Left out because they would run on the person's machine. */
  readonly quarantined: readonly Quarantined[];
  readonly ignored: readonly RawPath[];
  /** Paths and types that no repository may get. */
  readonly refused: readonly LeftOut[];
  /** Changes that `paths` does not choose. */
  readonly notChosen: number;
  readonly contents: Contents;
}

export interface PlanOptions {
  readonly session: string;
  readonly to: HandoffTarget;
  readonly opId: string;
  /** Null for a handoff into a folder. */
  readonly repository: Repository | null;
  /** Patterns of workspace paths; empty: all. */
  readonly paths: readonly string[];
  /** Patterns of workspace paths that leave the quarantine. */
  readonly released: readonly string[];
  /** Exactly these leave the quarantine, too: paths as a plan of the same target names them, and nothing below them. */
  readonly releasedPaths?: ReadonlySet<RawPath> | undefined;
  /** Everything that changed, although the session has a review. */
  readonly unreviewed?: boolean | undefined;
  /** A revision to apply the changes to, instead of the commit that the session began with. */
  readonly onto?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((stage: string) => void) | undefined;
}

/**
 * Asks the supervisor what has changed, checks every path and sorts out what does not travel. Writes nothing. The caller closes
 * `contents`. Errors: those of `handoff/*`, `conflict`, `not_supported`.
 */
export async function planHandoff(connection: HandoffConnection, options: PlanOptions): Promise<HandoffPlan> {
  const { session, repository, signal, onProgress } = options;
  onProgress?.('Scanning the workspace');
  const begin = { session, opId: options.opId, unreviewed: options.unreviewed === true };
  const { result: begun } = await connection.callWithBytes('handoff/begin', begin, { signal });
  if (SessionIdSchema.safeParse(session).success && begun.sessionId !== session)
    throw new HoldfastError('protocol_error', 'The host began a handoff of another session', {
      why: `${session} was asked for, and it answered about ${begun.sessionId}`,
    });
  const trees = { session: begun.sessionId, base: begun.base.root, target: begun.target.root };
  onProgress?.('Comparing');
  const [{ changes, unreadable }, { baseCommit, onto, committed }] = await Promise.all([
    listChanges(connection, trees, signal),
    readCommits(repository, begun, options),
  ]);
  const prefix = repository === null ? '' : prefixOf(begun.base);

  const refused: LeftOut[] = unreadable.map((path) => ({
    path: fromText(path),
    why: 'its path cannot be read',
  }));
  const ignored: RawPath[] = [];
  const chosen: PlannedChange[] = [];
  let notChosen = 0;
  const contents = await Contents.create();
  try {
    const rules = await ignoreRules(
      repository,
      committed,
      prefix,
      connection,
      trees,
      changes,
      contents,
      signal,
    );
    const modules = [...committed].filter(([, { mode }]) => mode === '160000').map(([path]) => path);
    for (const change of changes) {
      if (
        options.paths.length > 0 &&
        !options.paths.some((pattern) => matchesPattern(pattern, change.path))
      ) {
        notChosen += 1;
        continue;
      }
      const path = prefix + change.path;
      const entry = committed.get(path) ?? null;
      // Git's own folder is no part of the work tree.
      if (change.path === '.git' || change.path.startsWith('.git/')) ignored.push(path);
      else if (entry === null && change.before === null && rules.ignores(path)) ignored.push(path);
      else {
        const why = whyRefused(path) ?? whyNotHandedOver(change, path, modules);
        if (why === null) chosen.push({ path, change, committed: entry });
        else refused.push({ path, why });
      }
    }
    const links = chosen.filter(({ change }) => change.after?.type === 'symlink').map(({ change }) => change);
    await contents.fetch(connection, trees, 'after', links, { signal });

    const passed: PlannedChange[] = [];
    const quarantined: Quarantined[] = [];
    const released: Quarantined[] = [];
    for (const planned of chosen) {
      const { path, change } = planned;
      const link =
        change.after?.type === 'symlink' ? await contents.readWhole(contents.of(change, 'after')) : null;
      const began = repository === null && change.before?.executable === true ? '100755' : null;
      const mode = planned.committed?.mode ?? began;
      const risks = quarantineReasons(path, change, link, mode);
      if (risks.length > 0) {
        const isReleased =
          options.releasedPaths?.has(path) === true ||
          options.released.some((pattern) => matchesPattern(pattern, change.path));
        if (!isReleased) {
          quarantined.push({ path, risks });
          continue;
        }
        released.push({ path, risks });
      }
      passed.push(planned);
    }
    // What stays behind, quarantined deletions too, is still in the tree that the others have to fit into.
    const collisions = collisionsOf(committed, passed);
    for (const [path, why] of collisions) refused.push({ path, why });
    const travels = passed.filter(({ path }) => !collisions.has(path));
    const letThrough = released.filter(({ path }) => !collisions.has(path));
    if (repository !== null && onto !== null) await requireNoFilters(repository, onto, committed, travels);
    const counts = { notChosen, contents, begun, trees, prefix, onto, baseCommit };
    return { ...counts, travels, released: letThrough, quarantined, ignored, refused };
  } catch (error) {
    await contents.close();
    throw error;
  }
}

/** The commits, as `chooseCommits` has them, with the entries of the one to apply the changes to. */
async function readCommits(
  repository: Repository | null,
  begun: Result<'handoff/begin'>,
  options: PlanOptions,
) {
  const commits = await chooseCommits(repository, begun, options);
  const isEmpty = repository === null || commits.onto === null;
  const committed = isEmpty
    ? new Map<RawPath, CommittedEntry>()
    : await readCommit(repository.git, commits.onto);
  return { ...commits, committed };
}

/** The commit that the session began with, and the one to apply its changes to. */
async function chooseCommits(
  repository: Repository | null,
  { base }: Result<'handoff/begin'>,
  { onto: wanted, to }: PlanOptions,
): Promise<{ readonly baseCommit: string | null; readonly onto: string | null }> {
  if (repository === null) return { baseCommit: null, onto: null };
  const { git, head } = repository;
  const commitOf = (revision: string): Promise<string | null> =>
    git.ask(['rev-parse', '--verify', '--quiet', '--end-of-options', `${revision}^{commit}`]);
  const origin = base.origin?.head ?? null;
  const baseCommit = origin === null ? null : await commitOf(origin);
  if (wanted !== undefined) {
    const onto = await commitOf(wanted);
    if (onto === null)
      throw new HoldfastError('not_found', `There is no commit ${wanted} in this repository`);
    return { baseCommit, onto };
  }
  // A working tree is compared file by file with what the agent began with.
  if (to === 'tree') return { baseCommit, onto: head };
  if (baseCommit !== null) return { baseCommit, onto: baseCommit };
  throw new HoldfastError('not_found', 'The changes were not handed off', {
    why:
      origin === null
        ? 'the commit that the session began with is not known'
        : `this repository has no commit ${origin}, with which the session began`,
    next: 'fetch that commit, name a repository that has it with --repository, or apply the changes to another commit with --onto REVISION',
  });
}

/** Where the workspace lies in the repository. Errors: `protocol_error`. */
function whyNotHandedOver(
  { before, after }: Change,
  path: RawPath,
  modules: readonly RawPath[],
): string | null {
  if (after?.type === 'other' || (after === null && before?.type === 'other'))
    return 'git stores files and links only';
  if (modules.some((module) => path === module || path.startsWith(`${module}/`)))
    return 'it is in a submodule';
  return null;
}

function collisionsOf(
  committed: ReadonlyMap<RawPath, CommittedEntry>,
  passed: readonly PlannedChange[],
): Map<RawPath, string> {
  const present = new Set(committed.keys());
  const added = new Set<RawPath>();
  for (const { path, change } of passed) {
    if (change.after === null) present.delete(path);
    else if (!present.has(path)) added.add(path);
  }
  // What was there first is named by the collision, so it comes first.
  return findCollisions([...present, ...added], added);
}

/** The rules of the commit's ignore files, and those of the ignore files that the agent wrote. */
async function ignoreRules(
  repository: Repository | null,
  committed: ReadonlyMap<RawPath, CommittedEntry>,
  prefix: RawPath,
  connection: HandoffConnection,
  trees: TreeNames,
  changes: readonly Change[],
  contents: Contents,
  signal: AbortSignal | undefined,
): Promise<PlainIgnoreRules> {
  const rules = new PlainIgnoreRules();
  const isIgnoreFile = (path: RawPath): boolean => path === '.gitignore' || path.endsWith('/.gitignore');
  const folderOf = (path: RawPath): RawPath => path.slice(0, Math.max(0, path.lastIndexOf('/')));
  const own = [...committed].filter(([path, { mode }]) => mode.startsWith('100') && isIgnoreFile(path));
  for (const [path, { blob }] of own.slice(0, MAX_IGNORE_FILES)) {
    const text = await repository?.git.bytes(['cat-file', 'blob', blob]);
    if (text !== undefined) rules.add(folderOf(path), text.subarray(0, MAX_IGNORE_BYTES).toString('latin1'));
  }
  const written = changes
    .filter(
      ({ path, after }) => isIgnoreFile(path) && after?.type === 'file' && after.size <= MAX_IGNORE_BYTES,
    )
    // Packages bring thousands of them along, inside folders that are ignored themselves.
    .toSorted((one, other) => one.path.split('/').length - other.path.split('/').length)
    .slice(0, MAX_IGNORE_FILES);
  await contents.fetch(connection, trees, 'after', written, { signal });
  for (const change of written) {
    const text = await contents.readWhole(contents.of(change, 'after'));
    rules.add(folderOf(prefix + change.path), text.toString('latin1'));
  }
  return rules;
}

/**
 * A file under a filter, such as Git LFS, is another one in the commit than in the work tree. The attributes are those of the commit,
 * never those that the agent wrote. Errors: `not_supported`.
 */
async function requireNoFilters(
  { git }: Repository,
  onto: string,
  committed: ReadonlyMap<RawPath, CommittedEntry>,
  travels: readonly PlannedChange[],
): Promise<void> {
  const hasAttributes = [...committed.keys()].some((path) => /(?:^|\/)\.gitattributes$/.test(path));
  if (!hasAttributes) return;
  const paths = travels.map(({ path }) => path);
  const filtered = (await readFilters(git, onto, paths)).filter(({ filter }) => FILTERED.test(filter));
  const [first] = filtered;
  if (first === undefined) return;
  throw new HoldfastError('not_supported', 'The changes were not handed off', {
    why: `${readable(first.path)} and ${filtered.length - 1} others go through the filter ${first.filter}`,
    next: 'choose other files with --paths, or hand off with --to dir',
  });
}
