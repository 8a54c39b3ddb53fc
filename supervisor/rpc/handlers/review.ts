import type { BLAME_METHODS } from '../../../protocol/blame.ts';
import type { REVIEW_COMMENT_METHODS } from '../../../protocol/review-comments.ts';
import type { REVIEW_BASE_METHODS } from '../../../protocol/review-base.ts';
import type { REVIEW_METHODS } from '../../../protocol/review.ts';
import {
  type HandlerContext,
  type Handlers,
  type Progress,
  withBytes,
} from '../../../protocol/wire/shapes.ts';
import type { Blames } from '../../reviews/blame/blames.ts';
import type { HeadBases } from '../../reviews/head-bases.ts';
import type { ReviewComments } from '../../reviews/review-comments.ts';
import type { ReviewDecisions } from '../../reviews/review-decisions.ts';
import type { ReviewReader } from '../../reviews/review-reader.ts';
import type { Reviews } from '../../reviews/reviews.ts';
import type { SessionRow } from '../../store/sessions.ts';

export interface ReviewHandlersOptions {
  readonly reviews: Reviews;
  readonly reviewReader: ReviewReader;
  readonly heads: HeadBases;
  readonly reviewDecisions: ReviewDecisions;
  readonly reviewComments: ReviewComments;
  readonly blames: Blames;
  /** Errors: `not_found`, `ambiguous_name`. */
  readonly findSession: (reference: string) => SessionRow;
}

/** The answers to `review/*`. */
export function reviewHandlers<P extends { readonly closed: Promise<unknown> }>({
  reviews,
  reviewReader,
  heads,
  reviewDecisions,
  reviewComments,
  blames,
  findSession,
}: ReviewHandlersOptions): Handlers<
  typeof REVIEW_METHODS & typeof REVIEW_BASE_METHODS & typeof REVIEW_COMMENT_METHODS & typeof BLAME_METHODS,
  P
> {
  const callOptions = ({ signal, progress }: HandlerContext<P>) => ({
    signal,
    onProgress: ({ stage, done, of, unit }: Progress) =>
      progress(stage, done ?? undefined, of ?? undefined, unit ?? undefined),
  });
  return {
    'review/open': async ({ session, base, upload }, context) => {
      const sent = upload === undefined ? undefined : { upload, owner: context.peer };
      try {
        return { review: await reviews.open(findSession(session), base, callOptions(context), sent) };
      } finally {
        // Also where nothing needed it, or the review could not be opened.
        if (sent !== undefined) heads.end(sent.upload, sent.owner);
      }
    },
    'review/base/begin': ({ session, commit }, { peer }) => {
      const row = findSession(session);
      if (reviews.hasBase(row, `head:${commit}`)) return { upload: null, ...heads.originOf(row) };
      const begun = heads.begin(row, commit, peer);
      // The files of a client that is gone are of no use.
      void peer.closed.then(() => heads.end(begun.upload, peer)).catch(() => undefined);
      return begun;
    },
    'review/base/append': ({ upload, entries }, { peer }) => {
      heads.append(upload, peer, entries);
      return {};
    },
    'review/base/missing': ({ upload, from }, { peer, signal }) => heads.missing(upload, peer, from, signal),
    'review/base/contents': async ({ upload }, { peer, bytes }) => {
      await heads.receive(upload, peer, bytes);
      return {};
    },
    'review/base/end': ({ upload }, { peer }) => {
      heads.end(upload, peer);
      return {};
    },
    'review/show': async ({ session }, { signal }) => ({
      review: await reviews.show(findSession(session), signal),
    }),
    'review/files': ({ session, ...page }, { signal }) =>
      reviewReader.files(findSession(session), page, signal),
    'review/file': ({ session, path }, { signal }) => reviewReader.file(findSession(session), path, signal),
    'review/read': async ({ session, ...params }, { signal }) => {
      const { bytes, size } = await reviewReader.read(findSession(session), params, signal);
      return withBytes({ size }, bytes);
    },
    'review/decide': ({ session, ...request }, { signal }) =>
      reviewDecisions.decide(findSession(session), request, signal),
    'review/undo': ({ session, opId }, { signal }) =>
      reviewDecisions.undo(findSession(session), opId, signal),
    'review/tree': async ({ session }, { signal }) => ({
      review: await reviews.tree(findSession(session), signal),
    }),
    'review/comment': async ({ session, ...comment }, { signal }) => ({
      comment: await reviewComments.add(findSession(session), { session, ...comment }, signal),
    }),
    'review/comments': async ({ session }, { signal }) => ({
      comments: await reviewComments.list(findSession(session), signal),
    }),
    'review/uncomment': ({ session, comment }) => ({
      removed: reviewComments.remove(findSession(session), comment),
    }),
    'review/blame': ({ session, ...asked }, { signal }) => blames.blame(findSession(session), asked, signal),
    'review/send': ({ session }, { signal }) => reviewComments.send(findSession(session), signal),
  };
}
