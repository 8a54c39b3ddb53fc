import type { TimeSlice } from '../../../protocol/time-slice.ts';
import { type Sketch, similarity, sketchOf } from './similarity.ts';

/** At least so much of the longer file is in the other one. Git's limit. */
const LEAST_SIMILARITY = 0.5;
/** Files of each side that are looked at; with more, only those whose name is on both sides once. */
const LIMITS = { files: 100, named: 500, fileBytes: 2 ** 19, bytes: 8 * 2 ** 20 } as const;

/** A file that is gone, or one that is new. Keys sort as paths do. */
export interface SimilarCandidate {
  readonly key: string;
  /** The last part of its path. */
  readonly name: string;
  readonly size: number;
}

export interface SimilarPair<T> {
  readonly gone: T;
  readonly come: T;
}

/**
 * Pairs files that are gone with new ones that have much of their content, each at most once: first those with the same name, then the
 * most similar ones. Takes bounded time and memory; what is beyond the limits is not paired. `read` gives the content; null where it
 * cannot be had.
 */
export async function pairSimilar<T extends SimilarCandidate>(
  gone: readonly T[],
  come: readonly T[],
  read: (candidate: T) => Promise<Uint8Array | null>,
  slices: TimeSlice,
): Promise<SimilarPair<T>[]> {
  const sketches = new Sketches(read, slices);
  const pairs: SimilarPair<T>[] = [];
  const paired = new Set<T>();
  const pair = (one: SimilarPair<T>): void => {
    if (paired.has(one.gone) || paired.has(one.come)) return;
    pairs.push(one);
    paired.add(one.gone).add(one.come);
  };

  const [goneByName, comeByName] = [onlyOnesByName(gone), onlyOnesByName(come)];
  let looked = 0;
  for (const [name, from] of goneByName) {
    const to = comeByName.get(name);
    if (from === null || to === undefined || to === null) continue;
    looked += 1;
    if (looked > LIMITS.named) break;
    const one = { gone: from, come: to };
    if ((await sketches.similarityOf(one)) >= LEAST_SIMILARITY) pair(one);
  }

  const restGone = gone.filter((one) => !paired.has(one));
  const restCome = come.filter((one) => !paired.has(one));
  if (restGone.length > LIMITS.files || restCome.length > LIMITS.files) return pairs;
  const found: (SimilarPair<T> & { readonly score: number })[] = [];
  for (const from of restGone) {
    for (const to of restCome) {
      const score = await sketches.similarityOf({ gone: from, come: to });
      if (score >= LEAST_SIMILARITY) found.push({ gone: from, come: to, score });
    }
  }
  const order = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);
  found
    .sort(
      (a, b) =>
        b.score - a.score ||
        Number(b.gone.name === b.come.name) - Number(a.gone.name === a.come.name) ||
        order(a.come.key, b.come.key) ||
        order(a.gone.key, b.gone.key),
    )
    .forEach(pair);
  return pairs;
}

/** Sketches of candidates, each made once, within a limit of bytes that are read for all of them. */
class Sketches<T extends SimilarCandidate> {
  readonly #read: (candidate: T) => Promise<Uint8Array | null>;
  readonly #slices: TimeSlice;
  readonly #known = new Map<T, Sketch | null>();
  #bytes = 0;

  constructor(read: (candidate: T) => Promise<Uint8Array | null>, slices: TimeSlice) {
    this.#read = read;
    this.#slices = slices;
  }

  async similarityOf({ gone, come }: SimilarPair<T>): Promise<number> {
    // Whatever they hold, so much of the longer one is missing in the other.
    if (Math.min(gone.size, come.size) < LEAST_SIMILARITY * Math.max(gone.size, come.size)) return 0;
    const before = await this.#of(gone);
    const after = before === null ? null : await this.#of(come);
    if (this.#slices.isUsedUp) await this.#slices.yieldToEventLoop();
    return before === null || after === null ? 0 : similarity(before, after);
  }

  async #of(candidate: T): Promise<Sketch | null> {
    const known = this.#known.get(candidate);
    if (known !== undefined) return known;
    const { size } = candidate;
    const isTooMuch = size > LIMITS.fileBytes || this.#bytes + size > LIMITS.bytes;
    if (!isTooMuch) this.#bytes += size;
    const content = isTooMuch ? null : await this.#read(candidate);
    const sketch = content === null ? null : sketchOf(content);
    this.#known.set(candidate, sketch);
    return sketch;
  }
}

/** By name; null for a name that several have. */
function onlyOnesByName<T extends SimilarCandidate>(candidates: readonly T[]): Map<string, T | null> {
  const byName = new Map<string, T | null>();
  for (const one of candidates) byName.set(one.name, byName.has(one.name) ? null : one);
  return byName;
}
