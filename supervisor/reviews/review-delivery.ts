import { HoldfastError } from '../../protocol/errors.ts';
import type { Review } from '../../protocol/review.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { ReviewRows } from '../store/reviews.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { Reviews } from './reviews.ts';

/** A review with its accepted tree in the store. */
export type DeliverableReview = Review & { readonly accepted: NonNullable<Review['accepted']> };

/** The accepted tree that left the sandbox. */
export interface Delivered {
  readonly review: string;
  readonly base: string;
  readonly target: string;
}

export interface ReviewDeliveryOptions {
  readonly reviews: Pick<Reviews, 'tree' | 'endStored' | 'reopen'>;
  readonly rows: ReviewRows;
  /** That of the reviews: one change of a session's review at a time. */
  readonly mutex: KeyedMutex;
}

/** What a handoff does to a review: it delivers the accepted tree, ends the review, and opens it again when undone. */
export class ReviewDelivery {
  readonly #options: ReviewDeliveryOptions;

  constructor(options: ReviewDeliveryOptions) {
    this.#options = options;
  }

  /**
   * The session's open review with its accepted tree; null if the session was never reviewed. Errors: `invalid_state` if
   * nothing is accepted, or if only an earlier review has ended: what changed since then was not reviewed.
   */
  async find(session: SessionRow, signal?: AbortSignal): Promise<DeliverableReview | null> {
    const { reviews, rows } = this.#options;
    if (rows.findOpen(session.id) === null) {
      if (rows.newestEnded(session.id) === null) return null;
      throw new HoldfastError(
        'invalid_state',
        `Nothing of ${session.name} is accepted since its last review`,
        {
          why: 'that review has ended, and later changes were not reviewed',
          next: `review it with \`holdfast review ${session.name}\`, or hand off everything with --unreviewed`,
        },
      );
    }
    const { accepted, ...review } = await reviews.tree(session, signal);
    if (accepted === null) throw new HoldfastError('internal', 'The accepted tree was not stored');
    if (accepted.root !== review.base.root) return { ...review, accepted };
    throw new HoldfastError('invalid_state', `Nothing is accepted in the review of ${session.name}`, {
      why: 'only accepted changes are handed off',
      next: `accept it with \`holdfast review accept ${session.name} --all\`, or hand off everything with --unreviewed`,
    });
  }

  /** Runs `act` while nobody changes the session's review. */
  exclusively<T>(session: SessionRow, act: () => T): Promise<T> {
    return this.#options.mutex.run(session.id, () => Promise.resolve(act()));
  }

  /** Ends the review, unless it was decided on or opened again meanwhile. Part of a transaction inside `exclusively`. */
  end(session: SessionRow, { review, base, target }: Delivered): void {
    const { reviews, rows } = this.#options;
    const row = rows.findOpen(session.id);
    if (row?.id === review && row.baseRoot === base && row.acceptedRoot === target) reviews.endStored(row);
  }

  /** Opens a review again that `end` has ended, unless another was begun. Part of a transaction inside `exclusively`. */
  reopen(session: SessionRow, { review }: Delivered): void {
    const { reviews, rows } = this.#options;
    const row = rows.newestEnded(session.id);
    if (row?.id === review && rows.findOpen(session.id) === null) reviews.reopen(row);
  }
}
