import type { EventEntry } from '../../protocol/events.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { FolderUsage } from '../../protocol/search.ts';
import type { Log } from '../base/log.ts';
import { type StorageState, storageState, storageLimitError } from './storage-state.ts';

/** A busy workspace is measured again this long after the last time, or after so many times as long as that took. */
const PAUSE_MS = 5000;
const PAUSE_SHARE = 20;
const BIGGEST = 10;

export interface Measurement {
  readonly bytes: number;
}

export interface StorageLimitsOptions {
  /** Bytes; null for none. */
  readonly limitOf: (sessionId: string) => number | null;
  /** What was measured last, by this or an earlier supervisor; null for never. */
  readonly lastMeasured: (sessionId: string) => number | null;
  readonly measure: (sessionId: string) => Promise<Measurement>;
  readonly largestFolders: (sessionId: string, limit: number) => Promise<FolderUsage[]>;
  readonly record: (sessionId: string, bytes: number, events: EventEntry[]) => void;
  /** Sessions in which something runs now. */
  readonly activeSessions: () => string[];
  readonly log: Log;
}

interface Known {
  bytes: number;
  state: StorageState;
  measuredAt: number;
  tookMs: number;
}

/**
 * A soft limit: nothing keeps an agent from writing on, but it gets no further turn, and clients cannot add to it. Measured after
 * turns, every few seconds while something runs, and again before anything is refused; what clients write is added at once.
 */
export class StorageLimits {
  readonly #options: StorageLimitsOptions;
  readonly #known = new Map<string, Known>();
  readonly #measuring = new Map<string, Promise<number>>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: StorageLimitsOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => {
      for (const sessionId of this.#options.activeSessions()) this.measureSoon(sessionId);
    }, PAUSE_MS);
    this.#timer.unref();
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.allSettled(this.#measuring.values());
  }

  /** Something may have grown: measures soon, unless it was just done. Without a limit it costs nothing. */
  measureSoon(sessionId: string, now = false): void {
    if (this.#options.limitOf(sessionId) === null || this.#measuring.has(sessionId)) return;
    const known = this.#known.get(sessionId);
    const pause = Math.max(PAUSE_MS, (known?.tookMs ?? 0) * PAUSE_SHARE);
    if (!now && known !== undefined && performance.now() - known.measuredAt < pause) return;
    this.#measure(sessionId).catch((error: unknown) => {
      this.#options.log.info('a workspace was not measured', {
        session: sessionId,
        why: HoldfastError.from(error).sentence,
      });
    });
  }

  /** Errors: `storage_limit` where `adding` bytes more would be too many. */
  async requireSpace(sessionId: string, what: string, adding = 0): Promise<void> {
    const limit = this.#options.limitOf(sessionId);
    if (limit === null) return;
    const known = this.#known.get(sessionId);
    const believed = known?.bytes ?? this.#options.lastMeasured(sessionId) ?? 0;
    if (believed + adding <= limit) {
      if (adding > 0) {
        if (known !== undefined) known.bytes += adding;
        this.measureSoon(sessionId);
      }
      return;
    }
    // Something may have been removed since.
    const bytes = await this.#measure(sessionId);
    if (bytes + adding <= limit) return;
    throw storageLimitError(what, bytes, limit, await this.#options.largestFolders(sessionId, BIGGEST));
  }

  /** The workspace was emptied, or is gone. */
  forget(sessionId: string): void {
    this.#known.delete(sessionId);
  }

  #measure(sessionId: string): Promise<number> {
    const under = this.#measuring.get(sessionId);
    if (under !== undefined) return under;
    const work = this.#measureNow(sessionId).finally(() => this.#measuring.delete(sessionId));
    this.#measuring.set(sessionId, work);
    return work;
  }

  async #measureNow(sessionId: string): Promise<number> {
    const { limitOf, lastMeasured, measure, record } = this.#options;
    const began = performance.now();
    const { bytes } = await measure(sessionId);
    const limit = limitOf(sessionId);
    const before = this.#known.get(sessionId)?.state ?? 'far';
    const state = limit === null ? 'far' : storageState(bytes, limit, before);
    const measuredAt = performance.now();
    this.#known.set(sessionId, { bytes, state, measuredAt, tookMs: measuredAt - began });
    const events: EventEntry[] = [];
    if (lastMeasured(sessionId) !== bytes) events.push({ type: 'workspace.measured', data: { bytes } });
    if (limit !== null && before === 'far' && state !== 'far')
      events.push({ type: 'workspace.near-limit', data: { bytes, limit } });
    if (events.length > 0) record(sessionId, bytes, events);
    return bytes;
  }
}
