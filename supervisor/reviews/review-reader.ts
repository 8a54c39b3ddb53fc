import { HoldfastError } from '../../protocol/errors.ts';
import {
  type Hunk,
  type Review,
  type ReviewFile,
  REVIEW_LIMITS,
  type REVIEW_SIDES,
} from '../../protocol/review.ts';
import { parseHash } from '../../snapshot-format/objects.ts';
import { SnapshotFiles } from '../snapshots/files/snapshot-files.ts';
import type { SessionRow } from '../store/sessions.ts';
import { readAccepted } from './accepted-side.ts';
import { unitAt } from './review-trees.ts';
import { fileView, hunkView, viewOf } from './review-views.ts';
import { type Reviews, reviewMoved } from './reviews.ts';
import { hunksOf } from './unit-state.ts';

/** Characters of one page, so that the answer fits into one line of at most 1 MiB. */
const PAGE_CHARACTERS = 512 * 1024;

export interface FilesPage {
  readonly review: Review;
  readonly files: ReviewFile[];
  readonly nextCursor: string | null;
}

/** What clients read of the open review of a session. Errors: `not_found` if none is open. */
export class ReviewReader {
  readonly #reviews: Pick<Reviews, 'withOpen' | 'textOf'>;

  constructor(reviews: Pick<Reviews, 'withOpen' | 'textOf'>) {
    this.#reviews = reviews;
  }

  /** A page of the changed paths. `cursor`: where the page before it ended. Errors: `conflict` if the review was opened again since. */
  async files(
    session: SessionRow,
    { cursor, limit = REVIEW_LIMITS.files }: { cursor?: string | undefined; limit?: number | undefined },
    signal?: AbortSignal,
  ): Promise<FilesPage> {
    return await this.#reviews.withOpen(session.id, signal, (open) => {
      const { row, compared, decisions } = open;
      const stamp = row.targetRoot.slice(0, 16);
      const from = cursor === undefined ? 0 : offsetOf(cursor, stamp);
      const files: ReviewFile[] = [];
      let characters = 0;
      let at = from;
      for (; at < compared.units.length && files.length < limit && characters < PAGE_CHARACTERS; at += 1) {
        const unit = compared.units[at];
        if (unit === undefined) break;
        files.push(fileView(unit, decisions.get(unit.key) ?? null));
        // An upper bound: an escaped byte takes three characters, and a character up to three bytes.
        characters += 400 + unit.key.length + (unit.origin === null ? 0 : unit.key.length);
      }
      const nextCursor = at < compared.units.length ? `${at}.${stamp}` : null;
      return Promise.resolve({ review: viewOf(open), files, nextCursor });
    });
  }

  /** One path with its hunks. */
  async file(
    session: SessionRow,
    path: string,
    signal?: AbortSignal,
  ): Promise<{ file: ReviewFile; hunks: Hunk[] }> {
    return await this.#reviews.withOpen(session.id, signal, async ({ compared, decisions }, reader) => {
      const unit = unitAt(compared, path);
      const state = decisions.get(unit.key) ?? null;
      const text = await this.#reviews.textOf(unit, state, reader);
      const hunks = text === null ? [] : hunksOf(unit, text, state).map(hunkView);
      return { file: { ...fileView(unit, state), byHunk: text !== null }, hunks };
    });
  }

  /** The bytes of a file on one side. Errors: the `file_*` codes. */
  async read(
    session: SessionRow,
    {
      path,
      side,
      offset = 0,
    }: { path: string; side: (typeof REVIEW_SIDES)[number]; offset?: number | undefined },
    signal?: AbortSignal,
  ): Promise<{ size: number; bytes: Buffer }> {
    return await this.#reviews.withOpen(session.id, signal, async (open, store) => {
      const { row } = open;
      const root = side === 'target' ? row.targetRoot : row.baseRoot;
      const { size, bytes } =
        side === 'accepted'
          ? await readAccepted(open, store, { path, offset }, signal)
          : await new SnapshotFiles(store, parseHash(root)).read(path, { offset });
      return { size, bytes };
    });
  }
}

function offsetOf(cursor: string, stamp: string): number {
  const [offset = '', of] = cursor.split('.');
  if (of !== stamp) throw reviewMoved();
  if (!/^\d{1,9}$/.test(offset)) {
    throw new HoldfastError('invalid_params', 'The cursor is not from a review', {
      next: 'leave it out to start from the beginning',
    });
  }
  return Number(offset);
}
