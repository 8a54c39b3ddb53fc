import { type ChangeTotals, type LineCounts, MAX_TURN_PATHS, type TurnPath } from '../../protocol/changes.ts';
import { formatPath } from '../../protocol/paths.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import type { Hash, ObjectReader } from '../../snapshot-format/objects.ts';
import { Comparison, type PairedDifference } from './compare/comparison.ts';
import { lineStarts } from './patch/line-changes.ts';
import { patchChangeOf } from './patch/patch-changes.ts';
import type { TextComparison } from './patch/text-comparison.ts';
import type { PatchFile } from './patch/write-patch.ts';

/** Lines are counted in so many files, and up to so many bytes, of each text and together. */
const COUNTED = { files: 1000, textBytes: 2 ** 20, bytes: 8 * 2 ** 20, ms: 10_000 } as const;
/** Characters of the paths that are kept. */
const MAX_PATH_CHARACTERS = 256 * 1024;
const ZERO = 0;

export interface MeasuredChanges {
  readonly totals: ChangeTotals;
  /** Null: too much to count. */
  readonly lines: LineCounts | null;
  /** The first ones, in order. */
  readonly paths: readonly TurnPath[];
  /** How many differences are not among them. */
  readonly omitted: number;
}

export interface MeasureOptions {
  /** Hashes of the two root objects. */
  readonly before: Hash;
  readonly after: Hash;
  readonly texts: Pick<TextComparison, 'changes'>;
  readonly signal: AbortSignal;
}

/** Compares two trees: totals, changed paths and lines, each bounded. Errors: `snapshot_damaged`, and the signal's reason. */
export async function measureChanges(
  reader: ObjectReader,
  { before, after, texts, signal }: MeasureOptions,
): Promise<MeasuredChanges> {
  const comparison = await Comparison.create(reader, { before, after, path: [], signal });
  const counter = new LineCounter(texts);
  const slices = new TimeSlice(signal);
  const paths: TurnPath[] = [];
  let characters = 0;
  let omitted = 0;
  for await (const difference of comparison.differences(null, signal)) {
    if (slices.isUsedUp) await slices.yieldToEventLoop();
    const lines = await counter.count(reader, difference);
    const path = pathOf(difference, lines);
    characters += path.path.length + (path.oldPath?.length ?? 0);
    if (omitted === 0 && paths.length < MAX_TURN_PATHS && characters <= MAX_PATH_CHARACTERS) paths.push(path);
    else omitted += 1;
  }
  return { totals: comparison.totals, lines: counter.total, paths, omitted };
}

function pathOf({ path, before, after, kind, origin }: PairedDifference, lines: LineCounts | null): TurnPath {
  return {
    path: formatPath(path),
    kind,
    ...(origin === null ? {} : { oldPath: formatPath(origin.path) }),
    type: (after ?? before)?.type ?? 'file',
    lines,
  };
}

/** Counts lines until there were too many. What is no text has none. */
class LineCounter {
  readonly #texts: Pick<TextComparison, 'changes'>;
  readonly #until = performance.now() + COUNTED.ms;
  #total: { added: number; removed: number } | null = { added: 0, removed: 0 };
  #files = 0;
  #bytes = 0;

  constructor(texts: Pick<TextComparison, 'changes'>) {
    this.#texts = texts;
  }

  /** Null: it was given up. */
  get total(): LineCounts | null {
    return this.#total;
  }

  /** Null: no text, or not counted. */
  async count(reader: ObjectReader, difference: PairedDifference): Promise<LineCounts | null> {
    if (this.#total === null) return null;
    const change = patchChangeOf(reader, difference);
    if (change === null) return null;
    const { before, after } = change;
    if (before !== null && after !== null && before.contentId === after.contentId) return null;
    this.#files += 1;
    const [old, now] = [await this.#textOf(before), await this.#textOf(after)];
    if (this.#files > COUNTED.files || performance.now() > this.#until) this.#total = null;
    if (this.#total === null || old === null || now === null) return null;
    const counts = await this.#compare(`turn ${before?.contentId} ${after?.contentId}`, old, now);
    this.#total.added += counts.added;
    this.#total.removed += counts.removed;
    return counts;
  }

  async #compare(id: string, old: Buffer, now: Buffer): Promise<LineCounts> {
    if (old.length === 0) return { added: lineStarts(now).length - 1, removed: 0 };
    if (now.length === 0) return { added: 0, removed: lineStarts(old).length - 1 };
    const counts = { added: 0, removed: 0 };
    for (const change of await this.#texts.changes(id, old, now)) {
      counts.added += change.afterEnd - change.afterStart;
      counts.removed += change.beforeEnd - change.beforeStart;
    }
    return counts;
  }

  /** Null for what is no text, and for a text that is too large, with which nothing more is counted. */
  async #textOf(file: PatchFile | null): Promise<Buffer | null> {
    if (file === null) return Buffer.alloc(0);
    const pieces: Uint8Array[] = [];
    for await (const piece of file.content()) {
      if (piece.includes(ZERO)) return null;
      if (file.size > COUNTED.textBytes || this.#bytes + file.size > COUNTED.bytes) {
        this.#total = null;
        return null;
      }
      pieces.push(piece);
    }
    this.#bytes += file.size;
    return Buffer.concat(pieces);
  }
}
