import { HoldfastError } from '../../protocol/errors.ts';
import { ignoredPaths } from '../../protocol/ignored-paths.ts';
import { formatPath } from '../../protocol/paths.ts';
import { type ObjectReader, parseHash } from '../../snapshot-format/objects.ts';
import { SnapshotFiles } from '../snapshots/files/snapshot-files.ts';
import type { DecisionState } from '../store/reviews.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { ReviewTrees } from './review-trees.ts';
import { type OpenReview, type Reviews, reviewMoved } from './reviews.ts';
import type { ReviewUnit } from './review-units.ts';

const IGNORE_FILE = Buffer.from('.gitignore');
/** An agent may have written it. */
const MAX_IGNORE_BYTES = 64 * 1024;
const ACCEPTED: DecisionState = { whole: 'accept', mode: null, text: null, again: false };

export interface CheckTree {
  readonly reviewId: string;
  readonly lineage: string;
  /** The snapshot that the review looks at. */
  readonly targetSnapshot: string;
  /** Hash of what is accepted. */
  readonly accepted: string;
  /** Hash of the tree to judge. */
  readonly root: string;
  /** Changed paths that are in it because they are ignored. */
  readonly ignored: number;
}

/**
 * What a check of a review judges: the accepted tree and, of what is not decided, the paths that the accepted ignore files name, such
 * as installed dependencies. A path that somebody rejected stays out. Ignore files that nobody accepted decide nothing.
 */
export class CheckTrees {
  readonly #reviews: Pick<Reviews, 'tree' | 'withOpen'>;
  readonly #trees: ReviewTrees;

  constructor({ reviews, trees }: { reviews: Pick<Reviews, 'tree' | 'withOpen'>; trees: ReviewTrees }) {
    this.#reviews = reviews;
    this.#trees = trees;
  }

  /**
   * Stores the tree and runs `record` before any object of it can be collected. Errors: `not_found` without a review, `conflict` if it
   * was decided on meanwhile.
   */
  async store<T>(
    session: SessionRow,
    record: (tree: CheckTree) => T,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    await this.#reviews.tree(session, signal);
    const chosen = await this.#reviews.withOpen(session.id, signal, async (open, reader) => {
      const { row, decisions } = open;
      if (row.acceptedRoot === null) throw reviewMoved();
      const ignored = await ignoredUnits(open, row.acceptedRoot, reader, signal);
      const added = ignored.map(({ key }): [string, DecisionState] => [key, ACCEPTED]);
      return {
        row,
        accepted: row.acceptedRoot,
        ignored: added.length,
        decisions: new Map([...decisions, ...added]),
      };
    });
    const { row, accepted, ignored, decisions } = chosen;
    return await this.#trees.storeAccepted(
      { ...row, isTargetComplete: false },
      decisions,
      (root) =>
        record({
          reviewId: row.id,
          lineage: row.lineage,
          targetSnapshot: row.targetSnapshot,
          accepted,
          root,
          ignored,
        }),
      signal,
    );
  }
}

/** The undecided paths that the ignore files of the accepted tree name; never a part of a git repository. */
async function ignoredUnits(
  { compared, decisions }: OpenReview,
  accepted: string,
  reader: ObjectReader,
  signal: AbortSignal | undefined,
): Promise<ReviewUnit[]> {
  const files = new SnapshotFiles(reader, parseHash(accepted));
  const open = new Map(
    compared.units
      .filter(({ key }) => !decisions.has(key))
      .map((unit) => [unit.path.map((name) => name.toString('latin1')).join('/'), unit]),
  );
  const ignored = await ignoredPaths([...open.keys()], async (folder) => {
    signal?.throwIfAborted();
    const names = folder === '' ? [] : folder.split('/').map((name) => Buffer.from(name, 'latin1'));
    return await readOrNull(files, formatPath([...names, IGNORE_FILE]));
  });
  return [...open].filter(([path]) => ignored.has(path)).map(([, unit]) => unit);
}

async function readOrNull(files: SnapshotFiles, path: string): Promise<string | null> {
  try {
    const { bytes } = await files.read(path, { offset: 0, length: MAX_IGNORE_BYTES });
    return bytes.toString('latin1');
  } catch (error) {
    if (error instanceof HoldfastError && error.code.startsWith('file_')) return null;
    throw error;
  }
}
