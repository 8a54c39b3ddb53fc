import { HoldfastError } from '../../protocol/errors.ts';

/** How often something may happen: `burst` times at once, and once more every `everyMs`. */
export interface Rate {
  readonly burst: number;
  readonly everyMs: number;
}

/** Counts what an agent does against a rate. */
export class Allowance {
  readonly #rate: Rate;
  readonly #now: () => number;
  #left: number;
  #countedAt: number;

  /** `now` in ms, from any beginning. */
  constructor(rate: Rate, now: () => number) {
    this.#rate = rate;
    this.#now = now;
    this.#left = rate.burst;
    this.#countedAt = now();
  }

  /** Errors: `overloaded`, which says when it may happen again. */
  take(what: string): void {
    const { burst, everyMs } = this.#rate;
    const now = this.#now();
    this.#left = Math.min(burst, this.#left + Math.max(0, now - this.#countedAt) / everyMs);
    this.#countedAt = now;
    if (this.#left < 1) {
      const seconds = Math.ceil(((1 - this.#left) * everyMs) / 1000);
      throw new HoldfastError('overloaded', `Too many calls of ${what}`, {
        why: `after ${burst} calls, one is answered every ${everyMs / 1000} s`,
        next: `try again in ${seconds} s`,
      });
    }
    this.#left -= 1;
  }
}
