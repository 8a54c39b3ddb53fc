import { Uri, commands, window, workspace } from 'vscode';
import type { HandoffResult } from '../../handoff/handoff.ts';
import type { Repository } from '../../handoff/repository.ts';
import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { gitIn } from './repository-choice.ts';

const OPEN_WORKTREE = 'Open Worktree';
const OPEN_FOLDER = 'Open Folder';
const OPEN_PATCH = 'Open Patch';
const SHOW_COMMIT = 'Show Commit';
const UNDO = 'Undo';
/** A commit is shown up to here. */
const MAX_CHARACTERS = 2_000_000;

/** Says what was made, and offers what comes next. */
export function showResult(result: HandoffResult, repository: Repository | null, place: string | null): void {
  const { to, folder, commit, handoff, endedReview, merged, unrecorded } = result;
  const root = repository?.git.folder;
  const actions: Record<string, () => unknown> = {};
  if (to === 'worktree' && folder !== null)
    actions[OPEN_WORKTREE] = () =>
      commands.executeCommand('vscode.openFolder', Uri.file(folder), { forceNewWindow: true });
  if (to === 'dir' && folder !== null)
    actions[OPEN_FOLDER] = () =>
      commands.executeCommand('vscode.openFolder', Uri.file(folder), { forceNewWindow: true });
  if (to === 'patch' && place !== null)
    actions[OPEN_PATCH] = () => commands.executeCommand('vscode.open', Uri.file(place));
  if (commit !== null && root !== undefined)
    actions[SHOW_COMMIT] = () => commands.executeCommand('holdfast.showCommit', root, commit);
  if (to === 'worktree' || to === 'branch' || to === 'tree')
    actions[UNDO] = () => commands.executeCommand('holdfast.undoHandoff', root, handoff);
  const review =
    unrecorded !== null
      ? ` The session's history does not have it yet: ${sanitize(unrecorded, 300)}`
      : endedReview === null
        ? ''
        : ' The review has ended.';
  const mergedText =
    merged.length === 0 ? '' : ` ${formatCount(merged.length, 'file')} merged with your own changes.`;
  void window
    .showInformationMessage(`${summaryOf(result, place)}${mergedText}${review}`, ...Object.keys(actions))
    .then((choice) => (choice === undefined ? undefined : actions[choice]?.()));
}

function summaryOf({ to, files, commit, branch, folder }: HandoffResult, place: string | null): string {
  const handed = `${formatCount(files, 'file')} handed off`;
  switch (to) {
    case 'worktree':
      return `${handed}: commit ${short(commit)} on the new branch ${sanitize(branch ?? '')} in ${sanitize(folder ?? '')}.`;
    case 'branch':
      return `${handed}: commit ${short(commit)} on the new branch ${sanitize(branch ?? '')}.`;
    case 'tree':
    case 'dir':
      return `${handed} into ${sanitize(folder ?? '')}.`;
    case 'patch':
      return `${handed} as ${sanitize(place ?? '')}. Apply it with git am --keep-cr.`;
  }
}

/** The text of a commit, as a read-only document. No program of the repository runs for it. */
export async function openCommit(repository: string, commit: string): Promise<void> {
  const text = await gitIn(repository).text([
    'show',
    '--no-ext-diff',
    '--no-textconv',
    '--no-color',
    '--stat',
    '--patch',
    '--end-of-options',
    commit,
  ]);
  const uri = Uri.from({ scheme: 'holdfast-commit', path: `/${short(commit)}.diff`, query: commit });
  const registration = workspace.registerTextDocumentContentProvider(uri.scheme, {
    provideTextDocumentContent: () => text.slice(0, MAX_CHARACTERS),
  });
  try {
    await window.showTextDocument(await workspace.openTextDocument(uri), { preview: true });
  } finally {
    // The document stays open with its text; after a reload of the window it is empty.
    void registration.dispose();
  }
}

function short(commit: string | null): string {
  return commit?.slice(0, 12) ?? '';
}
