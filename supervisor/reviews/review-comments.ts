import { HoldfastError } from '../../protocol/errors.ts';
import type { Params } from '../../protocol/methods.ts';
import { COMMENT_LIMITS, type ReviewComment } from '../../protocol/review-comments.ts';
import { REVIEW_LIMITS } from '../../protocol/review.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { type ObjectReader, parseHash } from '../../snapshot-format/objects.ts';
import type { Ids } from '../base/ids.ts';
import { isoTime } from '../base/iso-time.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { EventLog } from '../history/event-log.ts';
import { SnapshotFiles } from '../snapshots/files/snapshot-files.ts';
import type { Database } from '../store/database.ts';
import type { Operations } from '../store/operations.ts';
import type { CommentRow, ReviewCommentRows } from '../store/review-comments.ts';
import type { ReviewRow } from '../store/reviews.ts';
import type { SessionRow } from '../store/sessions.ts';
import { AnchorText } from './comment-anchor.ts';
import { commentsPrompt } from './comments-prompt.ts';
import type { Reviews } from './reviews.ts';

export interface ReviewCommentsOptions {
  readonly database: Database;
  readonly commentRows: ReviewCommentRows;
  readonly operations: Operations;
  readonly events: Pick<EventLog, 'append'>;
  readonly reviews: Pick<Reviews, 'withOpen'>;
  /** One batch of a session's comments at a time. */
  readonly mutex: KeyedMutex;
  /** Starts a turn; a repeated `opId` answers with the first one. Resolves with its id. */
  readonly startTurn: (sessionId: string, prompt: string, opId: string) => Promise<string>;
  readonly ids: Ids;
  /** ms since 1970. */
  readonly now: () => number;
}

/** Comments of people on lines of reviewed files. They outlive the review; their lines are found again by their text. */
export class ReviewComments {
  readonly #options: ReviewCommentsOptions;

  constructor(options: ReviewCommentsOptions) {
    this.#options = options;
  }

  /** Errors: `not_found` without a review or these lines, `conflict` for too many comments. */
  async add(
    session: SessionRow,
    { path, side = 'target', lines, text, opId }: Params<'review/comment'>,
    signal: AbortSignal,
  ): Promise<ReviewComment> {
    const { reviews, commentRows, operations, ids, now } = this.#options;
    const quote = await reviews.withOpen(session.id, signal, async ({ row }, reader) => {
      const all = await textOf(reader, row, path, side);
      const count = all?.lines ?? 0;
      if (all !== null && lines.start < lines.end && lines.end <= count)
        return Buffer.from(all.slice(lines.start, lines.end));
      throw new HoldfastError('not_found', `${path} has no lines ${lines.start + 1} to ${lines.end}`, {
        why: count === 0 ? 'it is not text that can be read here' : `it has ${count} lines there`,
        next: 'see `holdfast review diff SESSION PATH`',
      });
    });
    const isLong = lines.end - lines.start > COMMENT_LIMITS.lines || quote.length > COMMENT_LIMITS.quoteBytes;
    if (isLong) {
      throw new HoldfastError('invalid_params', 'A comment is about fewer lines', {
        why: `at most ${COMMENT_LIMITS.lines} lines and ${COMMENT_LIMITS.quoteBytes / 1024} KiB`,
      });
    }
    const { result } = operations.runOnce(opId, 'review.comment', () => {
      if (commentRows.list(session.id).length >= COMMENT_LIMITS.comments) {
        throw new HoldfastError('conflict', 'The session has too many comments', {
          why: `at most ${COMMENT_LIMITS.comments}`,
          next: 'remove some with `holdfast review comment SESSION --remove ID`',
        });
      }
      const id = ids.next('cmt');
      const place = { path, side, start: lines.start, end: lines.end, quote };
      const unsent = { batch: null, turnId: null, sentAt: null };
      commentRows.insert({ id, sessionId: session.id, ...place, text, createdAt: now(), ...unsent });
      this.#recordChange(session.id, 'added', [id]);
      return { id };
    });
    const comment = (await this.list(session, signal)).find(({ id }) => id === result.id);
    if (comment !== undefined) return comment;
    throw new HoldfastError('not_found', `There is no comment ${result.id}`, { why: 'it was removed' });
  }

  /** By path and line, each with where its lines are now. */
  async list(session: SessionRow, signal?: AbortSignal): Promise<ReviewComment[]> {
    const { reviews, commentRows } = this.#options;
    const rows = commentRows.list(session.id);
    if (rows.length === 0) return [];
    try {
      return await reviews.withOpen(session.id, signal, async ({ row }, reader) => {
        const slices = new TimeSlice(signal);
        // Both sides of one path at most: the rows are in the order of their paths.
        const texts = new Map<string, AnchorText | null>();
        let textsOf: string | null = null;
        const found: ReviewComment[] = [];
        for (const comment of rows) {
          const { path, side, start, end, quote } = comment;
          if (slices.isUsedUp) await slices.yieldToEventLoop();
          if (path !== textsOf) texts.clear();
          textsOf = path;
          const known = texts.get(side);
          const text = known === undefined ? await textOf(reader, row, path, side) : known;
          texts.set(side, text);
          const at = text?.find(Buffer.from(quote), start) ?? null;
          found.push(viewOf(comment, { lines: at === null ? null : { start: at, end: at + end - start } }));
        }
        return found;
      });
    } catch (error) {
      if (!(error instanceof HoldfastError && error.code === 'not_found')) throw error;
      return rows.map((comment) => viewOf(comment, null));
    }
  }

  remove(session: SessionRow, id: string): boolean {
    const { database, commentRows } = this.#options;
    return database.transaction(() => {
      const isRemoved = commentRows.remove(session.id, id);
      if (isRemoved) this.#recordChange(session.id, 'removed', [id]);
      return isRemoved;
    });
  }

  /** Forgets the comments of a session that is deleted. Part of the caller's transaction. */
  removeOfSession(sessionId: string): void {
    this.#options.commentRows.removeOfSession(sessionId);
  }

  /**
   * Sends what was not sent yet as a prompt. The comments are bound to the prompt's `opId` first, so that the next call finishes what
   * a killed supervisor began, with the same comments and the same turn. Errors: `not_found` if there is none, those of a turn.
   */
  async send(
    session: SessionRow,
    signal: AbortSignal,
  ): Promise<{ turnId: string; sent: number; left: number }> {
    const { database, commentRows, mutex, startTurn, ids, now } = this.#options;
    return await mutex.run(session.id, async () => {
      const unsent = commentRows.list(session.id).filter(({ turnId }) => turnId === null);
      const begun = unsent.find(({ batch }) => batch !== null)?.batch ?? null;
      const chosen =
        begun === null ? unsent.slice(0, COMMENT_LIMITS.sent) : unsent.filter(({ batch }) => batch === begun);
      if (chosen.length === 0) {
        throw new HoldfastError('not_found', 'There is no comment to send', {
          next: 'make one with `holdfast review comment SESSION PATH:LINE TEXT`',
        });
      }
      const batch = begun ?? `comments-${ids.next('cmt')}`;
      if (begun === null)
        database.transaction(() =>
          commentRows.beginBatch(
            chosen.map(({ id }) => id),
            batch,
          ),
        );
      const places = new Map((await this.list(session, signal)).map((comment) => [comment.id, comment]));
      const comments = chosen.flatMap(({ id }) => places.get(id) ?? []);
      const turnId = await startTurn(session.id, commentsPrompt(comments), batch);
      database.transaction(() => {
        commentRows.endBatch(batch, turnId, now());
        const ids = chosen.map(({ id }) => id);
        this.#recordChange(session.id, 'sent', ids);
      });
      return { turnId, sent: chosen.length, left: unsent.length - chosen.length };
    });
  }

  /** For every window that shows the comments. Part of the caller's transaction. */
  #recordChange(sessionId: string, what: 'added' | 'removed' | 'sent', comments: string[]): void {
    this.#options.events.append(sessionId, [{ type: 'review.commented', data: { what, comments } }]);
  }
}

/** The text of a side; null for what is no file, no text, or too large. */
async function textOf(
  reader: ObjectReader,
  { baseRoot, targetRoot }: ReviewRow,
  path: string,
  side: 'base' | 'target',
): Promise<AnchorText | null> {
  const files = new SnapshotFiles(reader, parseHash(side === 'base' ? baseRoot : targetRoot));
  try {
    const { bytes, size } = await files.read(path, { length: REVIEW_LIMITS.textBytes });
    return size > REVIEW_LIMITS.textBytes || bytes.includes(0) ? null : new AnchorText(bytes);
  } catch (error) {
    if (error instanceof HoldfastError && error.code.startsWith('file_')) return null;
    throw error;
  }
}

function viewOf(row: CommentRow, now: ReviewComment['now']): ReviewComment {
  const { id, path, side, start, end, quote, text, createdAt, turnId, sentAt } = row;
  const sent = turnId === null || sentAt === null ? null : { turnId, at: isoTime(sentAt) };
  return {
    ...{ id, path, side, lines: { start, end }, text, createdAt: isoTime(createdAt), sent, now },
    quote: Buffer.from(quote).toString('utf8'),
    addressed: sent !== null && side === 'target' && now !== null && now.lines === null,
  };
}
