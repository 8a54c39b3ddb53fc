import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import { ctimeOf, invalidateFingerprint, inodeOf } from './fingerprint.ts';
import type { SystemCalls } from './system-calls.ts';
import { waitForNextTimestamp, laterThanNow } from './timestamp-granularity.ts';

/**
 * Decides whether the workspace changed during a scan. If it did, the scanned files may never have existed together.
 */
export class ConsistencyCheck {
  readonly #system: SystemCalls;
  readonly #frozen: boolean;
  /**
   * Start of the scan on the file clock. A change before it has an earlier ctime; a later change has this ctime or a
   * later one.
   */
  #startedAt: bigint;
  /** A file with this ctime or a later one certainly changed after the start. */
  #surelyAfter = 0n;
  /** When we restored modes after a temporary chmod, by inode. */
  readonly #restoredAt = new Map<ReturnType<typeof inodeOf>, bigint>();
  #hasChanged = false;
  /** At least one change is known to have happened after the start. */
  #isCertain = false;

  /** `frozen`: the agent is paused, so any change is an error. */
  constructor(system: SystemCalls, frozen: boolean) {
    this.#system = system;
    this.#frozen = frozen;
    this.#startedAt = system.fileClock();
  }

  /** Something changed after the start of the scan, or may have. */
  get changedDuringScan(): boolean {
    return this.#hasChanged;
  }

  /** The ctimes do not tell whether the changes happened before or after the start. */
  get isAmbiguous(): boolean {
    return this.#hasChanged && !this.#isCertain;
  }

  /**
   * `waits`: wait for the next timestamp of the file clock. Otherwise a file written just before the start looks
   * changed during the scan.
   */
  async begin(waits: boolean): Promise<void> {
    if (waits) this.#startedAt = await waitForNextTimestamp(this.#system);
    this.#surelyAfter = laterThanNow();
  }

  /** Starts a second scan, which can resolve what the first one could not. */
  async restart(): Promise<void> {
    this.#startedAt = await waitForNextTimestamp(this.#system);
    this.#hasChanged = false;
  }

  /** Notes a change after the start, except a mode that we restored ourselves. All names of a file show that. */
  noteCtime(fingerprint: Uint32Array): void {
    const changedAt = ctimeOf(fingerprint);
    if (changedAt < this.#startedAt || this.#restoredAt.get(inodeOf(fingerprint)) === changedAt) return;
    this.#hasChanged = true;
    if (changedAt >= this.#surelyAfter) this.#isCertain = true;
  }

  /** Notes a change that was observed directly. */
  noteChange(): void {
    this.#hasChanged = this.#isCertain = true;
  }

  /** The same at a path whose state cannot be read consistently. Errors: `file_unavailable` if the agent is paused. */
  noteChangeAt(path: readonly Buffer[]): void {
    this.noteChange();
    if (!this.#frozen) return;
    throw new HoldfastError('file_unavailable', 'The workspace could not be read at one point in time', {
      why: `${formatPath(path)} changed during the scan`,
      next: 'try again',
    });
  }

  /** Fingerprint of a file after its mode was restored. */
  noteRestoredMode(fingerprint: Uint32Array): void {
    this.#restoredAt.set(inodeOf(fingerprint), ctimeOf(fingerprint));
  }

  /** Makes the next scan read a file again that changed within the timestamp granularity. */
  invalidateIfRecent(fingerprint: Uint32Array): void {
    if (ctimeOf(fingerprint) >= this.#startedAt) invalidateFingerprint(fingerprint, 0);
  }
}
