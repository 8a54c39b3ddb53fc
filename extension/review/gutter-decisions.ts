import { Selection, Uri, commands, window, workspace } from 'vscode';
import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Decision, Verdict } from '../../protocol/review.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import { acceptedUri, workspaceFile } from './accepted-texts.ts';
import { partsOfChange, reviewedText } from './gutter-change.ts';
import type { ReviewedText } from './gutter-change.ts';
import type { OpenReview } from './open-review.ts';
import type { OpenReviews } from './open-reviews.ts';

const line = z.number().int().nonnegative();
/** What VS Code gives to commands of `scm/change/title`: the file, all its changes, and which of them is shown. */
const ShownSchema = z.tuple([
  z.custom<Uri>((uri) => uri instanceof Uri),
  z.array(
    z.object({
      originalStartLineNumber: line,
      originalEndLineNumber: line,
      modifiedStartLineNumber: line,
      modifiedEndLineNumber: line,
    }),
  ),
  line,
]);

export interface GutterDecisions {
  readonly review: OpenReview;
  readonly decisions: readonly Decision[];
  /** Where the change is shown. */
  readonly place: GutterPlace;
}

/** `line`: of the document, from 0. */
interface GutterPlace {
  readonly uri: Uri;
  readonly line: number;
}

/**
 * What a person decides who presses a button above a change of the gutter. Errors: `conflict` where the file is not as the review
 * has it, or where the change is no change that the review can decide by itself; `not_found` without a review.
 */
export async function decisionsInGutter(
  reviews: Pick<OpenReviews, 'of' | 'hunksOf'>,
  connection: Pick<Connection, 'of'>,
  given: readonly unknown[],
  verdict: Verdict,
): Promise<GutterDecisions> {
  const shown = ShownSchema.safeParse(given);
  const [uri, changes, index] = shown.data ?? [];
  const file = uri === undefined ? undefined : workspaceFile(uri);
  const change = changes?.[index ?? 0];
  const review = file === undefined ? undefined : reviews.of(file.session);
  if (uri === undefined || change === undefined || file === undefined || review === undefined) {
    throw new HoldfastError('not_found', 'No change of a review is shown here', {
      next: 'run Review Changes, then open the change in the gutter',
    });
  }
  const { session, path } = file;
  const place = { uri, line: Math.max(0, change.modifiedStartLineNumber - 1) };
  const id = review.fileAt(path)?.id ?? '';
  const found = await reviews.hunksOf({ session, path, id, side: 'target' });
  if (found?.file.type !== 'file') throw notAsReviewed(path);
  const { hunks } = found;
  const isNew = found.file.kind === 'added' || found.file.kind === 'renamed';
  const reviewed: ReviewedText = {
    base: isNew ? '' : await textAt(review.uriOf(found.file, 'base')),
    target: await textAt(review.uriOf(found.file, 'target')),
    hunks,
  };
  const [accepted, present] = [await textAt(acceptedUri(connection, file)), await textAt(uri)];
  if (hunks.length === 0) {
    // Both sides are one change, which is decided as a whole.
    const isWhole = accepted === reviewed.base && present === reviewed.target && changes?.length === 1;
    if (!isWhole) throw notAsReviewed(path);
    return { review, place, decisions: [{ path, seen: id }] };
  }
  if (accepted !== reviewedText(reviewed, 'accepted') || present !== reviewedText(reviewed, 'workspace'))
    throw notAsReviewed(path);
  const parts = partsOfChange(reviewed, change, verdict);
  if (parts === undefined) {
    throw new HoldfastError('conflict', `This change of ${sanitize(path)} cannot be decided here`, {
      why: 'the review divides these lines in another way',
      next: 'open the file from the Source Control view, and decide there',
    });
  }
  return { review, place, decisions: parts.map((part) => ({ path, seen: id, ...part })) };
}

/**
 * Puts the cursor at the change of the gutter after a place. VS Code closes the view of a change that was decided, so without this
 * the person would be where the view was opened. Nothing happens if another document is in the editor by now.
 */
export async function goToNextInGutter({ uri, line }: GutterPlace): Promise<void> {
  const editor = window.activeTextEditor;
  if (editor?.document.uri.toString() !== uri.toString()) return;
  const at = Math.min(line, editor.document.lineCount - 1);
  editor.selection = new Selection(at, 0, at, 0);
  await commands.executeCommand('workbench.action.editor.nextChange');
}

/** With line feeds: editors and hunks count the same lines then, unless a return stands alone. */
async function textAt(uri: Uri): Promise<string> {
  const text = (await workspace.openTextDocument(uri)).getText();
  return text.replace(/^\ufeff/, '').replaceAll('\r\n', '\n');
}

function notAsReviewed(path: string): HoldfastError {
  return new HoldfastError('conflict', `${sanitize(path)} is not as the review has it`, {
    why: 'you or the agent edited it since, or it is no plain text',
    next: 'save it and run Review Changes again, then decide',
  });
}
