import type { HydrationState } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Progress } from '../../protocol/wire/shapes.ts';
import type { Log } from '../base/log.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventLog } from '../history/event-log.ts';
import type { BackgroundWork } from '../base/background-work.ts';
import type { SnapshotCallOptions } from './connection.ts';
import { Semaphore } from './semaphore.ts';

/** More would only compete for the same disk. */
const MAX_CONCURRENT = 2;

export interface HydrationOptions {
  /** The snapshot that the session's workspace still has to be hydrated from; null for every other session. */
  readonly snapshotFor: (sessionId: string) => string | null;
  /** Starts the session's sidecar, which first finishes pending work and so calls back into `hydrate`. */
  readonly useWorkspace: (sessionId: string) => Promise<void>;
  readonly events: Pick<EventLog, 'append'>;
  readonly background: Pick<BackgroundWork, 'add'>;
  readonly log: Log;
}

/** A hydration that runs, or waits for its turn. */
interface RunningHydration {
  readonly controller: AbortController;
  readonly ended: Promise<void>;
}

/**
 * Hydrates the workspaces of sessions that begin with a snapshot. The request that creates such a session returns
 * first; the files follow in the background, or at once when somebody uses the session. `Restores` keeps the intent on
 * disk; this class decides when a hydration runs, how many run at a time, and reports failures.
 */
export class Hydration {
  readonly #options: HydrationOptions;
  readonly #semaphore = new Semaphore(MAX_CONCURRENT);
  /** Background hydrations by session. */
  readonly #background = new Map<string, Promise<void>>();
  readonly #running = new Map<string, RunningHydration>();
  /** Why the hydration of a session is suspended. */
  readonly #suspended = new Map<string, HoldfastError>();
  readonly #failed = new Map<string, NonNullable<HydrationState['failed']>>();
  readonly #listeners = new Map<string, Set<(progress: Progress) => void>>();
  #shutdown: HoldfastError | undefined;

  constructor(options: HydrationOptions) {
    this.#options = options;
  }

  /** Whether any hydration runs or waits. */
  get isBusy(): boolean {
    return this.#background.size > 0 || this.#running.size > 0;
  }

  /** The state of a session whose files are not all there yet; null for every other session. */
  stateOf(sessionId: string): HydrationState | null {
    const snapshotId = this.#options.snapshotFor(sessionId);
    return snapshotId === null ? null : { snapshotId, failed: this.#failed.get(sessionId) ?? null };
  }

  /**
   * Hydrates in the background unless the files are there. The history records a failure, and the session's next use
   * retries.
   */
  start(sessionId: string): void {
    if (this.#shutdown !== undefined || this.#background.has(sessionId)) return;
    const hydration = this.#hydrateInBackground(sessionId).finally(() => this.#background.delete(sessionId));
    this.#background.set(sessionId, hydration);
    this.#options.background.add(hydration);
  }

  /**
   * Resolves when all files are there. Errors: those of a use of the session; `cancelled` by `signal`, which does not
   * stop the hydration.
   */
  async waitFor(sessionId: string, { signal, onProgress }: SnapshotCallOptions): Promise<void> {
    this.start(sessionId);
    const hydration = this.#background.get(sessionId);
    if (hydration === undefined) {
      await this.#options.useWorkspace(sessionId);
      return;
    }
    const listeners = this.#listeners.get(sessionId) ?? new Set();
    this.#listeners.set(sessionId, listeners);
    const { promise: cancelled, reject } = Promise.withResolvers<never>();
    const cancel = (): void => reject(new HoldfastError('cancelled', 'Stopped waiting for the files'));
    signal?.addEventListener('abort', cancel, { once: true });
    const report = (progress: Progress): void => onProgress?.(progress);
    listeners.add(report);
    try {
      await Promise.race([hydration, cancelled]);
    } finally {
      signal?.removeEventListener('abort', cancel);
      listeners.delete(report);
      if (listeners.size === 0) this.#listeners.delete(sessionId);
    }
  }

  /**
   * Runs `act`, which restores the files, as soon as the semaphore allows. The caller holds the session's mutex.
   * Errors: those of `act`, which `stateOf` shows afterwards, and the reasons given to `suspend` and `suspendAll`.
   */
  async hydrate<T>(sessionId: string, act: (options: SnapshotCallOptions) => Promise<T>): Promise<T> {
    const refused = this.#shutdown ?? this.#suspended.get(sessionId);
    if (refused !== undefined) throw refused;
    const controller = new AbortController();
    const { promise: ended, resolve } = Promise.withResolvers<undefined>();
    this.#running.set(sessionId, { controller, ended });
    try {
      const release = await this.#semaphore.acquire(controller.signal);
      try {
        const onProgress = (progress: Progress): void => this.#reportProgress(sessionId, progress);
        return await act({ signal: controller.signal, onProgress });
      } finally {
        release();
      }
    } catch (error) {
      controller.signal.throwIfAborted();
      this.#recordFailure(sessionId, HoldfastError.from(error));
      throw error;
    } finally {
      this.#running.delete(sessionId);
      resolve(undefined);
    }
  }

  /** Aborts the session's hydration and refuses new ones until the returned function is called. */
  suspend(sessionId: string, why: HoldfastError): () => void {
    this.#suspended.set(sessionId, why);
    this.#running.get(sessionId)?.controller.abort(why);
    return () => this.#suspended.delete(sessionId);
  }

  /** Forgets the last failure: the files are there, or no longer wanted. */
  clearFailure(sessionId: string): void {
    this.#failed.delete(sessionId);
  }

  /**
   * Aborts every hydration and waits for its end. The next supervisor continues them; so does the returned function.
   */
  async suspendAll(): Promise<() => void> {
    const why = new HoldfastError('shutting_down', 'The supervisor is shutting down', {
      next: 'try again: the next supervisor continues where this one stopped',
    });
    this.#shutdown = why;
    const interrupted = [...this.#background.keys()];
    const running = [...this.#running.values()];
    for (const { controller } of running) controller.abort(why);
    await Promise.all(running.map(({ ended }) => ended));
    return () => {
      this.#shutdown = undefined;
      for (const sessionId of interrupted) this.start(sessionId);
    };
  }

  async #hydrateInBackground(sessionId: string): Promise<void> {
    await failpoint('fork.before-files');
    // Another use of the session may have hydrated it already.
    if (this.#options.snapshotFor(sessionId) !== null) await this.#options.useWorkspace(sessionId);
    await failpoint('fork.after-files');
  }

  #reportProgress(sessionId: string, progress: Progress): void {
    for (const listener of this.#listeners.get(sessionId) ?? []) listener(progress);
  }

  /** Reports a failure unless it repeats the last one. */
  #recordFailure(sessionId: string, { code, sentence: why }: HoldfastError): void {
    const { events, snapshotFor, log } = this.#options;
    const snapshotId = snapshotFor(sessionId);
    const before = this.#failed.get(sessionId);
    if (snapshotId === null || (before?.code === code && before.why === why)) return;
    this.#failed.set(sessionId, { code, why });
    log.warn('a workspace could not be hydrated', { session: sessionId, code, why });
    try {
      events.append(sessionId, [{ type: 'workspace.hydration-failed', data: { snapshotId, code, why } }]);
    } catch (failure) {
      log.warn('the failure could not be recorded', {
        session: sessionId,
        why: HoldfastError.from(failure).sentence,
      });
    }
  }
}
