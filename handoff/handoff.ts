import { lstat } from 'node:fs/promises';
import { HoldfastError } from '../protocol/errors.ts';
import type { HandoffTarget } from '../protocol/handoff.ts';
import type { Params } from '../protocol/methods.ts';
import type { RawPath } from '../project/raw-path.ts';
import {
  addWorktree,
  type Attributes,
  chooseBranch,
  chooseWorktree,
  claimFolder,
  createBranch,
  releaseFolder,
} from './branch.ts';
import type { HandoffConnection } from './changes.ts';
import { commitTree, proposeMessage, withTrailers, writeTree } from './commit.ts';
import { requireNoOtherFilters } from './filters.ts';
import { requireFreeFolder, writeFolder } from './folder.ts';
import { namingFullDisk } from './full-disk.ts';
import { isBeingMade, type Journal, type JournalOf, Journals, whileRunning } from './journal.ts';
import { formatPatch, withPrivateObjects } from './patch.ts';
import type { HandoffPlan, PlannedChange } from './plan.ts';
import { type CommittedEntry, readCommit, type Repository } from './repository.ts';
import { conflictError, type GitMode, type Present, type Resolved, resolveChanges } from './resolve.ts';
import type { Git } from './git.ts';
import { type Worktree, worktrees } from './worktrees.ts';
import { applyToTree } from './working-tree.ts';
import { parentsOf, WorkingFiles } from './working-files.ts';

export interface ApplyOptions {
  readonly to: HandoffTarget;
  /** Null for a handoff into a folder. */
  readonly repository: Repository | null;
  /** For merging texts: any folder will do. */
  readonly git: Git;
  readonly message?: string | undefined;
  readonly branch?: string | undefined;
  /** The folder of a worktree, or of a handoff into a folder. Absolute. */
  readonly folder?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((stage: string) => void) | undefined;
  /** ms since 1970. */
  readonly now: () => number;
}

/** What was made. */
export interface HandoffResult {
  readonly to: HandoffTarget;
  readonly handoff: string;
  readonly manifest: string;
  readonly files: number;
  readonly branch: string | null;
  readonly commit: string | null;
  readonly tree: string | null;
  /** The worktree, the work tree or the folder. */
  readonly folder: string | null;
  readonly patch: Buffer | null;
  /** Files in which the person's and the agent's changes were merged. */
  readonly merged: readonly RawPath[];
  /** Deletions, which a folder cannot show. */
  readonly deleted: readonly RawPath[];
  /** The review that it ended: all that is accepted is in the repository. */
  readonly endedReview: string | null;
  /** Why the supervisor does not know that it was made; null if it does. The next handoff into the repository tells it. */
  readonly unrecorded: string | null;
}

type Record = Params<'handoff/record'>;

/**
 * Applies a plan to the person's repository or writes a folder: all of it, or nothing. The approval is recorded before the first
 * write. Errors: `conflict` with the files that conflict, before anything is written.
 */
export async function applyHandoff(
  connection: HandoffConnection,
  plan: HandoffPlan,
  options: ApplyOptions,
): Promise<HandoffResult> {
  return await whileRunning(plan.begun.handoff, () =>
    namingFullDisk('The changes were not handed off', () => new Handoff(connection, plan, options).run()),
  );
}

class Handoff {
  readonly #connection: HandoffConnection;
  readonly #plan: HandoffPlan;
  readonly #options: ApplyOptions;

  constructor(connection: HandoffConnection, plan: HandoffPlan, options: ApplyOptions) {
    this.#connection = connection;
    this.#plan = plan;
    this.#options = options;
  }

  async run(): Promise<HandoffResult> {
    if (this.#plan.travels.length === 0) {
      throw new HoldfastError('conflict', 'There is nothing to hand off', {
        why:
          this.#plan.quarantined.length > 0
            ? `all changes that were chosen are in quarantine`
            : `no chosen file differs from ${this.#plan.begun.review === null ? 'what the session began with' : 'the base of the review'}`,
      });
    }
    switch (this.#options.to) {
      case 'dir':
        return await this.#toFolder();
      case 'tree':
        return await this.#toTree(this.#repository());
      case 'patch':
        return await this.#toPatch(this.#repository());
      case 'branch':
      case 'worktree':
        return await this.#toBranch(this.#repository(), this.#options.to);
    }
  }

  async #toFolder(): Promise<HandoffResult> {
    const { folder } = this.#options;
    if (folder === undefined)
      throw new HoldfastError('invalid_params', 'A handoff into a folder needs --dir');
    await requireFreeFolder(folder);
    const { edits, deleted } = await this.#asTheyAre();
    await this.#record('approved');
    const written = await writeFolder(folder, edits, this.#plan.contents);
    const unrecorded = await this.#recordMade({}, null);
    return { ...this.#result(), folder: written, deleted, unrecorded };
  }

  /** The agent's files without a look at what is anywhere else. */
  async #asTheyAre(): Promise<{ readonly edits: Resolved['edits']; readonly deleted: RawPath[] }> {
    const { travels } = this.#plan;
    const nothing = { presentAt: () => Promise.resolve(null), wasTracked: () => false };
    const { edits } = await this.#resolve(nothing);
    return { edits, deleted: travels.filter(({ change }) => change.after === null).map(({ path }) => path) };
  }

  async #toPatch(repository: Repository): Promise<HandoffResult> {
    return await withPrivateObjects(repository.git, async (git) => {
      const { resolved, onto } = await this.#ontoCommit(repository);
      const tree = await writeTree(git, onto, resolved.edits, this.#plan.contents);
      const commit = await commitTree(git, { tree, parent: onto, message: this.#message() });
      const patch = await formatPatch(git, commit);
      await this.#record('approved', { tree });
      const unrecorded = await this.#recordMade({ tree }, null);
      return { ...this.#result(), tree, patch, merged: resolved.merged, unrecorded };
    });
  }

  async #toBranch(repository: Repository, to: 'branch' | 'worktree'): Promise<HandoffResult> {
    const { git } = repository;
    const { begun, contents } = this.#plan;
    const branch = await chooseBranch(git, this.#options.branch, begun.sessionName);
    const worktree =
      to === 'worktree' ? await chooseWorktree(repository, this.#options.folder, branch) : null;
    const { resolved, onto } = await this.#ontoCommit(repository);
    const changed = resolved.edits.map((edit) => edit.path);
    this.#options.onProgress?.('Writing the commit');
    const tree = await writeTree(git, onto, resolved.edits, contents);
    if (worktree !== null) await requireNoOtherFilters(git, { onto, tree, changed });
    const commit = await commitTree(git, { tree, parent: onto, message: this.#message() });
    const record = { branch, commit, tree };
    await this.#record('approved', record);

    const journals = new Journals(repository.commonDirectory);
    const start = { ...this.#journal(record), branch, commit, hasBranch: false };
    let journal: JournalOf<'branch'> | JournalOf<'worktree'> =
      worktree === null ? { ...start, to: 'branch' } : { ...start, to: 'worktree', worktree };
    // With the journal there, the folder is ours: nobody else can have made it.
    if (worktree !== null) await claimFolder(worktree);
    try {
      await journals.write(journal);
      await createBranch(git, branch, commit);
      journal = { ...journal, hasBranch: true };
      await journals.write(journal);
      if (worktree !== null) {
        this.#options.onProgress?.('Writing the worktree');
        const attributes = await this.#attributes(repository, onto, tree);
        await addWorktree(git, { worktree, branch, tree, attributes, changed });
      }
    } catch (error) {
      await this.#takeBack(git.withoutSignal(), journal);
      await journals.remove(journal.handoff);
      throw error;
    }
    const finished = { ...journal, state: 'made' as const };
    await journals.write(finished);
    const unrecorded = await this.#recordMade(record, () => journals.write({ ...finished, recorded: true }));
    return { ...this.#result(), ...record, folder: worktree, merged: resolved.merged, unrecorded };
  }

  /** Takes back what this handoff made and nothing else: a worktree on our branch in the folder that we claimed is ours. */
  async #takeBack(git: Git, journal: JournalOf<'branch'> | JournalOf<'worktree'>): Promise<void> {
    const { hasBranch } = journal;
    if (journal.to === 'worktree') {
      const { worktree, branch } = journal;
      const isOurs = (one: Worktree): boolean => one.path === worktree && one.branch === branch;
      if (hasBranch && (await worktrees(git)).some(isOurs))
        await git.ask(['worktree', 'remove', '--force', '--force', '--', worktree]);
      await releaseFolder(worktree);
      await git.ask(['worktree', 'prune']);
    }
    if (hasBranch) await git.ask(['update-ref', '-d', `refs/heads/${journal.branch}`, journal.commit]);
  }

  /** The attribute files that the handoff changes. */
  async #attributes(repository: Repository, onto: string, tree: string): Promise<Attributes[]> {
    const changed = this.#plan.travels.filter(({ path }) => /(?:^|\/)\.gitattributes$/.test(path));
    if (changed.length === 0) return [];
    const before = await readCommit(repository.git, onto);
    const after = await readCommit(repository.git, tree);
    const isBelowFile = (path: RawPath): boolean => parentsOf(path).some((folder) => after.has(folder));
    return changed.map(({ path }) => {
      const from = before.get(path);
      const decides = from?.mode.startsWith('100') === true && !isBelowFile(path);
      return { path, from: decides ? from.blob : null, to: after.get(path) ?? null };
    });
  }

  async #ontoCommit(repository: Repository): Promise<{ readonly resolved: Resolved; readonly onto: string }> {
    const { onto, baseCommit } = this.#plan;
    if (onto === null) throw new HoldfastError('internal', 'The plan names no commit');
    const { git } = repository;
    const began =
      baseCommit === null || baseCommit === onto
        ? new Map<RawPath, CommittedEntry>()
        : await readCommit(git, baseCommit);
    const resolved = await this.#resolve({
      presentAt: ({ committed }) => Promise.resolve(presentInCommit(git, committed)),
      wasTracked: (path) => began.has(path),
    });
    if (resolved.conflicts.length > 0) throw conflictError(resolved.conflicts);
    return { resolved, onto };
  }

  async #toTree(repository: Repository): Promise<HandoffResult> {
    const { git, root } = repository;
    if (root === null) {
      throw new HoldfastError('not_supported', 'The changes were not handed off', {
        why: 'a bare repository has no working tree',
        next: 'hand off with --to branch or --to worktree',
      });
    }
    await requireQuietIndex(git);
    const files = new WorkingFiles(root, this.#plan.begun.handoff);
    const seen = new Map<RawPath, Present | null>();
    const resolved = await this.#resolve({
      presentAt: async ({ path }: PlannedChange) => {
        const found = await files.read(path);
        const present =
          found === null
            ? null
            : {
                mode: found.mode,
                blob: found.blob,
                read: async () => (await files.read(path))?.bytes ?? Buffer.alloc(0),
              };
        seen.set(path, present);
        return present;
      },
      wasTracked: () => true,
    });
    if (resolved.conflicts.length > 0) throw conflictError(resolved.conflicts);
    const edits = resolved.edits.map((edit) => {
      const before = seen.get(edit.path) ?? null;
      return { edit, before: before === null ? null : { mode: before.mode, blob: before.blob } };
    });
    await this.#record('approved');
    this.#options.onProgress?.('Writing files');
    const journals = new Journals(repository.commonDirectory);
    const undoRef = `refs/holdfast/undo/${this.#plan.begun.handoff}`;
    const { state: _state, ...start } = this.#journal({});
    const finished = await applyToTree(
      git.withoutSignal(),
      journals,
      { ...start, to: 'tree', root, undoRef },
      edits,
      this.#plan.contents,
    );
    const unrecorded = await this.#recordMade({}, () => journals.write({ ...finished, recorded: true }));
    return { ...this.#result(), files: edits.length, folder: root, merged: resolved.merged, unrecorded };
  }

  #repository(): Repository {
    const { repository } = this.#options;
    if (repository === null) throw new HoldfastError('internal', 'A handoff into a repository needs one');
    return repository;
  }

  #resolve(how: {
    readonly presentAt: (planned: PlannedChange) => Promise<Present | null>;
    readonly wasTracked: (path: RawPath) => boolean;
  }): Promise<Resolved> {
    this.#options.onProgress?.('Reading the changed files');
    const { git, signal } = this.#options;
    return resolveChanges({ git, plan: this.#plan, connection: this.#connection, signal, ...how });
  }

  #message(): string {
    const { begun } = this.#plan;
    const message = this.#options.message ?? proposeMessage(begun.sessionName, begun.prompts);
    return withTrailers(message, begun.sessionId, begun.manifest);
  }

  #journal(made: Partial<Pick<Record, 'branch' | 'commit' | 'tree'>>) {
    const { begun } = this.#plan;
    const { handoff, manifest, sessionId: session } = begun;
    const { session: _session, handoff: _handoff, step: _step, ...record } = this.#recordOf('made', made);
    const common = {
      version: 1 as const,
      handoff,
      manifest,
      session,
      at: this.#options.now(),
      pid: process.pid,
    };
    return { ...common, state: 'making' as const, recorded: false, record };
  }

  /**
   * The review that ends with this handoff, if it brings all that is accepted into the repository. Otherwise the review goes
   * on, so that the rest can follow.
   */
  #endedReview(): string | null {
    const { begun, quarantined, refused, ignored, notChosen, prefix } = this.#plan;
    const { to } = this.#options;
    // Git's own folder never is in the repository.
    const isWork = (path: RawPath): boolean => !/^\.git(?:\/|$)/.test(path.slice(prefix.length));
    const staysBehind = quarantined.length + refused.length + notChosen + begun.target.missing;
    const isWhole = staysBehind === 0 && !ignored.some(isWork);
    return isWhole && to !== 'patch' && to !== 'dir' ? (begun.review?.id ?? null) : null;
  }

  #recordOf(step: Record['step'], made: Partial<Pick<Record, 'branch' | 'commit' | 'tree'>>): Record {
    const { begun, trees, travels, released, quarantined } = this.#plan;
    return {
      session: begun.sessionId,
      handoff: begun.handoff,
      step,
      manifest: begun.manifest,
      base: trees.base,
      target: trees.target,
      snapshot: begun.target.snapshot,
      to: this.#options.to,
      commit: made.commit ?? null,
      tree: made.tree ?? null,
      branch: made.branch ?? null,
      files: travels.length,
      released: released.length,
      quarantined: quarantined.length,
      review: this.#endedReview(),
    };
  }

  async #record(
    step: Record['step'],
    made: Partial<Pick<Record, 'branch' | 'commit' | 'tree'>> = {},
  ): Promise<void> {
    await this.#connection.callWithBytes('handoff/record', this.#recordOf(step, made));
  }

  /**
   * Records what exists already: whatever fails now, the handoff was made. Resolves with why it could not be recorded; its note,
   * which lacks `note` then, lets the next client do that.
   */
  async #recordMade(
    made: Partial<Pick<Record, 'branch' | 'commit' | 'tree'>>,
    note: (() => Promise<void>) | null,
  ): Promise<string | null> {
    try {
      await this.#record('made', made);
    } catch (error) {
      return HoldfastError.from(error).sentence;
    }
    // Without it the next client records the handoff again, which changes nothing.
    await note?.().catch(() => undefined);
    return null;
  }

  #result(): Omit<HandoffResult, 'unrecorded'> {
    const { begun, travels } = this.#plan;
    return {
      to: this.#options.to,
      handoff: begun.handoff,
      manifest: begun.manifest,
      files: travels.length,
      branch: null,
      commit: null,
      tree: null,
      folder: null,
      patch: null,
      merged: [],
      deleted: [],
      endedReview: this.#endedReview(),
    };
  }
}

/** Tells the supervisor that a handoff was undone. */
export async function recordUndone(connection: HandoffConnection, journal: Journal): Promise<void> {
  await recordStep(connection, journal, 'undone');
}

/**
 * Tells the supervisor of handoffs that were made by a client that was killed before it could. Returns those that it knows now; what
 * another supervisor made waits for that one.
 */
export async function recordRecovered(
  connection: HandoffConnection,
  repository: Repository,
): Promise<Journal[]> {
  const journals = new Journals(repository.commonDirectory);
  const recorded: Journal[] = [];
  for (const journal of (await journals.list()).journals) {
    if (journal.recorded || journal.state !== 'made' || isBeingMade(journal)) continue;
    try {
      await recordStep(connection, journal, 'made');
    } catch (error) {
      if (error instanceof HoldfastError && error.code === 'not_found') continue;
      throw error;
    }
    await journals.write({ ...journal, recorded: true });
    recorded.push(journal);
  }
  return recorded;
}

async function recordStep(
  connection: HandoffConnection,
  { session, handoff, record }: Journal,
  step: Record['step'],
): Promise<void> {
  // Journals of earlier versions name no review.
  const params = { review: null, ...record, session, handoff, step } as unknown as Record;
  await connection.callWithBytes('handoff/record', params);
}

function presentInCommit(git: Git, committed: CommittedEntry | null): Present | null {
  if (committed === null) return null;
  const { mode, blob } = committed;
  return { mode: mode as GitMode, blob, read: () => git.bytes(['cat-file', 'blob', blob]) };
}

/** Errors: `conflict` while another git works on the index. */
async function requireQuietIndex(git: Git): Promise<void> {
  const lock = await git.text(['rev-parse', '--path-format=absolute', '--git-path', 'index.lock']);
  if ((await lstat(lock).catch(() => null)) === null) return;
  throw new HoldfastError('conflict', 'The changes were not handed off', {
    why: `another git works in this repository, or was killed: ${lock} exists`,
    next: 'wait for it, or remove the file, and hand off again',
  });
}
