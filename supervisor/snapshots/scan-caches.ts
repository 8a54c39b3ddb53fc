import type { ScanResult } from '../../snapshot-format/sidecar-calls.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Engine } from '../engine/port.ts';
import { KeyedMutex } from '../base/keyed-mutex.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SidecarAccess } from '../workspace/sidecar-access.ts';
import { SnapshotConnection } from './connection.ts';
import { ScanCacheFile } from './store/scan-cache-file.ts';
import type { LineageStores } from './store/lineage-stores.ts';

/**
 * After this much was read the cache is saved while the sidecar goes on, because a sidecar can exit without warning.
 */
const SAVE_THRESHOLD = { files: 1000, bytes: 16 * 2 ** 20 } as const;
/** Delay after a scan, so that the operation that asked for the scan continues first. */
const DELAY_MS = 2000;
/** Minimum time between two saves of one session. */
const INTERVAL_MS = 60_000;
/** How long the end of a sidecar waits for the save. */
const FINAL_SAVE_TIMEOUT_MS = 5000;

export interface ScanCachesOptions {
  readonly engine: Pick<Engine, 'observeSession'>;
  readonly stores: LineageStores;
  readonly access: Pick<SidecarAccess, 'dial'>;
  readonly log: Log;
}

/** What was read for a session since its cache was saved. */
interface UnsavedReads {
  files: number;
  bytes: number;
  timer: NodeJS.Timeout | null;
  /** Value of `performance.now()`. */
  savedAt: number;
}

/**
 * Makes sidecars save their scan caches (see `snapshot/save-scan-cache`): in the background after they have read much,
 * and before they end. A save may fail: then the next sidecar reads those files again.
 */
export class ScanCaches {
  readonly #options: ScanCachesOptions;
  readonly #unsaved = new Map<string, UnsavedReads>();
  readonly #mutex = new KeyedMutex();
  readonly #shutdown = new AbortController();

  constructor(options: ScanCachesOptions) {
    this.#options = options;
  }

  /** Records how much a scan has read, and schedules a save. */
  onScan(
    row: SessionRow,
    { changedFiles, changedBytes }: Pick<ScanResult, 'changedFiles' | 'changedBytes'>,
  ): void {
    const unsaved = this.#unsaved.get(row.id) ?? { files: 0, bytes: 0, timer: null, savedAt: -INTERVAL_MS };
    this.#unsaved.set(row.id, unsaved);
    unsaved.files += changedFiles;
    unsaved.bytes += changedBytes;
    if (
      unsaved.timer !== null ||
      (unsaved.files < SAVE_THRESHOLD.files && unsaved.bytes < SAVE_THRESHOLD.bytes)
    )
      return;
    const ms = Math.max(DELAY_MS, unsaved.savedAt + INTERVAL_MS - performance.now());
    unsaved.timer = setTimeout(() => {
      unsaved.timer = null;
      void this.#save(row, false, this.#shutdown.signal);
    }, ms).unref();
  }

  /**
   * Called before the session's sidecar is stopped. The sidecar ends a running scan and undoes its temporary chmods,
   * because its notes about them are lost when it exits. Never rejects, and takes bounded time.
   */
  async saveBeforeSidecarEnds(row: SessionRow): Promise<void> {
    const { engine } = this.#options;
    this.#forget(row.id);
    // The workspace of an ephemeral session is gone by now.
    if (!row.persistent) return;
    const { sidecar } = await engine.observeSession(row.id).catch(() => ({ sidecar: null }));
    if (sidecar?.state !== 'running') return;
    const timeout = AbortSignal.timeout(FINAL_SAVE_TIMEOUT_MS);
    // A sidecar that hangs does not react, and not every step of the call obeys the signal.
    const { promise: timedOut, resolve } = Promise.withResolvers<undefined>();
    timeout.addEventListener('abort', () => resolve(undefined), { once: true });
    await Promise.race([this.#save(row, true, AbortSignal.any([this.#shutdown.signal, timeout])), timedOut]);
  }

  /** Removes the cache of a deleted session. */
  async remove({ id, lineage }: SessionRow): Promise<void> {
    this.#forget(id);
    await this.#mutex.run(id, () =>
      this.#options.stores.use(lineage, (store) => new ScanCacheFile(store.directory, id).remove()),
    );
  }

  async close(): Promise<void> {
    this.#shutdown.abort(new HoldfastError('shutting_down', 'The supervisor is shutting down'));
    for (const id of [...this.#unsaved.keys()]) this.#forget(id);
    await this.#mutex.drained();
  }

  #forget(sessionId: string): void {
    clearTimeout(this.#unsaved.get(sessionId)?.timer ?? undefined);
    this.#unsaved.delete(sessionId);
  }

  async #save(row: SessionRow, isLast: boolean, signal: AbortSignal): Promise<void> {
    const { stores, access, log } = this.#options;
    const unsaved = this.#unsaved.get(row.id);
    const { files = 0, bytes = 0 } = unsaved ?? {};
    try {
      const isSaved = await this.#mutex.run(row.id, async () => {
        signal.throwIfAborted();
        return await stores.use(row.lineage, async (store) => {
          const connection = await SnapshotConnection.open(() => access.dial(row.id), row.id);
          try {
            return await connection.saveScanCache(isLast, store, { signal });
          } finally {
            connection.close();
          }
        });
      });
      if (!isSaved || unsaved === undefined) return;
      unsaved.files -= files;
      unsaved.bytes -= bytes;
      unsaved.savedAt = performance.now();
    } catch (error) {
      if (this.#shutdown.signal.aborted) return;
      const { code, sentence: why } = HoldfastError.from(error);
      log.debug('the scan cache was not saved', { session: row.id, code, why });
    }
  }
}
