import { commands, window } from 'vscode';
import { recordUndone } from '../../handoff/record.ts';
import type { Repository } from '../../handoff/repository.ts';
import { undoableHandoffs, undoHandoff } from '../../handoff/undo.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { notifyProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { HandoffHost } from './hand-off.ts';
import { chooseRepository, openChosen } from './repository-choice.ts';

/** Takes a handoff back: the one with this id, else the newest of the repository. Returns its id. */
export async function undoInRepository(
  { connection, state }: HandoffHost,
  given: string | undefined,
  handoff: string | undefined,
): Promise<string | undefined> {
  const folder = given ?? (await chooseRepository(state, 'Undo Handoff'));
  if (folder === undefined) return undefined;
  const repository = await openChosen(folder, connection, 'handoff');
  const named = handoff ?? (await confirmNewest(repository));
  if (named === undefined) return undefined;
  const undo = async (force: boolean) =>
    await notifyProgress({ title: 'Undoing the handoff' }, () =>
      undoHandoff(repository, { handoff: named, force }),
    );
  const { journal, keptRef } = await undo(false).catch(async (error: unknown) => {
    if (!(await confirmKeeping(error))) throw error;
    return await undo(true);
  });
  const kept = keptRef === null ? '' : ` Work that was added since is kept in ${sanitize(keptRef)}.`;
  try {
    // The history has none that was interrupted.
    if (journal.state === 'made') await recordUndone(connection, journal);
  } catch (error) {
    const { sentence } = HoldfastError.from(error);
    void window.showWarningMessage(
      sanitize(`The handoff was undone, and the session's history does not say so: ${sentence}`, 400),
    );
    return journal.handoff;
  }
  const REVIEW = 'Review Changes';
  void window.showInformationMessage(`The handoff was undone.${kept}`, REVIEW).then((choice) => {
    if (choice === REVIEW) void commands.executeCommand('holdfast.reviewChanges', journal.session);
  });
  return journal.handoff;
}

/** The newest handoff of the repository, if the person wants to undo it. Errors: `not_found` without any. */
async function confirmNewest(repository: Repository): Promise<string | undefined> {
  const newest = (await undoableHandoffs(repository)).at(-1);
  if (newest === undefined) {
    throw new HoldfastError('not_found', 'There is no handoff to undo in this repository', {
      next: 'a patch or a folder is yours to delete',
    });
  }
  const place =
    newest.to === 'tree'
      ? `the working tree ${newest.root}`
      : newest.to === 'worktree'
        ? `the worktree ${newest.worktree}`
        : `the branch ${newest.branch}`;
  const UNDO = 'Undo Handoff';
  const when = new Date(newest.at).toLocaleString();
  const choice = await window.showWarningMessage(
    'Undo the newest handoff of this repository?',
    { modal: true, detail: sanitize(`It went from session ${newest.session} to ${place} on ${when}.`, 500) },
    UNDO,
  );
  return choice === UNDO ? newest.handoff : undefined;
}

/** Asks where work was added since. Errors: `cancelled` where the person declines. */
async function confirmKeeping(error: unknown): Promise<boolean> {
  if (!(error instanceof HoldfastError) || error.code !== 'conflict') return false;
  const KEEP = 'Keep That Work and Undo';
  const choice = await window.showWarningMessage(
    `${sanitize(error.message)}.`,
    { modal: true, detail: sanitize(error.why ?? '', 1_000) },
    KEEP,
  );
  if (choice === KEEP) return true;
  throw new HoldfastError('cancelled', 'The handoff stays', { cause: error });
}
