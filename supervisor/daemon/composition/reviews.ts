import { KeyedMutex } from '../../base/keyed-mutex.ts';
import { Blames } from '../../reviews/blame/blames.ts';
import { readLiveFile } from '../../reviews/blame/live-file.ts';
import { HeadBases } from '../../reviews/head-bases.ts';
import { CheckTrees } from '../../reviews/check-trees.ts';
import { ReviewComments } from '../../reviews/review-comments.ts';
import { ReviewDelivery } from '../../reviews/review-delivery.ts';
import { ReviewDecisions } from '../../reviews/review-decisions.ts';
import { ReviewReader } from '../../reviews/review-reader.ts';
import { ReviewTrees } from '../../reviews/review-trees.ts';
import { Reviews } from '../../reviews/reviews.ts';
import { WorkspaceChanges } from '../../reviews/workspace-changes.ts';
import type { FilesConnections } from '../../workspace/files-connections.ts';
import type { StorageLayer } from './storage.ts';
import type { SandboxLayer } from './sandboxes.ts';
import type { SnapshotLayer } from './snapshots.ts';
import type { SessionLayer } from './sessions.ts';

/** What people decide about the changes of agents. */
export function createReviews(
  below: StorageLayer &
    SandboxLayer &
    SnapshotLayer &
    SessionLayer & { readonly filesConnections: FilesConnections },
) {
  const { reviewRows: rows, filesConnections, texts } = below;
  const own = { ...below, rows, mutex: new KeyedMutex(), workspace: new WorkspaceChanges(filesConnections) };
  const trees = new ReviewTrees(below);
  const heads = new HeadBases({ ...below, trees });
  const reviews = new Reviews({
    ...own,
    texts,
    trees,
    heads,
  });
  const reviewDecisions = new ReviewDecisions({ ...own, reviews });
  reviews.beforeUse.add((sessionId) => reviewDecisions.finishPending(sessionId));
  const reviewComments = new ReviewComments({
    ...own,
    reviews,
    mutex: new KeyedMutex(),
    startTurn: async (session, prompt, opId) => {
      const { turn } = await below.sessionService.startTurn({ session, input: Buffer.from(prompt), opId });
      return turn.turnId;
    },
  });
  below.removal.sessionDeleted.on(({ id }) => {
    reviews.removeOfSession(id);
    reviewComments.removeOfSession(id);
  });
  const reviewDelivery = new ReviewDelivery({ ...own, reviews });
  const checkTrees = new CheckTrees({ reviews, trees });
  const blames = new Blames({
    ...own,
    texts,
    trees,
    readLive: (sessionId, path, signal) => readLiveFile(filesConnections, sessionId, path, signal),
  });
  return {
    reviews,
    reviewReader: new ReviewReader(reviews),
    heads,
    reviewDecisions,
    reviewDelivery,
    reviewComments,
    checkTrees,
    blames,
    reviewTexts: texts,
  };
}
