import { HoldfastError } from '../protocol/errors.ts';
import { type RawPath, readable } from '../project/raw-path.ts';
import type { Contents } from './contents.ts';
import type { Git } from './git.ts';
import type { JournalOf, Journals, StoredFile } from './journal.ts';
import type { Edit } from './resolve.ts';
import { writeTree } from './commit.ts';
import { blobOf, WorkingFiles } from './working-files.ts';

const NO_COMMIT = '0'.repeat(40);
/** Blobs that one `git cat-file` reads. */
const BATCH = 100;
const MAX_LISTED = 20;

/** One file of the working tree: what the preflight saw, and what it becomes. */
export interface TreeEdit {
  readonly edit: Edit;
  readonly before: StoredFile | null;
}

type TreeJournal = JournalOf<'tree'>;

/**
 * Keeps the present files under a reference, notes in the journal what will change, and writes all files. If one of them cannot be
 * written, all are taken back.
 */
export async function applyToTree(
  git: Git,
  journals: Journals,
  start: Omit<TreeJournal, 'files' | 'folders' | 'state'>,
  edits: readonly TreeEdit[],
  contents: Contents,
): Promise<TreeJournal> {
  const files = new WorkingFiles(start.root, start.handoff);
  const planned: { path: RawPath; before: StoredFile | null; after: StoredFile | null }[] = [];
  const folders = new Set<RawPath>();
  for (const { edit, before } of edits) {
    const { path, mode, content } = edit;
    for (const folder of mode === null ? [] : await files.missingParents(path)) folders.add(folder);
    const after =
      mode === null || content === null
        ? null
        : { mode, blob: Buffer.isBuffer(content) ? blobOf(content) : content.blob };
    planned.push({ path, before, after });
  }
  await keepPresentFiles(git, files, start.undoRef, planned);
  const journal: TreeJournal = { ...start, state: 'making', files: planned, folders: [...folders] };
  await journals.write(journal);
  try {
    // What goes away goes first: a file may become a folder.
    const order = [...edits].sort(
      (one, other) => Number(one.edit.mode !== null) - Number(other.edit.mode !== null),
    );
    for (const { edit, before } of order) {
      const { path, mode, content } = edit;
      if (mode === null || content === null) {
        await files.replace(path, before, null);
        continue;
      }
      await files.makeParents(path);
      const bytes = Buffer.isBuffer(content) ? content : await contents.readWhole(content);
      await files.replace(path, before, { mode, bytes });
    }
    const made: TreeJournal = { ...journal, state: 'made' };
    await journals.write(made);
    return made;
  } catch (error) {
    await takeBackFailed(git, journals, journal, error);
    throw error;
  }
}

/** Errors: `conflict` that names what is left, if not all can be taken back: a full disk may stop that as well. */
async function takeBackFailed(
  git: Git,
  journals: Journals,
  journal: TreeJournal,
  cause: unknown,
): Promise<void> {
  const failure = await revertTree(git, journal).then(
    ({ kept }) => (kept.length === 0 ? null : 'somebody changed files meanwhile'),
    (error: unknown) => HoldfastError.from(error).message,
  );
  if (failure === null) {
    await dropUndoRef(git, journal);
    await journals.remove(journal.handoff);
    return;
  }
  const files = new WorkingFiles(journal.root, journal.handoff);
  const left: string[] = [];
  for (const { path, before } of journal.files) {
    const found = await files.stateOf(path).catch(() => 'unreadable' as const);
    if (found === 'unreadable' || !isEqual(found, before)) left.push(readable(path));
  }
  const more = left.length > MAX_LISTED ? ` and ${left.length - MAX_LISTED} more` : '';
  throw new HoldfastError('conflict', 'The handoff stopped half-way and was not undone', {
    why: `${HoldfastError.from(cause).message}; then ${failure}. Not as before: ${left.slice(0, MAX_LISTED).join(', ')}${more}`,
    next: `make room on the disk: the next handoff or undo restores the rest; the earlier files are kept in ${journal.undoRef}`,
    cause,
  });
}

/** Stores the present contents as blobs, held by a reference: one entry per file, named by its place in the list. */
async function keepPresentFiles(
  git: Git,
  files: WorkingFiles,
  undoRef: string,
  planned: readonly { readonly path: RawPath; readonly before: StoredFile | null }[],
): Promise<void> {
  const edits: Edit[] = [];
  for (const [at, { path, before }] of planned.entries()) {
    if (before === null) continue;
    const found = await files.read(path);
    if (found?.blob !== before.blob)
      throw new HoldfastError('conflict', 'The changes were not handed off', {
        why: 'files changed while the handoff was prepared',
        next: 'nothing was written; hand off again',
      });
    edits.push({ path: `${Math.floor(at / 1000)}/${at}`, mode: '100644', content: found.bytes });
  }
  const tree = await writeTree(git, null, edits, NO_CONTENTS);
  const env = {
    GIT_AUTHOR_NAME: 'Holdfast',
    GIT_AUTHOR_EMAIL: 'holdfast@localhost',
    GIT_COMMITTER_NAME: 'Holdfast',
    GIT_COMMITTER_EMAIL: 'holdfast@localhost',
  };
  const input = Buffer.from('Files as they were before a handoff\n');
  const commit = await git.text(['commit-tree', tree, '-F', '-'], { input, env });
  await git.run(['update-ref', undoRef, commit, NO_COMMIT]);
}
/** Every content of that tree is in memory. */
const NO_CONTENTS = {
  read: () => {
    throw new HoldfastError('internal', 'There is no content to read');
  },
} as unknown as Contents;

/** Puts back every file that still is as the handoff made it. `kept`: files that somebody has changed since. */
export async function revertTree(
  git: Git,
  journal: TreeJournal,
): Promise<{ readonly kept: RawPath[]; readonly reverted: number }> {
  const files = new WorkingFiles(journal.root, journal.handoff);
  const kept: RawPath[] = [];
  const due: TreeJournal['files'] = [];
  for (const file of journal.files) {
    await files.removeUnfinished(file.path).catch(ignoreConflict);
    const found = await files.stateOf(file.path).catch((error: unknown) => {
      if (error instanceof HoldfastError) return 'changed' as const;
      throw error;
    });
    if (found !== 'changed' && isEqual(found, file.before)) continue;
    if (found !== 'changed' && isEqual(found, file.after)) due.push(file);
    else kept.push(file.path);
  }
  // A folder may stand where a file was: what was added goes first.
  const order = due.toSorted((one, other) => Number(one.before !== null) - Number(other.before !== null));
  for (const { path, after } of order.filter(({ before }) => before === null))
    await files.replace(path, after, null);
  for (const folder of journal.folders.toSorted((one, other) => other.length - one.length))
    await files.removeIfEmpty(folder);
  const restored = order.filter(({ before }) => before !== null);
  for (let at = 0; at < restored.length; at += BATCH) {
    const batch = restored.slice(at, at + BATCH);
    const blobs = await readBlobs(
      git,
      batch.flatMap(({ before }) => before?.blob ?? []),
    );
    for (const { path, before, after } of batch) {
      const bytes = before === null ? undefined : blobs.get(before.blob);
      if (before === null || bytes === undefined) continue;
      await files.makeParents(path);
      await files.replace(path, after, { mode: before.mode, bytes });
    }
  }
  return { kept, reverted: due.length };
}

export async function dropUndoRef(git: Git, { undoRef }: Pick<TreeJournal, 'undoRef'>): Promise<void> {
  await git.run(['update-ref', '-d', undoRef]);
}

/** Their contents by their ids. Errors: `conflict` if one is missing. */
export async function readBlobs(git: Git, ids: readonly string[]): Promise<Map<string, Buffer>> {
  const output = await git.bytes(['cat-file', '--batch'], {
    input: Buffer.from(ids.map((id) => `${id}\n`).join('')),
  });
  const blobs = new Map<string, Buffer>();
  for (let at = 0; at < output.length;) {
    const end = output.indexOf(0x0a, at);
    const match = /^([0-9a-f]{40}) blob (\d+)$/.exec(output.toString('latin1', at, end));
    if (match === null) throw new HoldfastError('conflict', 'The earlier files cannot be read from git');
    const size = Number(match[2]);
    blobs.set(match[1] ?? '', output.subarray(end + 1, end + 1 + size));
    at = end + 2 + size;
  }
  return blobs;
}

/** A path that cannot be looked at now is one that somebody changed: the next line finds that out. */
function ignoreConflict(error: unknown): void {
  if (!(error instanceof HoldfastError)) throw error;
}

function isEqual(one: StoredFile | null, other: StoredFile | null): boolean {
  return one?.blob === other?.blob && one?.mode === other?.mode;
}
