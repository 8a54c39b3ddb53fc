import { randomUUID } from 'node:crypto';
import { CommentMode, CommentThreadCollapsibleState, CommentThreadState, Range, comments } from 'vscode';
import type { Comment, CommentReply, CommentThread, Disposable, TextDocument } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ReviewComment } from '../../protocol/review-comments.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import { workspaceUri } from '../files/location.ts';
import { shownChange } from './change-uri.ts';
import { hasLines, linesIn, pathOn, threadOf } from './comment-threads.ts';
import type { CommentThreadModel } from './comment-threads.ts';
import type { OpenReview } from './open-review.ts';

/** The `commentController` of menus. */
const CONTROLLER = 'holdfast-review';

interface ShownThread {
  /** The model as it was shown. */
  readonly key: string;
  readonly thread: CommentThread;
}

export interface ReviewCommentsOptions {
  readonly connection: Connection;
  /** The review of a session that this window shows. */
  readonly reviewOf: (session: string) => OpenReview | undefined;
}

/** The comments of the supervisor on the lines of reviews that this window shows. */
export class ReviewComments implements Disposable {
  readonly #options: ReviewCommentsOptions;
  readonly #owned = new DisposableStore();
  readonly #controller = this.#owned.add(comments.createCommentController(CONTROLLER, 'Review Comments'));
  /** By session, then by the id of the comment. */
  readonly #threads = new Map<string, Map<string, ShownThread>>();
  /** Of each session, the number of its newest refresh. */
  readonly #refreshes = new Map<string, number>();

  constructor(options: ReviewCommentsOptions) {
    this.#options = options;
    this.#controller.options = { prompt: 'Comment', placeHolder: 'What should the agent know?' };
    this.#controller.commentingRangeProvider = {
      provideCommentingRanges: (document) => this.#rangesOf(document),
    };
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** Gets the comments of a review from the supervisor. Without a connection they stay as they are. */
  async refresh(review: OpenReview): Promise<void> {
    const session = review.session.id;
    const number = (this.#refreshes.get(session) ?? 0) + 1;
    this.#refreshes.set(session, number);
    const found = await this.#options.connection.call('review/comments', { session }).catch(() => undefined);
    const isNewest = this.#refreshes.get(session) === number && this.#options.reviewOf(session) === review;
    if (found !== undefined && isNewest) this.#show(review, found.comments);
  }

  /** The review is not shown any more. */
  forget(session: string): void {
    for (const { thread } of this.#threads.get(session)?.values() ?? []) thread.dispose();
    this.#threads.delete(session);
    this.#refreshes.delete(session);
  }

  /** Errors: `conflict` where the change is another one now, and those of `review/comment`. */
  async add(reply: unknown): Promise<void> {
    if (!isReply(reply)) return;
    const { thread, text } = reply;
    const shown = shownChange(thread.uri);
    const review = shown === undefined ? undefined : this.#options.reviewOf(shown.session);
    const file = shown === undefined ? undefined : review?.fileAt(shown.path);
    if (shown === undefined || review === undefined || file?.id !== shown.id) {
      throw new HoldfastError('conflict', 'This is not a change of the review any more', {
        next: 'open it again from the Source Control view',
      });
    }
    const { session, side } = shown;
    const range = thread.range ?? new Range(0, 0, 0, 0);
    await this.#options.connection.call('review/comment', {
      ...{ session, side, text, path: pathOn(file, side) },
      lines: linesIn(range.start, range.end),
      opId: randomUUID(),
    });
    thread.dispose();
    await this.refresh(review);
  }

  async remove(target: unknown): Promise<void> {
    const found = this.#find(target);
    if (found === undefined) return;
    await this.#options.connection.call('review/uncomment', found);
    await this.#refreshSession(found.session);
  }

  /** The session whose thread a command was run on. */
  sessionOf(target: unknown): string | undefined {
    return this.#find(target)?.session;
  }

  /** Sends what was not sent yet as the next prompt. Errors: `not_found` if there is none. */
  async send(session: string): Promise<{ readonly sent: number; readonly left: number }> {
    const outcome = await this.#options.connection.call('review/send', { session });
    await this.#refreshSession(session);
    return outcome;
  }

  async #refreshSession(session: string): Promise<void> {
    const review = this.#options.reviewOf(session);
    if (review !== undefined) await this.refresh(review);
  }

  #rangesOf(document: TextDocument): Range[] {
    const shown = shownChange(document.uri);
    const file = shown === undefined ? undefined : this.#options.reviewOf(shown.session)?.fileAt(shown.path);
    const isOpen = file !== undefined && file.id === shown?.id && hasLines(file);
    // What follows the last line feed is no line.
    const { lineCount } = document;
    const last = document.lineAt(lineCount - 1).text === '' ? lineCount - 2 : lineCount - 1;
    return isOpen && last >= 0 ? [new Range(0, 0, last, 0)] : [];
  }

  #find(target: unknown): { session: string; comment: string } | undefined {
    for (const [session, threads] of this.#threads)
      for (const [comment, { thread }] of threads) if (thread === target) return { session, comment };
    return undefined;
  }

  /** Threads that are as before stay, so that what a person folded stays folded. */
  #show(review: OpenReview, all: readonly ReviewComment[]): void {
    const before = this.#threads.get(review.session.id) ?? new Map<string, ShownThread>();
    const after = new Map<string, ShownThread>();
    for (const comment of all) {
      const model = threadOf(comment, review.files);
      const key = JSON.stringify([model, comment.createdAt]);
      const old = before.get(model.id);
      if (old?.key === key) before.delete(model.id);
      const shown = old?.key === key ? old : { key, thread: this.#create(review, model, comment.createdAt) };
      after.set(model.id, shown);
    }
    for (const { thread } of before.values()) thread.dispose();
    this.#threads.set(review.session.id, after);
  }

  #create(review: OpenReview, model: CommentThreadModel, createdAt: string): CommentThread {
    const { file, path, side, lines, label, isSent, isAddressed, entries } = model;
    const uri =
      file === null
        ? workspaceUri(this.#options.connection, review.session.id, path)
        : review.uriOf(file, side);
    const range = new Range(lines.start, 0, Math.max(lines.start, lines.end - 1), 0);
    // A text is no Markdown: nothing in it is a link, an icon or a command.
    const shown = entries.map(({ author, text }): Comment => ({
      body: text,
      mode: CommentMode.Preview,
      author: { name: author },
      timestamp: new Date(createdAt),
    }));
    const thread = this.#controller.createCommentThread(uri, range, shown);
    thread.canReply = false;
    thread.label = sanitize(label);
    thread.contextValue = isSent ? 'sent' : 'unsent';
    thread.state = isAddressed ? CommentThreadState.Resolved : CommentThreadState.Unresolved;
    thread.collapsibleState = isAddressed
      ? CommentThreadCollapsibleState.Collapsed
      : CommentThreadCollapsibleState.Expanded;
    return thread;
  }
}

function isReply(reply: unknown): reply is CommentReply {
  return typeof reply === 'object' && reply !== null && 'thread' in reply && 'text' in reply;
}
