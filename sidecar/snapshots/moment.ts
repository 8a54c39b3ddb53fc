import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import { ctimeOf, forgetFacts, inodeOf } from './facts.ts';
import type { System } from './system.ts';
import { nextTick, surelyLater } from './tick.ts';

/**
 * What a look knows of time: when it began, and whether anybody has changed something since, so that what it finds need never have been
 * there together.
 */
export class Moment {
  readonly #system: System;
  readonly #frozen: boolean;
  /** Time of files. What was changed before has an earlier one; what has changed since, this or a later one. */
  #begun: bigint;
  /** What has this time, or a later one, was surely not there before the begin. */
  #surely = 0n;
  /** When files that were lent were given back. */
  readonly #givenBack = new Map<ReturnType<typeof inodeOf>, bigint>();
  #moved = false;
  /** Of something that has changed it is known that it did so after the begin. */
  #isSure = false;

  /** `frozen`: nobody is there to change anything. Whatever does change is an error then. */
  constructor(system: System, frozen: boolean) {
    this.#system = system;
    this.#frozen = frozen;
    this.#begun = system.fileClock();
  }

  /** Something has changed since the look began, or may have. */
  get moved(): boolean {
    return this.#moved;
  }

  /** Whether what has changed did so before the look began or after, by its times nobody can tell. */
  get isInDoubt(): boolean {
    return this.#moved && !this.#isSure;
  }

  /** `waits`: for a tick of the clock. Else what was written just before will look as if it were written meanwhile. */
  async begin(waits: boolean): Promise<void> {
    if (waits) this.#begun = await nextTick(this.#system);
    this.#surely = surelyLater();
  }

  /** A look that begins now can tell what the last one could not. */
  async beginAgain(): Promise<void> {
    this.#begun = await nextTick(this.#system);
    this.#moved = false;
  }

  /** Somebody changed it since the look began, unless it was we who gave it back then, which all names of a file show. */
  note(facts: Uint32Array): void {
    const changedAt = ctimeOf(facts);
    if (changedAt < this.#begun || this.#givenBack.get(inodeOf(facts)) === changedAt) return;
    this.#moved = true;
    if (changedAt >= this.#surely) this.#isSure = true;
  }

  /** Something was seen to change. */
  noteChange(): void {
    this.#moved = this.#isSure = true;
  }

  /** The same of what cannot be taken as it was found. Errors: `file_unavailable` where nobody is there to change it. */
  movedAt(path: readonly Buffer[]): void {
    this.noteChange();
    if (!this.#frozen) return;
    throw new HoldfastError('file_unavailable', 'The workspace could not be read as it is at one moment', {
      why: `${formatPath(path)} changed meanwhile`,
      next: 'try again',
    });
  }

  /** A file whose mode was lent looks like this since it was given back. */
  noteGivenBack(facts: Uint32Array): void {
    this.#givenBack.set(inodeOf(facts), ctimeOf(facts));
  }

  /** What was looked at within the last tick of the clock is looked at again the next time. */
  settle(facts: Uint32Array): void {
    if (ctimeOf(facts) >= this.#begun) forgetFacts(facts, 0);
  }
}
