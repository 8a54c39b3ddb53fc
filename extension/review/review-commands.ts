import { randomUUID } from 'node:crypto';
import { commands, window } from 'vscode';
import type { Memento } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Decision, ReviewAction, Verdict } from '../../protocol/review.ts';
import { ReviewBaseSchema } from '../../protocol/review.ts';
import { formatCount } from '../base/format.ts';
import { notifyProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { OPEN_PAGE, openPageIf } from '../sessions/page-offer.ts';
import { pickSession } from '../sessions/pick-session.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { onlySessionInWindow } from '../sessions/session-window.ts';
import { goToNeighbour, openAllChanges, openChange } from './change-editors.ts';
import { activeChange, shownChange } from './change-uri.ts';
import { changedSince, filesFor, isToConfirm, noChange, targetsOf } from './change-targets.ts';
import { confirmMany } from './confirm-many.ts';
import { decisionsInGutter, goToNextInGutter } from './gutter-decisions.ts';
import type { OpenReview } from './open-review.ts';
import type { OpenReviews } from './open-reviews.ts';
import { chooseBase } from './review-since.ts';
import type { ChosenBase } from './review-since.ts';
import { inParts, sendParts } from './send-decisions.ts';
import type { Part } from './send-decisions.ts';
import { hunkAt, inReviewOrder, isUndecided, partsIn } from './review-model.ts';

const STATUS_MS = 5_000;
const DONE: Readonly<Record<ReviewAction, string>> = {
  accept: 'accepted',
  reject: 'rejected',
  withdraw: 'to review again',
};
const UNDONE: Readonly<Record<ReviewAction, string>> = {
  accept: 'not accepted any more',
  reject: 'not rejected any more',
  withdraw: 'decided as before',
};

/** The commands of a review: what a person opens, decides and takes back. */
export class ReviewCommands {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #reviews: OpenReviews;
  readonly #state: Memento;

  /** `state`: that of all windows. */
  constructor(connection: Connection, sessions: SessionList, reviews: OpenReviews, state: Memento) {
    this.#connection = connection;
    this.#sessions = sessions;
    this.#reviews = reviews;
    this.#state = state;
  }

  get handlers() {
    return {
      'holdfast.reviewChanges': (target, base) => this.#open(target, base),
      'holdfast.reviewChangesSince': (target) => this.#openSince(target),
      'holdfast.closeReview': (target) => this.#close(target),
      'holdfast.openChange': (...targets) => this.#openChange(targets),
      'holdfast.openAllChanges': (target) => this.#openAll(target),
      'holdfast.nextChange': (target) => this.#goTo(target, 1),
      'holdfast.previousChange': (target) => this.#goTo(target, -1),
      'holdfast.acceptChange': (...targets) => this.#decideFiles(targets, 'accept'),
      'holdfast.rejectChange': (...targets) => this.#decideFiles(targets, 'reject'),
      'holdfast.withdrawDecision': (...targets) => this.#decideFiles(targets, 'withdraw'),
      'holdfast.acceptSelection': () => this.#decideSelection('accept'),
      'holdfast.rejectSelection': () => this.#decideSelection('reject'),
      'holdfast.acceptHunk': (...shown) => this.#decideInGutter(shown, 'accept'),
      'holdfast.rejectHunk': (...shown) => this.#decideInGutter(shown, 'reject'),
      'holdfast.acceptAllChanges': (target) => this.#decideAll(target, 'accept'),
      'holdfast.rejectAllChanges': (target) => this.#decideAll(target, 'reject'),
      'holdfast.undoDecision': (target) => this.#undo(target),
      'holdfast.addComment': (reply) => this.#reviews.comments.add(reply),
      'holdfast.removeComment': (thread) => this.#reviews.comments.remove(thread),
      'holdfast.sendComments': (target) => this.#sendComments(target),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /** Compares the workspace with the last reviewed state, and shows the review. Returns how many changes it has. */
  async #open(target: unknown, given: unknown): Promise<number | undefined> {
    const session = await this.#pick(target, 'Review Changes');
    if (session === undefined) return undefined;
    const base = ReviewBaseSchema.safeParse(given);
    return await this.#show(session, base.success ? { base: base.data } : {});
  }

  /** As `#open`, compared with what the person chooses. */
  async #openSince(target: unknown): Promise<number | undefined> {
    const given = this.#reviews.all.find(({ control }) => control === target)?.session.id;
    const session = await this.#pick(given ?? target, 'Review Changes Since');
    if (session === undefined) return undefined;
    const chosen = await chooseBase({ connection: this.#connection, state: this.#state }, session);
    return chosen === undefined ? undefined : await this.#show(session, chosen);
  }

  async #show(session: Session, base: Partial<ChosenBase>): Promise<number> {
    const isNew = this.#reviews.of(session.id) === undefined;
    const review = this.#reviews.open(session);
    try {
      await notifyProgress({ title: `Reviewing ${titleOf(session)}` }, (progress) =>
        review.refresh(base, (message) => progress.report({ message })),
      );
    } catch (error) {
      if (isNew) this.#reviews.close(session.id);
      throw error;
    }
    if (review.files.length === 0) {
      this.#reviews.close(session.id);
      void window.showInformationMessage(
        `${titleOf(session)}: nothing has changed since ${describeBase(review)}.`,
      );
      return 0;
    }
    await this.#reviews.show();
    const [first] = inReviewOrder(review.files);
    if (first !== undefined) await openChange(review, first, { preserveFocus: false });
    return review.files.length;
  }

  async #close(target: unknown): Promise<void> {
    const review = await this.#reviewOf(target);
    if (review !== undefined) this.#reviews.close(review.session.id);
  }

  async #openChange(targets: readonly unknown[]): Promise<void> {
    const { review, files } = targetsOf(this.#reviews, targets);
    const [file] = files;
    if (file !== undefined) await openChange(review, file, {});
  }

  async #openAll(target: unknown): Promise<void> {
    const review = await this.#reviewOf(target);
    if (review !== undefined) await openAllChanges(review);
  }

  async #goTo(target: unknown, step: 1 | -1): Promise<void> {
    const review = await this.#reviewOf(target);
    if (review !== undefined) await goToNeighbour(this.#reviews, review, step);
  }

  /** For what `targetsOf` finds, or `selected` of the tree. Returns how many were decided. */
  async #decideFiles(args: readonly unknown[], action: ReviewAction): Promise<number | undefined> {
    const targets = targetsOf(
      this.#reviews,
      args[0] === 'selected' ? await this.#reviews.tree.selected() : args,
    );
    const { review, what } = targets;
    const files = filesFor(targets, action);
    if (files.length === 0) {
      window.setStatusBarMessage(`There is nothing to ${action}`, STATUS_MS);
      return 0;
    }
    if (action !== 'withdraw' && isToConfirm(what, files, action)) {
      const replaced = files.filter(({ state }) => state !== 'to-review').length;
      if (!(await confirmMany(files, action, replaced))) return undefined;
    }
    const decisions = files.map(({ path, id }) => ({ path, seen: id }));
    const decided = await this.#decide(review, action, decisions);
    if (what === 'shown' && action !== 'withdraw') await goToNeighbour(this.#reviews, review, 1);
    return decided;
  }

  /** For the selected lines of the active editor, or the hunk at the cursor. Goes on to what is to review next. */
  async #decideSelection(verdict: Verdict): Promise<number | undefined> {
    const editor = window.activeTextEditor;
    // As it is when the person asks: the cursor may move while the hunks are read.
    const selections = editor?.selections ?? [];
    const cursor = editor?.selection.active.line ?? 0;
    const shown = editor === undefined ? undefined : shownChange(editor.document.uri);
    const review = shown === undefined ? undefined : this.#reviews.of(shown.session);
    if (shown === undefined || review === undefined) throw noChange();
    const found = await this.#reviews.hunksOf(shown);
    if (found === undefined) throw changedSince(shown.path);
    const { path, id } = shown;
    const { hunks } = found;
    const decisions: Decision[] = [];
    if (hunks.length === 0) {
      const file = review.fileAt(path);
      if (file !== undefined && file.below > 0 && !(await confirmMany([file], verdict))) return undefined;
      decisions.push({ path, seen: id });
    } else if (selections.every(({ isEmpty }) => isEmpty)) {
      const hunk = hunkAt(hunks, shown.side, cursor);
      if (hunk === undefined) {
        throw new HoldfastError('invalid_params', 'Nothing has changed at the cursor', {
          next: 'go to the next change, or select changed lines',
        });
      }
      decisions.push({ path, seen: id, hunks: [hunk.id] });
    } else {
      for (const { start, end } of selections) {
        // A selection that ends before the first character of a line does not show that line as selected.
        const lines = {
          start: start.line,
          end: end.character === 0 && end.line > start.line ? end.line : end.line + 1,
        };
        for (const part of partsIn(hunks, shown.side, lines)) decisions.push({ path, seen: id, ...part });
      }
      if (decisions.length === 0) {
        throw new HoldfastError('invalid_params', 'No selected line has changed', {
          next: 'select changed lines',
        });
      }
    }
    const decided = await this.#decide(review, verdict, decisions);
    await goToNeighbour(this.#reviews, review, 1);
    return decided;
  }

  /** For what VS Code names above a change of the gutter. Goes on to the next one of the file. */
  async #decideInGutter(shown: readonly unknown[], verdict: Verdict): Promise<number> {
    const found = await decisionsInGutter(this.#reviews, this.#connection, shown, verdict);
    const { review, decisions, place } = found;
    const decided = await this.#decide(review, verdict, decisions);
    await goToNextInGutter(place);
    return decided;
  }

  /** Everything that is not decided. A program that names a session is not asked. */
  async #decideAll(target: unknown, verdict: Verdict): Promise<number | undefined> {
    const review = await this.#reviewOf(target);
    const opened = review?.review;
    if (review === undefined || opened === undefined) return undefined;
    const all = { review: opened.id, revision: opened.revision };
    const left = review.files.filter(isUndecided);
    if (left.length === 0) {
      window.setStatusBarMessage('Every change is decided already', STATUS_MS);
      return 0;
    }
    if (typeof target !== 'string' && !(await confirmMany(left, verdict))) return undefined;
    return this.#send(review, verdict, [{ all }]);
  }

  async #undo(target: unknown): Promise<number | undefined> {
    const review = await this.#reviewOf(target);
    if (review === undefined) return undefined;
    const { verdict, paths } = await this.#connection.call('review/undo', {
      session: review.session.id,
      opId: randomUUID(),
    });
    await review.reload();
    window.setStatusBarMessage(`$(discard) ${formatCount(paths, 'change')} ${UNDONE[verdict]}`, STATUS_MS);
    return paths;
  }

  /** Sends the comments that were not sent yet as the next prompt. Returns how many. */
  async #sendComments(target: unknown): Promise<number | undefined> {
    const { all, comments } = this.#reviews;
    const open = activeChange()?.session ?? (all.length === 1 ? all[0]?.session.id : undefined);
    const session = await this.#pick(comments.sessionOf(target) ?? target ?? open, 'Send Comments to Agent');
    if (session === undefined) return undefined;
    const { sent, left } = await comments.send(session.id);
    const more = left === 0 ? '' : `; ${formatCount(left, 'comment')} left for the next prompt`;
    const message = `${titleOf(session)}: ${formatCount(sent, 'comment')} sent to the agent${more}.`;
    void window.showInformationMessage(message, OPEN_PAGE).then((choice) => openPageIf(choice, session.id));
    return sent;
  }

  #decide(review: OpenReview, verdict: ReviewAction, decisions: readonly Decision[]): Promise<number> {
    return this.#send(review, verdict, inParts(decisions));
  }

  /** In a request for each part. Returns how many were decided. Errors say how many were decided before them. */
  async #send(review: OpenReview, verdict: ReviewAction, parts: readonly Part[]): Promise<number> {
    const session = review.session.id;
    const wasOpen = review.files.some(isUndecided);
    const say = (count: number): string => `${formatCount(count, 'change')} ${DONE[verdict]}`;
    try {
      const count = await sendParts(parts, say, async (part) => {
        const request = { session, verdict, ...part, opId: randomUUID() };
        return (await this.#connection.call('review/decide', request)).decided;
      });
      await review.reload();
      this.#showDone(review, say(count), wasOpen);
      return count;
    } catch (error) {
      // What the person sees may be older than what the supervisor has.
      await review.reload().catch(() => undefined);
      throw error;
    }
  }

  #showDone(review: OpenReview, done: string, wasOpen: boolean): void {
    if (review.files.some(isUndecided) || !wasOpen) {
      window.setStatusBarMessage(`$(check) ${done}`, STATUS_MS);
      return;
    }
    const UNDO = 'Undo';
    const HAND_OFF = 'Hand Off…';
    void window
      .showInformationMessage(`${titleOf(review.session)}: every change is decided.`, HAND_OFF, UNDO)
      .then((choice) => {
        if (choice === HAND_OFF) void commands.executeCommand('holdfast.handOff', review.session.id);
        if (choice === UNDO) void commands.executeCommand('holdfast.undoDecision', review.session.id);
      });
  }

  /** The review that a command is about; the person chooses where several are open. Errors: `not_found` for none. */
  async #reviewOf(target: unknown): Promise<OpenReview | undefined> {
    const { all } = this.#reviews;
    const given =
      typeof target === 'string' ? this.#reviews.of(target) : all.find(({ control }) => control === target);
    const shown = activeChange();
    const found = given ?? (shown === undefined ? undefined : this.#reviews.of(shown.session));
    if (found !== undefined) return found;
    if (all.length <= 1) {
      const [only] = all;
      if (only !== undefined) return only;
      throw noReview();
    }
    const items = all.map((review) => ({ label: titleOf(review.session), review }));
    return (await window.showQuickPick(items, { placeHolder: 'Choose a review' }))?.review;
  }

  #pick(target: unknown, title: string): Promise<Session | undefined> {
    return pickSession(this.#sessions, target ?? onlySessionInWindow(), { title });
  }
}

function titleOf(session: Session): string {
  return sanitize(sessionTitle(session));
}

function describeBase(review: OpenReview): string {
  const spec = review.review?.base.spec ?? 'last';
  if (spec === 'last') return 'the last review';
  if (spec.startsWith('head:')) return `the commit ${spec.slice(5, 12)}`;
  return spec === 'start' ? 'its start' : 'the chosen snapshot';
}

function noReview(): HoldfastError {
  return new HoldfastError('not_found', 'No review is open in this window', { next: 'run Review Changes' });
}
