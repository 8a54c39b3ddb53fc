import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import { PlainIgnoreRules } from '../../protocol/plain-ignore.ts';
import { type ObjectReader, parseHash } from '../../snapshot-format/objects.ts';
import { SnapshotFiles } from '../snapshots/files/snapshot-files.ts';
import type { DecisionState } from '../store/reviews.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { ReviewTrees } from './review-trees.ts';
import { type OpenReview, type Reviews, reviewMoved } from './reviews.ts';
import type { ReviewUnit } from './review-units.ts';

const IGNORE_FILE = Buffer.from('.gitignore');
/** Bounds for ignore files, which an agent may have written. */
const MAX_IGNORE_FILES = 200;
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
  const rules = new PlainIgnoreRules();
  const read = new Set<string>();
  const pathOf = (names: readonly Buffer[]): string => names.map((name) => name.toString('latin1')).join('/');
  const open = compared.units
    .filter(({ key, path }) => !decisions.has(key) && !pathOf(path).split('/').includes('.git'))
    // The rules of outer folders come first: most of what is ignored needs no look into its own folder.
    .toSorted((one, other) => one.path.length - other.path.length);
  const ignored: ReviewUnit[] = [];
  for (const unit of open) {
    signal?.throwIfAborted();
    const path = pathOf(unit.path);
    for (let depth = 0; depth < unit.path.length && !rules.ignores(path); depth += 1) {
      const folder = unit.path.slice(0, depth);
      const name = pathOf(folder);
      if (read.has(name) || read.size >= MAX_IGNORE_FILES) continue;
      read.add(name);
      const text = await readOrNull(files, formatPath([...folder, IGNORE_FILE]));
      if (text !== null) rules.add(name, text);
    }
    if (rules.ignores(path)) ignored.push(unit);
  }
  return ignored;
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
