import type { HydrationState } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Progress } from '../../protocol/wire/shapes.ts';
import type { Log } from '../base/log.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventLog } from '../history/event-log.ts';
import type { BackgroundWork } from '../base/background-work.ts';
import type { SnapshotCallOptions } from './connection.ts';
import { Semaphore } from './semaphore.ts';

/** More at a time would take turns at the same disk. */
const AT_A_TIME = 2;

export interface HydrationOptions {
  /** The snapshot that a session begins with and whose files are not all there; null for every other session. */
  readonly snapshotFor: (sessionId: string) => string | null;
  /** Uses the session's workspace, before which all that was begun in it is finished: it comes back to `bring`. */
  readonly useWorkspace: (sessionId: string) => Promise<void>;
  readonly events: Pick<EventLog, 'append'>;
  readonly background: Pick<BackgroundWork, 'add'>;
  readonly log: Log;
}

/** One that is brought, or waits until others are there. */
interface Bringing {
  readonly ending: AbortController;
  readonly ended: Promise<void>;
}

/**
 * Brings the files of sessions that begin with a snapshot, after they were answered for: beside everything else, and at once for who
 * uses one meanwhile. What is to be brought is an intent on the disk (`Restores`); here is who does it, how many at a time, and what
 * became of it.
 */
export class Hydration {
  readonly #options: HydrationOptions;
  readonly #places = new Semaphore(AT_A_TIME);
  /** Those that nobody may wait for. */
  readonly #begun = new Map<string, Promise<void>>();
  readonly #bringing = new Map<string, Bringing>();
  /** Why nothing is brought into them now. */
  readonly #ended = new Map<string, HoldfastError>();
  readonly #failed = new Map<string, NonNullable<HydrationState['failed']>>();
  readonly #listeners = new Map<string, Set<(progress: Progress) => void>>();
  #leaving: HoldfastError | undefined;

  constructor(options: HydrationOptions) {
    this.#options = options;
  }

  /** Something is being brought. */
  get isBusy(): boolean {
    return this.#begun.size > 0 || this.#bringing.size > 0;
  }

  /** What is known of a session whose files are not all there; null for every other. */
  stateOf(sessionId: string): HydrationState | null {
    const snapshotId = this.#options.snapshotFor(sessionId);
    return snapshotId === null ? null : { snapshotId, failed: this.#failed.get(sessionId) ?? null };
  }

  /** In the background; nothing where they are there. A failure is told in the history, and the session's next use tries again. */
  start(sessionId: string): void {
    if (this.#leaving !== undefined || this.#begun.has(sessionId)) return;
    const begun = this.#fill(sessionId).finally(() => this.#begun.delete(sessionId));
    this.#begun.set(sessionId, begun);
    this.#options.background.add(begun);
  }

  /** Settles when they are all there. Errors: those of a use of the session; `cancelled` by `signal`, and they are brought all the same. */
  async waitFor(sessionId: string, { signal, onProgress }: SnapshotCallOptions): Promise<void> {
    this.start(sessionId);
    const begun = this.#begun.get(sessionId);
    if (begun === undefined) {
      await this.#options.useWorkspace(sessionId);
      return;
    }
    const listeners = this.#listeners.get(sessionId) ?? new Set();
    this.#listeners.set(sessionId, listeners);
    const { promise: left, reject } = Promise.withResolvers<never>();
    const leave = (): void => reject(new HoldfastError('cancelled', 'Nobody waits for the files any more'));
    signal?.addEventListener('abort', leave, { once: true });
    const tell = (progress: Progress): void => onProgress?.(progress);
    listeners.add(tell);
    try {
      await Promise.race([begun, left]);
    } finally {
      signal?.removeEventListener('abort', leave);
      listeners.delete(tell);
      if (listeners.size === 0) this.#listeners.delete(sessionId);
    }
  }

  /**
   * Does `act`, which brings the files, when it is its turn. In the session's lane. Errors: those of `act`, which are remembered;
   * what `end` and `pause` say.
   */
  async hydrate<T>(sessionId: string, act: (options: SnapshotCallOptions) => Promise<T>): Promise<T> {
    const refused = this.#leaving ?? this.#ended.get(sessionId);
    if (refused !== undefined) throw refused;
    const ending = new AbortController();
    const { promise: ended, resolve } = Promise.withResolvers<undefined>();
    this.#bringing.set(sessionId, { ending, ended });
    try {
      const leave = await this.#places.acquire(ending.signal);
      try {
        const onProgress = (progress: Progress): void => this.#tell(sessionId, progress);
        return await act({ signal: ending.signal, onProgress });
      } finally {
        leave();
      }
    } catch (error) {
      ending.signal.throwIfAborted();
      this.#fails(sessionId, HoldfastError.from(error));
      throw error;
    } finally {
      this.#bringing.delete(sessionId);
      resolve(undefined);
    }
  }

  /** Nothing is brought into it any more, and what is under way ends, until the returned function is called. */
  suspend(sessionId: string, why: HoldfastError): () => void {
    this.#ended.set(sessionId, why);
    this.#bringing.get(sessionId)?.ending.abort(why);
    return () => this.#ended.delete(sessionId);
  }

  /** They are there, or nobody wants them any more. */
  clearFailure(sessionId: string): void {
    this.#failed.delete(sessionId);
  }

  /** Ends all that is under way, which the next supervisor goes on with, and settles when nothing is. Gives the way to go on. */
  async suspendAll(): Promise<() => void> {
    const why = new HoldfastError('shutting_down', 'The supervisor is leaving', {
      next: 'ask again: the next one goes on where it stopped',
    });
    this.#leaving = why;
    const begun = [...this.#begun.keys()];
    const under = [...this.#bringing.values()];
    for (const { ending } of under) ending.abort(why);
    await Promise.all(under.map(({ ended }) => ended));
    return () => {
      this.#leaving = undefined;
      for (const sessionId of begun) this.start(sessionId);
    };
  }

  async #fill(sessionId: string): Promise<void> {
    await failpoint('fork.before-files');
    // A use may have come before it.
    if (this.#options.snapshotFor(sessionId) !== null) await this.#options.useWorkspace(sessionId);
    await failpoint('fork.after-files');
  }

  #tell(sessionId: string, progress: Progress): void {
    for (const listener of this.#listeners.get(sessionId) ?? []) listener(progress);
  }

  /** The same again is told once. */
  #fails(sessionId: string, { code, sentence: why }: HoldfastError): void {
    const { events, snapshotFor, log } = this.#options;
    const snapshotId = snapshotFor(sessionId);
    const before = this.#failed.get(sessionId);
    if (snapshotId === null || (before?.code === code && before.why === why)) return;
    this.#failed.set(sessionId, { code, why });
    log.warn('the files of a session could not be brought', { session: sessionId, code, why });
    try {
      events.append(sessionId, [{ type: 'workspace.hydration-failed', data: { snapshotId, code, why } }]);
    } catch (failure) {
      log.warn('nor could that be told', { session: sessionId, why: HoldfastError.from(failure).sentence });
    }
  }
}
