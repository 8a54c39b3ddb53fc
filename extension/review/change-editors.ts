import { Range, Selection, TabInputTextDiff, TextEditorRevealType, commands, window } from 'vscode';
import type { Uri } from 'vscode';
import type { ReviewFile } from '../../protocol/review.ts';
import { baseName } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { activeChange, shownChange } from './change-uri.ts';
import type { OpenReview } from './open-review.ts';
import type { OpenReviews } from './open-reviews.ts';
import { inReviewOrder, isUndecided, lineOf, neighbour, neighbourHunk } from './review-model.ts';

/** How many changes the editor of all changes shows. */
const MAX_TOGETHER = 500;

/** Opens a change beside its base. */
export async function openChange(
  review: OpenReview,
  file: ReviewFile,
  options: { readonly preserveFocus?: boolean; readonly line?: number },
): Promise<void> {
  const { preserveFocus = false, line } = options;
  const name = sanitize(baseName(file.path), 80);
  const title = `${name} (${sanitize(sessionTitle(review.session), 40)}: review)`;
  const selection = line === undefined ? {} : { selection: new Range(line, 0, line, 0) };
  await commands.executeCommand(
    'vscode.diff',
    review.uriOf(file, 'base'),
    review.uriOf(file, 'target'),
    title,
    { preview: true, preserveFocus, ...selection },
  );
}

/** Opens all changes below each other: those to review first. */
export async function openAllChanges(review: OpenReview): Promise<void> {
  const decided = review.files.filter((file) => !isUndecided(file));
  const files = [...inReviewOrder(review.files), ...decided].slice(0, MAX_TOGETHER);
  const resources = files.map((file): [Uri, Uri | undefined, Uri | undefined] => [
    review.uriOf(file, 'target'),
    file.kind === 'added' ? undefined : review.uriOf(file, 'base'),
    file.kind === 'deleted' ? undefined : review.uriOf(file, 'target'),
  ]);
  const title = `Review of ${sanitize(sessionTitle(review.session), 60)}`;
  await commands.executeCommand('vscode.changes', title, resources);
  if (review.files.length > MAX_TOGETHER) {
    window.setStatusBarMessage(`Showing the first ${MAX_TOGETHER} of ${review.files.length} changes`, 10_000);
  }
}

/** Shows the next hunk that is to review, or the one before, in this change or another. */
export async function goToNeighbour(reviews: OpenReviews, review: OpenReview, step: 1 | -1): Promise<void> {
  const shown = activeChange();
  const isOwn = shown?.session === review.session.id;
  if (isOwn && (await goToHunk(reviews, review, step))) return;
  const from = isOwn ? shown.path : '';
  const file = neighbour(review.files, from, step);
  if (file === undefined) {
    const [left] = inReviewOrder(review.files);
    window.setStatusBarMessage(
      left === undefined ? 'Every change is decided' : 'This was the last change',
      5_000,
    );
    return;
  }
  const found = await reviews.hunksOf({
    session: review.session.id,
    path: file.path,
    id: file.id,
    side: 'target',
  });
  const left = (found?.hunks ?? []).filter(isUndecided);
  const hunk = step === 1 ? left[0] : left.at(-1);
  await openChange(review, file, { line: hunk === undefined ? 0 : lineOf(hunk) });
}

/** Within the active editor; false where that has no further one. */
async function goToHunk(reviews: OpenReviews, review: OpenReview, step: 1 | -1): Promise<boolean> {
  const shown = activeChange();
  const found = shown === undefined ? undefined : await reviews.hunksOf(shown);
  if (shown === undefined || found === undefined) return false;
  const target = window.visibleTextEditors.find(({ document }) => {
    const one = shownChange(document.uri);
    return one?.side === 'target' && one.path === shown.path && one.id === shown.id;
  });
  if (target === undefined) return false;
  const hunk = neighbourHunk(found.hunks, target.selection.active.line, step);
  if (hunk === undefined) return false;
  const line = lineOf(hunk);
  // The diff editor takes the focus to its right side, where the lines of hunks are counted.
  if (window.tabGroups.activeTabGroup.activeTab?.input instanceof TabInputTextDiff) {
    await openChange(review, found.file, { line });
  } else {
    target.selection = new Selection(line, 0, line, 0);
    target.revealRange(target.selection, TextEditorRevealType.InCenterIfOutsideViewport);
  }
  return true;
}
