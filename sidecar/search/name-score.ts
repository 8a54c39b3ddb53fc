/**
 * How well a path matches a lower-case query: higher is better, null is no match. The letters of the query must occur
 * in order. A match in the file name beats a match in a folder name, which beats scattered letters. Shorter paths rank
 * higher.
 */
export function scoreOf(path: string, query: string): number | null {
  if (query === '') return -path.length;
  const lower = path.toLowerCase();
  const nameAt = lower.lastIndexOf('/') + 1;
  const inName = lower.indexOf(query, nameAt);
  if (inName === nameAt) return 3000 - path.length / 10;
  if (inName !== -1) return 2500 - path.length / 10;
  if (lower.includes(query)) return 2000 - path.length / 10;
  let at = 0;
  let gaps = 0;
  for (const letter of query) {
    const next = lower.indexOf(letter, at);
    if (next === -1) return null;
    if (next > at && at > 0) gaps += 1;
    at = next + letter.length;
  }
  return 1000 - gaps * 10 - path.length / 10;
}

export interface ScoredName {
  readonly text: string;
  readonly score: number;
  readonly names: readonly Buffer[];
}

/** Keeps the best matches. */
export class BestNames {
  readonly #most: number;
  #kept: ScoredName[] = [];

  constructor(most: number) {
    this.#most = most;
  }

  add(name: ScoredName): void {
    this.#kept.push(name);
    if (this.#kept.length >= this.#most * 2 + 100) this.#kept = this.sorted();
  }

  sorted(): ScoredName[] {
    return this.#kept
      .sort((a, b) => b.score - a.score || (a.text < b.text ? -1 : a.text > b.text ? 1 : 0))
      .slice(0, this.#most);
  }
}
