import { RootHashSchema } from '../../snapshot-format/sidecar-calls.ts';
import { type Hash, parseHash } from '../../snapshot-format/objects.ts';
import type { SnapshotUsage } from '../../protocol/snapshots.ts';
import type { Garbage } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Operations } from '../store/operations.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import {
  type CollectOptions,
  collectLineage,
  type CollectionResult,
  planLineageCollection,
} from './gc/collect-lineage.ts';
import { SnapshotFiles } from './files/snapshot-files.ts';
import { uniqueBytes } from './gc/unique-bytes.ts';
import type { LeasedRoots } from './leased-roots.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { LineageStore } from './store/lineage-store.ts';
import type { LineageStores } from './store/lineage-stores.ts';
import { snapshotsToThin } from './thinning.ts';
import { type VerifyResult, verifyTree } from './verify/verify-tree.ts';

const HOUR_MS = 3_600_000;
/** A supervisor that never lives for an hour must not leave it undone. */
const FIRST_MS = 120_000;
const COUNTS_APART_MS = 10_000;

export interface SnapshotMaintenanceOptions {
  readonly snapshots: Snapshots;
  readonly sessions: Sessions;
  readonly stores: LineageStores;
  readonly operations: Operations;
  readonly leasedRoots: LeasedRoots;
  readonly reserve: DiskReserve;
  /** Takes the row of a snapshot away and tells it. */
  readonly remove: (row: SnapshotRow, why: string) => void;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/** Looks after what snapshots are made of: thins them out with age, gives back what none of them needs, checks them. */
export class SnapshotMaintenance {
  readonly #options: SnapshotMaintenanceOptions;
  /** Which snapshots there were when a lineage was last collected. */
  readonly #collected = new Map<string, string>();
  /** What only the snapshots of each session need, by lineage, and of which snapshots that was said. */
  readonly #counted = new Map<string, { readonly of: string; readonly bytes: ReadonlyMap<string, number> }>();
  /** When that was last begun because somebody asked, by lineage. */
  readonly #askedAt = new Map<string, number>();
  readonly #ending = new AbortController();
  #tick: NodeJS.Timeout | null = null;
  #first: NodeJS.Timeout | null = null;
  #work: Promise<unknown> = Promise.resolve();

  constructor(options: SnapshotMaintenanceOptions) {
    this.#options = options;
  }

  start(): void {
    const look = (): void => void this.#inTurn(() => this.#hourly());
    this.#first = setTimeout(look, FIRST_MS).unref();
    this.#tick = setInterval(look, HOUR_MS).unref();
  }

  async close(): Promise<void> {
    if (this.#tick !== null) clearInterval(this.#tick);
    if (this.#first !== null) clearTimeout(this.#first);
    this.#ending.abort(new HoldfastError('shutting_down', 'The supervisor is leaving'));
    await this.#work;
  }

  /** Takes away the snapshots that are too many for their age. */
  thin(): void {
    const { snapshots, sessions, remove, log, now } = this.#options;
    const ids = new Set(
      snapshots
        .listLineages()
        .flatMap((one) => snapshots.listByLineage(one).map(({ sessionId }) => sessionId)),
    );
    for (const sessionId of ids) {
      const rows = snapshots.listBySession(sessionId);
      const bases = new Set(rows.map(({ id }) => id).filter((id) => sessions.listByOrigin(id).length > 0));
      const byId = new Map(rows.map((row) => [row.id, row]));
      for (const { id } of snapshotsToThin(rows, bases, now())) {
        const row = byId.get(id);
        try {
          if (row !== undefined) remove(row, 'thinned out');
        } catch (error) {
          log.warn('a snapshot was not thinned out', { snapshot: id, error });
        }
      }
    }
  }

  /** What no snapshot needs, by lineage; with `dryRun` it stays. A lineage that fails is logged and left out. */
  async collect(dryRun: boolean): Promise<Garbage[]> {
    const { log } = this.#options;
    if (!dryRun) this.thin();
    const found: Garbage[] = [];
    for (const lineage of this.#options.snapshots.listLineages()) {
      try {
        const { freedBytes } = await this.#inTurn(() => this.#collectOne(lineage, dryRun));
        if (freedBytes <= 0) continue;
        const why = 'no snapshot of the session or its forks needs it';
        found.push({ kind: 'snapshots', name: lineage, why, bytes: freedBytes });
      } catch (error) {
        const { code, sentence: why } = HoldfastError.from(error);
        log.warn('what no snapshot needs stays', { lineage, code, why });
      }
    }
    return found;
  }

  /** Reads and checks every object that a snapshot needs, from the disk. What is damaged is not relied on any more. */
  async verify({ lineage, root }: SnapshotRow, signal?: AbortSignal): Promise<VerifyResult> {
    return await this.#options.stores.use(lineage, async (used) => {
      const store = await LineageStore.open(used.directory);
      try {
        const verified = await verifyTree(store, parseHash(root), signal);
        await used.markSuspect(verified.damages.flatMap(({ pack }) => pack ?? []));
        return verified;
      } finally {
        await store.close();
      }
    });
  }

  /**
   * What the snapshots of a session take. What only they need is known at once where the session has no forks; else all trees have
   * to be gone through, which begins when somebody asks, and with `gc`: whoever asks again later is told.
   */
  async usage(session: SessionRow): Promise<SnapshotUsage> {
    const { snapshots, stores } = this.#options;
    const rows = snapshots.listByLineage(session.lineage);
    const mine = rows.filter(({ sessionId }) => sessionId === session.id).length;
    const bytes = await stores.use(session.lineage, (store) => Promise.resolve(store.bytes));
    const counted = this.#counted.get(session.lineage);
    const unique =
      mine === rows.length
        ? bytes
        : counted?.of === namesOf(rows)
          ? (counted.bytes.get(session.id) ?? 0)
          : null;
    if (unique === null && mine > 0) this.#countSoon(session.lineage);
    return { snapshots: mine, bytes, uniqueBytes: mine === 0 ? 0 : unique };
  }

  /** The files of a snapshot; they stay there until `act` has ended. */
  async withFiles<T>({ lineage, root }: SnapshotRow, act: (files: SnapshotFiles) => Promise<T>): Promise<T> {
    return await this.#options.stores.use(lineage, (store) => act(new SnapshotFiles(store, parseHash(root))));
  }

  async #hourly(): Promise<void> {
    const { snapshots, log } = this.#options;
    try {
      this.thin();
      for (const lineage of snapshots.listLineages()) {
        const there = namesOf(snapshots.listByLineage(lineage));
        if (this.#collected.get(lineage) === there) continue;
        await this.#collectOne(lineage, false);
        this.#collected.set(lineage, there);
      }
    } catch (error) {
      if (!this.#ending.signal.aborted) log.warn('snapshots were not looked after', { error });
    }
  }

  async #collectOne(lineage: string, dryRun: boolean): Promise<CollectionResult> {
    const { stores, reserve } = this.#options;
    const options: CollectOptions = {
      stores,
      lineage,
      roots: () => this.#roots(lineage),
      signal: this.#ending.signal,
      urgently: (write) => reserve.retryOnFullDisk(write),
    };
    if (dryRun) return await planLineageCollection(options);
    try {
      const collected = await collectLineage(options);
      await this.#count(lineage);
      return collected;
    } finally {
      reserve.ensure();
    }
  }

  /** Who looks at a lineage all the time does not have it counted all the time. */
  #countSoon(lineage: string): void {
    const { now, log } = this.#options;
    if (now() - (this.#askedAt.get(lineage) ?? -Infinity) < COUNTS_APART_MS) return;
    this.#askedAt.set(lineage, now());
    this.#inTurn(() => this.#count(lineage)).catch((error: unknown) => {
      if (!this.#ending.signal.aborted)
        log.warn('the space that snapshots take was not counted', { lineage, error });
    });
  }

  async #count(lineage: string): Promise<void> {
    const { snapshots, stores } = this.#options;
    const rows = snapshots.listByLineage(lineage);
    const sessions = [...new Set(rows.map(({ sessionId }) => sessionId))];
    if (sessions.length < 2) return;
    const bytes = new Map<string, number>();
    const slices = new TimeSlice(this.#ending.signal);
    await stores.use(lineage, async (store) => {
      for (const id of sessions) {
        const mine = rows.filter(({ sessionId }) => sessionId === id);
        const others = rows.filter(({ sessionId }) => sessionId !== id);
        bytes.set(id, await uniqueBytes(store, rootsOf(mine), rootsOf(others), slices));
      }
    });
    this.#counted.set(lineage, { of: namesOf(rows), bytes });
  }

  /** Trees of snapshots, those that a restore is to bring back, and those that somebody looks at. */
  #roots(lineage: string): Hash[] {
    const { snapshots, operations, sessions, leasedRoots } = this.#options;
    const intended = operations
      .pending()
      .filter(({ sessionId }) => sessionId !== null && sessions.get(sessionId)?.lineage === lineage)
      .flatMap(({ data }) => {
        const root = RootHashSchema.safeParse(data['root']);
        return root.success ? [root.data] : [];
      });
    const hashes = new Set([...snapshots.listByLineage(lineage).map(({ root }) => root), ...intended]);
    return [...[...hashes].map(parseHash), ...leasedRoots.listByLineage(lineage)];
  }

  /** One after the other, so that lineages are not collected twice at once. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#work.then(work);
    this.#work = mine.catch(() => undefined);
    return mine;
  }
}

function namesOf(rows: readonly SnapshotRow[]): string {
  return rows.map(({ id }) => id).join();
}

function rootsOf(rows: readonly SnapshotRow[]): Hash[] {
  return rows.map(({ root }) => parseHash(root));
}
