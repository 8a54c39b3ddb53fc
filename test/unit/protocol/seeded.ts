import { figure, times } from '../../setup/run-length.ts';

/** Numbers that look random and are the same for the same seed. */
export class Seeded {
  #state: number;
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** 0 ≤ n < 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  pick<T>(from: readonly [T, ...T[]]): T {
    return from[this.below(from.length)] ?? from[0];
  }
}

const USUAL_SEED = 20_260_101;

/**
 * The seed of this run: HOLDFAST_SEED; else the same in every short run, which must not fail for what nobody changed, and a new one,
 * printed so that a failure can be repeated, in each long one.
 */
export function seedOfRun(what: string): number {
  const named = process.env['HOLDFAST_SEED'];
  const seed = named === undefined ? times(USUAL_SEED, Date.now() % 2 ** 32) : Number(named);
  if (seed !== USUAL_SEED) figure(`${what}: HOLDFAST_SEED=${seed}`);
  return seed;
}
