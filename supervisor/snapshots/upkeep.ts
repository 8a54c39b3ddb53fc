import { RootHashSchema } from '../../snapshot-format/wire.ts';
import { type Hash, parseHash } from '../../snapshot-format/objects.ts';
import type { SnapshotUsage } from '../../protocol/snapshots.ts';
import type { Garbage } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../daemon/logs.ts';
import type { Operations } from '../store/operations.ts';
import type { Reserve } from '../store/reserve.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import {
  type CollectOptions,
  collectLineage,
  type LineageCollected,
  plannedFor,
} from './gc/collect-lineage.ts';
import { SnapshotFiles } from './files/snapshot-files.ts';
import { uniqueBytes } from './gc/unique-bytes.ts';
import type { HeldRoots } from './held-roots.ts';
import { Slices } from '../../protocol/slices.ts';
import { LineageStore } from './store/lineage-store.ts';
import type { LineageStores } from './store/stores.ts';
import { thinned } from './thinning.ts';
import { type Verified, verifyTree } from './verify/verify-tree.ts';

const HOUR_MS = 3_600_000;
/** A supervisor that never lives for an hour must not leave it undone. */
const FIRST_MS = 120_000;
const COUNTS_APART_MS = 10_000;

export interface SnapshotUpkeepOptions {
  readonly snapshots: Snapshots;
  readonly sessions: Sessions;
  readonly stores: LineageStores;
  readonly operations: Operations;
  readonly held: HeldRoots;
  readonly reserve: Reserve;
  /** Takes the row of a snapshot away and tells it. */
  readonly remove: (row: SnapshotRow, why: string) => void;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/** Looks after what snapshots are made of: thins them out with age, gives back what none of them needs, checks them. */
export class SnapshotUpkeep {
  readonly #options: SnapshotUpkeepOptions;
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

  constructor(options: SnapshotUpkeepOptions) {
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
      snapshots.lineages().flatMap((one) => snapshots.ofLineage(one).map(({ sessionId }) => sessionId)),
    );
    for (const sessionId of ids) {
      const rows = snapshots.ofSession(sessionId);
      const bases = new Set(rows.map(({ id }) => id).filter((id) => sessions.begunWith(id).length > 0));
      const byId = new Map(rows.map((row) => [row.id, row]));
      for (const { id } of thinned(rows, bases, now())) {
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
    for (const lineage of this.#options.snapshots.lineages()) {
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
  async verify({ lineage, root }: SnapshotRow, signal?: AbortSignal): Promise<Verified> {
    return await this.#options.stores.use(lineage, async (used) => {
      const store = await LineageStore.open(used.directory);
      try {
        const verified = await verifyTree(store, parseHash(root), signal);
        await used.doubt(verified.damages.flatMap(({ pack }) => pack ?? []));
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
    const rows = snapshots.ofLineage(session.lineage);
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
      for (const lineage of snapshots.lineages()) {
        const there = namesOf(snapshots.ofLineage(lineage));
        if (this.#collected.get(lineage) === there) continue;
        await this.#collectOne(lineage, false);
        this.#collected.set(lineage, there);
      }
    } catch (error) {
      if (!this.#ending.signal.aborted) log.warn('snapshots were not looked after', { error });
    }
  }

  async #collectOne(lineage: string, dryRun: boolean): Promise<LineageCollected> {
    const { stores, reserve } = this.#options;
    const options: CollectOptions = {
      stores,
      lineage,
      roots: () => this.#roots(lineage),
      signal: this.#ending.signal,
      urgently: (write) => reserve.urgently(write),
    };
    if (dryRun) return await plannedFor(options);
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
    const rows = snapshots.ofLineage(lineage);
    const sessions = [...new Set(rows.map(({ sessionId }) => sessionId))];
    if (sessions.length < 2) return;
    const bytes = new Map<string, number>();
    const slices = new Slices(this.#ending.signal);
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
    const { snapshots, operations, sessions, held } = this.#options;
    const intended = operations
      .pending()
      .filter(({ sessionId }) => sessionId !== null && sessions.get(sessionId)?.lineage === lineage)
      .flatMap(({ data }) => {
        const root = RootHashSchema.safeParse(data['root']);
        return root.success ? [root.data] : [];
      });
    const hashes = new Set([...snapshots.ofLineage(lineage).map(({ root }) => root), ...intended]);
    return [...[...hashes].map(parseHash), ...held.of(lineage)];
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
