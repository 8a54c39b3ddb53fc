import { Uri } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ReviewAction, ReviewFile, Verdict } from '../../protocol/review.ts';
import { sanitize } from '../base/sanitize.ts';
import { activeChange, shownChange } from './change-uri.ts';
import type { OpenReview } from './open-review.ts';
import type { OpenReviews } from './open-reviews.ts';
import { needsCare } from './review-model.ts';

/** The changes that a command is about. */
export interface Targets {
  readonly review: OpenReview;
  readonly files: readonly ReviewFile[];
  /**
   * `entries`: each was named. `group`: of the Source Control view. `branch`: of the tree, also together with entries.
   * `shown`: the change in the active editor.
   */
  readonly what: 'entries' | 'group' | 'branch' | 'shown';
}

/**
 * What the arguments of a command name: entries of the Source Control view or of the tree, a group, a URI, or without arguments
 * the change in the active editor. Errors: `invalid_params` where that shows none, `conflict` for an outdated one.
 */
export function targetsOf(reviews: OpenReviews, args: readonly unknown[]): Targets {
  const entries = entriesOf(args);
  const first = entries.find((one) => isChange(one) || isBranch(one));
  if (first !== undefined) {
    const { review } = first;
    const files = new Map<string, ReviewFile>();
    let isWithBranch = false;
    for (const entry of entries) {
      const isOne = isChange(entry);
      if (!isOne && !isBranch(entry)) continue;
      isWithBranch ||= !isOne;
      if (entry.review !== review) {
        throw new HoldfastError('invalid_params', 'The selection has changes of more than one review', {
          next: 'decide about those of each review on their own',
        });
      }
      for (const file of isOne ? [entry.file] : entry.files) files.set(file.path, file);
    }
    return { review, files: [...files.values()], what: isWithBranch ? 'branch' : 'entries' };
  }
  const [target] = args;
  for (const review of reviews.all) {
    const files = review.resourcesIn(target);
    if (files.length > 0) return { review, files, what: 'group' };
  }
  // What was named is gone, for example after a double click: the change in the active editor is another one.
  if (args.length > 0 && !(target instanceof Uri && shownChange(target) !== undefined)) throw gone();
  const shown = activeChange();
  const review = shown === undefined ? undefined : reviews.of(shown.session);
  if (shown === undefined || review === undefined) throw noChange();
  const file = review.fileAt(shown.path);
  if (file?.id !== shown.id) throw changedSince(shown.path);
  return { review, files: [file], what: 'shown' };
}

/** What is left to do of what was named: below a branch, only what is not so already. */
export function filesFor({ files, what }: Targets, action: ReviewAction): readonly ReviewFile[] {
  if (what !== 'branch') return files;
  const done = { accept: 'accepted', reject: 'rejected', withdraw: 'to-review' }[action];
  return files.filter(({ state }) => state !== done);
}

/** Whether a person is asked first: about much that was not named one by one, or that may do harm. */
export function isToConfirm(what: Targets['what'], files: readonly ReviewFile[], verdict: Verdict): boolean {
  if (files.some(({ below }) => below > 0)) return true;
  if (what === 'group') return files.length > 1;
  if (what !== 'branch') return false;
  return verdict === 'reject'
    ? files.length > 1
    : files.some((file) => needsCare(file) || file.state !== 'to-review');
}

/** A view of VS Code gives the entry of the menu, and all that are selected. */
function entriesOf(args: readonly unknown[]): readonly unknown[] {
  const [first, selected] = args;
  if (!Array.isArray(selected)) return args.flat();
  return selected.includes(first) ? selected : [first];
}

function isChange(target: unknown): target is { readonly review: OpenReview; readonly file: ReviewFile } {
  return typeof target === 'object' && target !== null && 'review' in target && 'file' in target;
}

function isBranch(
  target: unknown,
): target is { readonly review: OpenReview; readonly files: readonly ReviewFile[] } {
  return typeof target === 'object' && target !== null && 'review' in target && 'files' in target;
}

function gone(): HoldfastError {
  return new HoldfastError('conflict', 'This change is not in the list any more', {
    next: 'look at the review again',
  });
}

export function noChange(): HoldfastError {
  return new HoldfastError('invalid_params', 'No change of a review is open', {
    next: 'open one from the Source Control view, or run Review Changes',
  });
}

export function changedSince(path: string): HoldfastError {
  return new HoldfastError('conflict', `${sanitize(path)} has changed since you opened it`, {
    next: 'open it again from the Source Control view',
  });
}
