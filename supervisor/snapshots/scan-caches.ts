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

/** What makes it worth it while the sidecar goes on: it could end without a word. */
const WORTH = { files: 1000, bytes: 16 * 2 ** 20 } as const;
/** Milliseconds: until what asked for the look has gone on, between two times, and what the end of a sidecar waits for at most. */
const QUIET_MS = 2000;
const APART_MS = 60_000;
const END_MS = 5000;

export interface ScanCachesOptions {
  readonly engine: Pick<Engine, 'observeSession'>;
  readonly stores: LineageStores;
  readonly access: Pick<SidecarAccess, 'dial'>;
  readonly log: Log;
}

interface Unkept {
  files: number;
  bytes: number;
  timer: NodeJS.Timeout | null;
  /** Of `performance.now()`. */
  keptAt: number;
}

/**
 * Has sidecars leave what their scans know (see `snapshot/save-scan-cache`): in the background after much was read, and before they end. All of
 * it may fail; then the next sidecar reads what it cannot know.
 */
export class ScanCaches {
  readonly #options: ScanCachesOptions;
  readonly #unkept = new Map<string, Unkept>();
  readonly #turns = new KeyedMutex();
  readonly #ending = new AbortController();

  constructor(options: ScanCachesOptions) {
    this.#options = options;
  }

  /** A snapshot was taken, and this much was read for it. */
  onScan(
    row: SessionRow,
    { changedFiles, changedBytes }: Pick<ScanResult, 'changedFiles' | 'changedBytes'>,
  ): void {
    const unkept = this.#unkept.get(row.id) ?? { files: 0, bytes: 0, timer: null, keptAt: -APART_MS };
    this.#unkept.set(row.id, unkept);
    unkept.files += changedFiles;
    unkept.bytes += changedBytes;
    if (unkept.timer !== null || (unkept.files < WORTH.files && unkept.bytes < WORTH.bytes)) return;
    const ms = Math.max(QUIET_MS, unkept.keptAt + APART_MS - performance.now());
    unkept.timer = setTimeout(() => {
      unkept.timer = null;
      void this.#keep(row, false, this.#ending.signal);
    }, ms).unref();
  }

  /**
   * Before the session's sidecar is ended. Whatever looks at the workspace ends, and gives back the modes that it has lent itself: the
   * notes of that go with the sidecar. Never rejects, and never takes long.
   */
  async saveBeforeSidecarEnds(row: SessionRow): Promise<void> {
    const { engine } = this.#options;
    this.#forget(row.id);
    // Nothing of an ephemeral session is left by now.
    if (!row.persistent) return;
    const { sidecar } = await engine.observeSession(row.id).catch(() => ({ sidecar: null }));
    if (sidecar?.state !== 'running') return;
    const late = AbortSignal.timeout(END_MS);
    // A sidecar that hangs cannot be told anything, and not every step of asking it ends with a signal.
    const { promise: over, resolve } = Promise.withResolvers<undefined>();
    late.addEventListener('abort', () => resolve(undefined), { once: true });
    await Promise.race([this.#keep(row, true, AbortSignal.any([this.#ending.signal, late])), over]);
  }

  /** The session is gone. */
  async remove({ id, lineage }: SessionRow): Promise<void> {
    this.#forget(id);
    await this.#turns.run(id, () =>
      this.#options.stores.use(lineage, (store) => new ScanCacheFile(store.directory, id).remove()),
    );
  }

  async close(): Promise<void> {
    this.#ending.abort(new HoldfastError('shutting_down', 'The supervisor is leaving'));
    for (const id of [...this.#unkept.keys()]) this.#forget(id);
    await this.#turns.drained();
  }

  #forget(sessionId: string): void {
    clearTimeout(this.#unkept.get(sessionId)?.timer ?? undefined);
    this.#unkept.delete(sessionId);
  }

  async #keep(row: SessionRow, last: boolean, signal: AbortSignal): Promise<void> {
    const { stores, access, log } = this.#options;
    const before = this.#unkept.get(row.id);
    const { files = 0, bytes = 0 } = before ?? {};
    try {
      const kept = await this.#turns.run(row.id, async () => {
        signal.throwIfAborted();
        return await stores.use(row.lineage, async (store) => {
          const connection = await SnapshotConnection.open(() => access.dial(row.id), row.id);
          try {
            return await connection.saveScanCache(last, store, { signal });
          } finally {
            connection.close();
          }
        });
      });
      if (!kept || before === undefined) return;
      before.files -= files;
      before.bytes -= bytes;
      before.keptAt = performance.now();
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      const { code, sentence: why } = HoldfastError.from(error);
      log.debug('what a scan knows was not kept', { session: row.id, code, why });
    }
  }
}
