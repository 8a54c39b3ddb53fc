import type { LineChange } from '../../snapshots/patch/line-changes.ts';

/** Lines that lie together and have one origin. `end` is exclusive. */
export interface OriginRange<T> {
  readonly start: number;
  readonly end: number;
  readonly origin: T;
}

/**
 * Follows the lines of a text back through its earlier versions, the newest first, until it is known for each which version
 * brought it. Without side effects.
 */
export class LineOrigins<T> {
  readonly #origins: (T | undefined)[];
  /** Lines without an origin yet, in order, and where each is in the version that was reached. */
  #lines: Uint32Array;
  #places: Uint32Array;

  /** `lines`: of the newest version. */
  constructor(lines: number) {
    this.#origins = Array.from({ length: lines }, () => undefined);
    this.#lines = Uint32Array.from({ length: lines }, (_, line) => line);
    this.#places = this.#lines.slice();
  }

  /** How many lines have no origin yet. */
  get open(): number {
    return this.#lines.length;
  }

  /** Goes one version back. `changes`: from the older version to the one that was reached, in order. */
  stepBack(changes: readonly LineChange[], origin: T): void {
    const lines = this.#lines;
    const places = this.#places;
    let kept = 0;
    let next = 0;
    /** Places in the older version minus those in the newer one. */
    let shift = 0;
    for (let index = 0; index < lines.length; index += 1) {
      const line = lines[index] ?? 0;
      const place = places[index] ?? 0;
      for (let change = changes[next]; change !== undefined && change.afterEnd <= place;) {
        shift = change.beforeEnd - change.afterEnd;
        next += 1;
        change = changes[next];
      }
      const change = changes[next];
      if (change !== undefined && change.afterStart <= place) {
        this.#origins[line] = origin;
        continue;
      }
      lines[kept] = line;
      places[kept] = place + shift;
      kept += 1;
    }
    this.#lines = lines.subarray(0, kept);
    this.#places = places.subarray(0, kept);
  }

  /** Gives all other lines this origin. */
  finish(origin: T): void {
    for (const line of this.#lines) this.#origins[line] = origin;
    this.#lines = this.#lines.subarray(0, 0);
    this.#places = this.#places.subarray(0, 0);
  }

  /** Lines with the same origin, as far as it is known. */
  ranges(): OriginRange<T>[] {
    const ranges: OriginRange<T>[] = [];
    let start = 0;
    while (start < this.#origins.length) {
      const origin = this.#origins[start];
      let end = start + 1;
      while (end < this.#origins.length && this.#origins[end] === origin) end += 1;
      if (origin !== undefined) ranges.push({ start, end, origin });
      start = end;
    }
    return ranges;
  }
}
