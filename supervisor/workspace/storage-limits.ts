import type { EventEntry } from '../../protocol/events.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { FolderUsage } from '../../protocol/search.ts';
import type { Log } from '../base/log.ts';
import { type StorageState, storageState } from './storage-state.ts';

/** A directory in use is measured again after this time, or after `PAUSE_SHARE` times the duration of the last measurement. */
const PAUSE_MS = 5000;
const PAUSE_SHARE = 20;
const BIGGEST = 10;

export interface Measurement {
  readonly bytes: number;
}

export interface StorageLimitsOptions {
  /** Bytes; null for none. */
  readonly limitOf: (sessionId: string) => number | null;
  /** The last measurement, also of an earlier supervisor; null: none. */
  readonly lastMeasured: (sessionId: string) => number | null;
  /** Null: not measured, because that would start something and nobody waits for the result (`isAwaited`). */
  readonly measure: (sessionId: string, isAwaited: boolean) => Promise<Measurement | null>;
  readonly largestFolders: (sessionId: string, limit: number) => Promise<FolderUsage[]>;
  readonly record: (sessionId: string, bytes: number, events: EventEntry[]) => void;
  /** The refusal of what would add to a full directory. */
  readonly refusal: (
    what: string,
    bytes: number,
    limit: number,
    folders: readonly FolderUsage[],
  ) => HoldfastError;
  /** Sessions with active work. */
  readonly activeSessions: () => string[];
  readonly log: Log;
}

interface Cached {
  bytes: number;
  state: StorageState;
  measuredAt: number;
  tookMs: number;
}

/**
 * A soft limit of workspaces, or of HOME: a running agent can write beyond it, but then it gets no further turn, and clients cannot
 * add files. A directory is measured after turns, every few seconds during active work, and before a refusal. Writes of clients are added at once.
 */
export class StorageLimits {
  readonly #options: StorageLimitsOptions;
  readonly #cached = new Map<string, Cached>();
  readonly #measuring = new Map<string, Promise<number | null>>();
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

  /** The directory may have grown: measures it, unless that was just done. Costs nothing without a limit. */
  measureSoon(sessionId: string, immediately = false): void {
    if (this.#options.limitOf(sessionId) === null || this.#measuring.has(sessionId)) return;
    const cached = this.#cached.get(sessionId);
    const pause = Math.max(PAUSE_MS, (cached?.tookMs ?? 0) * PAUSE_SHARE);
    if (!immediately && cached !== undefined && performance.now() - cached.measuredAt < pause) return;
    this.#measure(sessionId, false).catch((error: unknown) => {
      this.#options.log.info('a directory of a session was not measured', {
        session: sessionId,
        why: HoldfastError.from(error).sentence,
      });
    });
  }

  /** Errors: `storage_limit` where `adding` bytes more would be too many. */
  async requireSpace(sessionId: string, what: string, adding = 0): Promise<void> {
    const limit = this.#options.limitOf(sessionId);
    if (limit === null) return;
    const cached = this.#cached.get(sessionId);
    const estimate = cached?.bytes ?? this.#options.lastMeasured(sessionId) ?? 0;
    if (estimate + adding <= limit) {
      if (adding > 0) {
        if (cached !== undefined) cached.bytes += adding;
        this.measureSoon(sessionId);
      }
      return;
    }
    // Files may have been removed since the last measurement.
    const bytes = (await this.#measure(sessionId, true)) ?? (await this.#measure(sessionId, true)) ?? 0;
    if (bytes + adding <= limit) return;
    throw this.#options.refusal(what, bytes, limit, await this.#options.largestFolders(sessionId, BIGGEST));
  }

  /** The directory was emptied, or is gone. */
  forget(sessionId: string): void {
    this.#cached.delete(sessionId);
  }

  #measure(sessionId: string, isAwaited: boolean): Promise<number | null> {
    const under = this.#measuring.get(sessionId);
    if (under !== undefined) return under;
    const work = this.#measureNow(sessionId, isAwaited).finally(() => this.#measuring.delete(sessionId));
    this.#measuring.set(sessionId, work);
    return work;
  }

  async #measureNow(sessionId: string, isAwaited: boolean): Promise<number | null> {
    const { limitOf, lastMeasured, measure, record } = this.#options;
    const began = performance.now();
    const measured = await measure(sessionId, isAwaited);
    if (measured === null) return null;
    const { bytes } = measured;
    const limit = limitOf(sessionId);
    const before = this.#cached.get(sessionId)?.state ?? 'far';
    const state = limit === null ? 'far' : storageState(bytes, limit, before);
    const measuredAt = performance.now();
    this.#cached.set(sessionId, { bytes, state, measuredAt, tookMs: measuredAt - began });
    const events: EventEntry[] = [];
    if (lastMeasured(sessionId) !== bytes) events.push({ type: 'workspace.measured', data: { bytes } });
    if (limit !== null && before === 'far' && state !== 'far')
      events.push({ type: 'workspace.near-limit', data: { bytes, limit } });
    if (events.length > 0) record(sessionId, bytes, events);
    return bytes;
  }
}
