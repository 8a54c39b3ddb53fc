import { HoldfastError } from '../../../protocol/errors.ts';
import { formatPath } from '../../../protocol/paths.ts';
import type { Change, ChangeTotals } from '../../../protocol/snapshots.ts';
import { readContent } from '../../../snapshot-format/content.ts';
import type { TreeEntry } from '../../../snapshot-format/entries.ts';
import type { Hash, ObjectReader } from '../../../snapshot-format/objects.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import { type Difference, differences, type PathSegments } from './differences.ts';
import { findEntry } from './find-entry.ts';
import { type RenameSource, Renames } from './renames.ts';
import { changeKind } from './entry-equality.ts';

/** Shared objects let two small trees differ in a practically unlimited number of places. */
const MAX_CHANGES = 20_000_000;
/** Characters of one page, so that the answer fits into one line of at most 1 MiB. */
const PAGE_CHARACTERS = 256 * 1024;

export interface ComparisonOptions {
  /** Hashes of the two root objects. */
  readonly before: Hash;
  readonly after: Hash;
  /** Compare only this path and everything below it. */
  readonly path: PathSegments;
  readonly signal?: AbortSignal | undefined;
  /** Memory limit for detecting renames. */
  readonly renameBudgetBytes?: number;
  /** Read files to detect renames with edits. False when the reader has trees only. Default true. */
  readonly findEdited?: boolean;
}

/** A difference, with the source of a renamed file. */
export interface PairedDifference extends Difference {
  readonly kind: Change['kind'];
  readonly origin: RenameSource | null;
  /** The entry at the source path, if its content differs from that of `after`. */
  readonly sourceEntry: TreeEntry | null;
}

/**
 * The differences between two trees. `create` walks both trees once, to compute totals and detect renames. After that,
 * any part can be listed separately.
 */
export class Comparison {
  readonly totals: ChangeTotals;
  readonly #reader: ObjectReader;
  readonly #before: Hash;
  readonly #top: Difference;
  readonly #renames: Renames;

  private constructor(
    reader: ObjectReader,
    before: Hash,
    top: Difference,
    renames: Renames,
    totals: ChangeTotals,
  ) {
    this.#reader = reader;
    this.#before = before;
    this.#top = top;
    this.#renames = renames;
    this.totals = totals;
  }

  /** Errors: `file_not_found` when neither tree has the path, `snapshot_damaged`, `output_limit`. */
  static async create(reader: ObjectReader, options: ComparisonOptions): Promise<Comparison> {
    const { before, after, path, signal, renameBudgetBytes, findEdited = true } = options;
    const top = {
      path,
      before: await findEntry(reader, before, path),
      after: await findEntry(reader, after, path),
    };
    if (top.before === null && top.after === null) {
      throw new HoldfastError('file_not_found', `There is no ${formatPath(path)} on either side`);
    }
    const renames = new Renames(renameBudgetBytes);
    const totals = { ...NO_CHANGES };
    let count = 0;
    for await (const difference of differences(reader, top, new TimeSlice(signal))) {
      const kind = changeKind(difference.before, difference.after);
      if (kind === null) continue;
      count += 1;
      if (count > MAX_CHANGES) {
        throw new HoldfastError('output_limit', `The two differ in more than ${MAX_CHANGES} places`, {
          next: 'compare only one folder',
        });
      }
      totals[isFolder(difference) ? 'directories' : kind] += 1;
      if (kind !== 'mode') totals.bytes += bytesOf(difference.after) ?? 0;
      renames.add(difference);
    }
    totals.bytes -= renames.pairIdentical();
    if (findEdited) {
      const read = contentReader(reader, { before, after });
      await renames.pairEdited(read, new TimeSlice(signal));
    }
    renames.freeCandidates();
    totals.renamed = renames.count;
    totals.added -= renames.count;
    totals.deleted -= renames.count;
    return new Comparison(reader, before, top, renames, totals);
  }

  /** All differences in path order; with `resumeAfter`, those after that path. */
  async *differences(
    resumeAfter: PathSegments | null = null,
    signal?: AbortSignal,
  ): AsyncGenerator<PairedDifference, void, undefined> {
    for await (const difference of differences(this.#reader, this.#top, new TimeSlice(signal), resumeAfter)) {
      const { path, before, after } = difference;
      const origin = before === null ? this.#renames.sourceOf(path) : null;
      if (after === null && this.#renames.isRenamedAway(path)) continue;
      const kind = origin === null ? changeKind(before, after) : 'renamed';
      if (kind === null) continue;
      const movedFrom =
        origin?.isEdited === true ? await findEntry(this.#reader, this.#before, origin.path) : null;
      yield { ...difference, kind, origin, sourceEntry: movedFrom };
    }
  }

  /** The first changes after a path. `next`: the path to resume after; null at the end. */
  async page(
    resumeAfter: PathSegments | null,
    limit: number,
    signal?: AbortSignal,
  ): Promise<{ changes: Change[]; next: PathSegments | null }> {
    const changes: Change[] = [];
    let last: PathSegments | null = null;
    let characters = 0;
    for await (const difference of this.differences(resumeAfter, signal)) {
      if (changes.length >= limit || characters > PAGE_CHARACTERS) return { changes, next: last };
      const change = changeOf(difference);
      // An upper bound: an escaped byte takes three characters, and a character up to three bytes.
      characters += 150 + change.path.length + (change.oldPath?.length ?? 0);
      changes.push(change);
      last = difference.path;
    }
    return { changes, next: null };
  }
}

export const NO_CHANGES: ChangeTotals = {
  added: 0,
  modified: 0,
  deleted: 0,
  renamed: 0,
  mode: 0,
  typechange: 0,
  directories: 0,
  bytes: 0,
};

/** Whether every side that exists is a directory. */
function isFolder({ before, after }: Difference): boolean {
  return [before, after].every((entry) => entry === null || entry.type === 'directory');
}

/**
 * Reads whole files of the two trees. Null for a missing or damaged file: damage is reported when the file is read by
 * name.
 */
function contentReader(
  reader: ObjectReader,
  roots: { readonly before: Hash; readonly after: Hash },
): (side: 'before' | 'after', path: PathSegments) => Promise<Uint8Array | null> {
  return async (side, path) => {
    try {
      const entry = await findEntry(reader, roots[side], path);
      if (entry?.type !== 'file') return null;
      const pieces: Uint8Array[] = [];
      for await (const { bytes } of readContent(reader, entry)) pieces.push(bytes);
      return Buffer.concat(pieces);
    } catch (error) {
      if (error instanceof HoldfastError && error.code === 'snapshot_damaged') return null;
      throw error;
    }
  };
}

function changeOf({ path, before, after, kind, origin }: PairedDifference): Change {
  return {
    path: formatPath(path),
    kind,
    ...(origin === null ? {} : { oldPath: formatPath(origin.path), edited: origin.isEdited }),
    type: (after ?? before)?.type ?? 'file',
    oldBytes: origin === null ? bytesOf(before) : origin.size,
    newBytes: bytesOf(after),
    oldMode: origin === null ? (before?.mode ?? null) : origin.mode,
    newMode: after?.mode ?? null,
  };
}

function bytesOf(entry: TreeEntry | null): number | null {
  return entry?.type === 'file' ? entry.size : null;
}
