import { lstat } from 'node:fs/promises';
import { HoldfastError } from '../protocol/errors.ts';
import type { HandoffTarget } from '../protocol/handoff.ts';
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
import { type JournalOf, Journals, whileRunning } from './journal.ts';
import { formatPatch, withPrivateObjects } from './patch.ts';
import type { HandoffPlan, PlannedChange } from './plan.ts';
import { HandoffRecord } from './record.ts';
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
  readonly #record: HandoffRecord;

  constructor(connection: HandoffConnection, plan: HandoffPlan, options: ApplyOptions) {
    this.#connection = connection;
    this.#plan = plan;
    this.#options = options;
    this.#record = new HandoffRecord(connection, plan, options);
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
    await this.#record.approved();
    const written = await writeFolder(folder, edits, this.#plan.contents);
    const unrecorded = await this.#record.made({}, null);
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
      await this.#record.approved({ tree });
      const unrecorded = await this.#record.made({ tree }, null);
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
    await this.#record.approved(record);

    const journals = new Journals(repository.commonDirectory);
    const start = { ...this.#record.journal(record), branch, commit, hasBranch: false };
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
      journal = { ...journal, state: 'made' };
      // Without this note the next handoff would take back what this one made.
      await journals.write(journal);
    } catch (error) {
      await this.#takeBack(git.withoutSignal(), journal);
      await journals.remove(journal.handoff);
      throw error;
    }
    const finished = journal;
    const unrecorded = await this.#record.made(record, () => journals.write({ ...finished, recorded: true }));
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
    await this.#record.approved();
    this.#options.onProgress?.('Writing files');
    const journals = new Journals(repository.commonDirectory);
    const undoRef = `refs/holdfast/undo/${this.#plan.begun.handoff}`;
    const { state: _state, ...start } = this.#record.journal({});
    const finished = await applyToTree(
      git.withoutSignal(),
      journals,
      { ...start, to: 'tree', root, undoRef },
      edits,
      this.#plan.contents,
    );
    const unrecorded = await this.#record.made({}, () => journals.write({ ...finished, recorded: true }));
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
      endedReview: this.#record.endedReview(),
    };
  }
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
