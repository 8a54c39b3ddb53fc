import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import { ctimeOf, invalidateFingerprint, inodeOf } from './fingerprint.ts';
import type { SystemCalls } from './system-calls.ts';
import { waitForNextTimestamp, laterThanNow } from './timestamp-granularity.ts';

/**
 * What a look knows of time: when it began, and whether anybody has changed something since, so that what it finds need never have been
 * there together.
 */
export class ConsistencyCheck {
  readonly #system: SystemCalls;
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
  constructor(system: SystemCalls, frozen: boolean) {
    this.#system = system;
    this.#frozen = frozen;
    this.#begun = system.fileClock();
  }

  /** Something has changed since the look began, or may have. */
  get changedDuringScan(): boolean {
    return this.#moved;
  }

  /** Whether what has changed did so before the look began or after, by its times nobody can tell. */
  get isAmbiguous(): boolean {
    return this.#moved && !this.#isSure;
  }

  /** `waits`: for a tick of the clock. Else what was written just before will look as if it were written meanwhile. */
  async begin(waits: boolean): Promise<void> {
    if (waits) this.#begun = await waitForNextTimestamp(this.#system);
    this.#surely = laterThanNow();
  }

  /** A look that begins now can tell what the last one could not. */
  async restart(): Promise<void> {
    this.#begun = await waitForNextTimestamp(this.#system);
    this.#moved = false;
  }

  /** Somebody changed it since the look began, unless it was we who gave it back then, which all names of a file show. */
  noteCtime(facts: Uint32Array): void {
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
  noteChangeAt(path: readonly Buffer[]): void {
    this.noteChange();
    if (!this.#frozen) return;
    throw new HoldfastError('file_unavailable', 'The workspace could not be read as it is at one moment', {
      why: `${formatPath(path)} changed meanwhile`,
      next: 'try again',
    });
  }

  /** A file whose mode was lent looks like this since it was given back. */
  noteRestoredMode(facts: Uint32Array): void {
    this.#givenBack.set(inodeOf(facts), ctimeOf(facts));
  }

  /** What was looked at within the last tick of the clock is looked at again the next time. */
  invalidateIfRecent(facts: Uint32Array): void {
    if (ctimeOf(facts) >= this.#begun) invalidateFingerprint(facts, 0);
  }
}
