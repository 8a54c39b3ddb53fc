import type { TimeSlice } from '../../../protocol/time-slice.ts';
import { type Sketch, similarity, sketchOf } from './similarity.ts';

/** The least share of the longer file that the other file must contain; the same as git's. */
const MIN_SIMILARITY = 0.5;
/** How many files of each side are compared. With more, only files whose name occurs exactly once on both sides are. */
const LIMITS = { files: 100, named: 500, fileBytes: 2 ** 19, bytes: 8 * 2 ** 20 } as const;

/** A deleted or added file. Keys sort in path order. */
export interface SimilarCandidate {
  readonly key: string;
  /** The last segment of its path. */
  readonly name: string;
  readonly size: number;
}

export interface SimilarPair<T> {
  readonly deleted: T;
  readonly added: T;
}

/**
 * Pairs deleted files with added files of similar content, each at most once: first those with the same name, then the
 * most similar ones. Takes bounded time and memory; files beyond the limits are not paired. `read` returns the content,
 * or null if it is unreadable.
 */
export async function pairSimilar<T extends SimilarCandidate>(
  deleted: readonly T[],
  added: readonly T[],
  read: (candidate: T) => Promise<Uint8Array | null>,
  slices: TimeSlice,
): Promise<SimilarPair<T>[]> {
  const sketches = new Sketches(read, slices);
  const pairs: SimilarPair<T>[] = [];
  const paired = new Set<T>();
  const pair = (one: SimilarPair<T>): void => {
    if (paired.has(one.deleted) || paired.has(one.added)) return;
    pairs.push(one);
    paired.add(one.deleted).add(one.added);
  };

  const [deletedByName, addedByName] = [uniqueByName(deleted), uniqueByName(added)];
  let compared = 0;
  for (const [name, from] of deletedByName) {
    const to = addedByName.get(name);
    if (from === null || to === undefined || to === null) continue;
    compared += 1;
    if (compared > LIMITS.named) break;
    const one = { deleted: from, added: to };
    if ((await sketches.similarityOf(one)) >= MIN_SIMILARITY) pair(one);
  }

  const restDeleted = deleted.filter((one) => !paired.has(one));
  const restAdded = added.filter((one) => !paired.has(one));
  if (restDeleted.length > LIMITS.files || restAdded.length > LIMITS.files) return pairs;
  const found: (SimilarPair<T> & { readonly score: number })[] = [];
  for (const from of restDeleted) {
    for (const to of restAdded) {
      const score = await sketches.similarityOf({ deleted: from, added: to });
      if (score >= MIN_SIMILARITY) found.push({ deleted: from, added: to, score });
    }
  }
  const order = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);
  found
    .sort(
      (a, b) =>
        b.score - a.score ||
        Number(b.deleted.name === b.added.name) - Number(a.deleted.name === a.added.name) ||
        order(a.added.key, b.added.key) ||
        order(a.deleted.key, b.deleted.key),
    )
    .forEach(pair);
  return pairs;
}

/** Sketches of candidates, each computed once, within a limit on the bytes read in all. */
class Sketches<T extends SimilarCandidate> {
  readonly #read: (candidate: T) => Promise<Uint8Array | null>;
  readonly #slices: TimeSlice;
  readonly #cache = new Map<T, Sketch | null>();
  #bytes = 0;

  constructor(read: (candidate: T) => Promise<Uint8Array | null>, slices: TimeSlice) {
    this.#read = read;
    this.#slices = slices;
  }

  async similarityOf({ deleted, added }: SimilarPair<T>): Promise<number> {
    // Files of such different sizes cannot be similar enough, whatever they contain.
    if (Math.min(deleted.size, added.size) < MIN_SIMILARITY * Math.max(deleted.size, added.size)) return 0;
    const before = await this.#of(deleted);
    const after = before === null ? null : await this.#of(added);
    if (this.#slices.isUsedUp) await this.#slices.yieldToEventLoop();
    return before === null || after === null ? 0 : similarity(before, after);
  }

  async #of(candidate: T): Promise<Sketch | null> {
    const cached = this.#cache.get(candidate);
    if (cached !== undefined) return cached;
    const { size } = candidate;
    const isTooMuch = size > LIMITS.fileBytes || this.#bytes + size > LIMITS.bytes;
    if (!isTooMuch) this.#bytes += size;
    const content = isTooMuch ? null : await this.#read(candidate);
    const sketch = content === null ? null : sketchOf(content);
    this.#cache.set(candidate, sketch);
    return sketch;
  }
}

/** Candidates by name; null for a name that several candidates share. */
function uniqueByName<T extends SimilarCandidate>(candidates: readonly T[]): Map<string, T | null> {
  const byName = new Map<string, T | null>();
  for (const one of candidates) byName.set(one.name, byName.has(one.name) ? null : one);
  return byName;
}
