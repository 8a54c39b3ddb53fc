import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath, parsePath } from '../../protocol/paths.ts';
import {
  type Caveat,
  type Change,
  type ChangeTotals,
  DIFF_LIMITS,
  type ResumeSource,
} from '../../protocol/snapshots.ts';
import { parseRoot } from '../../snapshot-format/entries.ts';
import {
  type Hash,
  hashOf,
  OBJECT_KINDS,
  type ObjectKind,
  type ObjectReader,
  parseHash,
} from '../../snapshot-format/objects.ts';
import type { ScanResult } from '../../snapshot-format/sidecar-calls.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import type { SeedItem } from '../profiles/seed-source.ts';
import { snapshotCaveats, workspaceCaveats } from './compare/caveats.ts';
import { Comparison, NO_CHANGES } from './compare/comparison.ts';
import { readDiffCursor, writeDiffCursor } from './compare/diff-cursor.ts';
import type { PathSegments } from './compare/differences.ts';
import { seedTree } from './compare/seed-tree.ts';
import type { SnapshotCallOptions } from './connection.ts';
import type { LeasedRoots } from './leased-roots.ts';
import { PatchStream } from './patch/patch-stream.ts';
import type { LineageStore } from './store/lineage-store.ts';
import type { LineageStores } from './store/lineage-stores.ts';
import type { SnapshotCreation } from './snapshot-creation.ts';

/** How many comparisons are cached for their next page, and patches for their next chunk. */
const CACHE_SIZES = { comparisons: 4, patches: 4 } as const;
/** A patch whose next chunk is not requested for this long is closed. */
const PATCH_IDLE_TIMEOUT_MS = 60_000;

/** `now`: the current workspace. `clean`: the workspace as it was created. */
type Side = SnapshotRow | 'now' | 'clean';

export interface ComparedSides {
  readonly lineage: string;
  /** The session whose workspace is `now`. */
  readonly sessionId: string | null;
  readonly a: Side;
  readonly b: Side;
}

export interface ComparisonsOptions {
  readonly stores: LineageStores;
  readonly snapshotCreation: SnapshotCreation;
  readonly leasedRoots: LeasedRoots;
  /** Errors: `not_found`. */
  readonly findSnapshot: (id: string, session?: string) => SnapshotRow;
  readonly findSession: (reference: string) => SessionRow;
  /** The files that the session's workspace was created with; null for none. */
  readonly seedOf: (session: SessionRow) => AsyncIterable<SeedItem> | null;
  /** Path of the worker program that compares lines. */
  readonly lineWorker: string;
}

export interface CompareRequest {
  readonly a: string;
  readonly b: string;
  readonly session?: string | undefined;
  readonly path?: string | undefined;
  readonly cursor?: string | undefined;
  readonly limit?: number | undefined;
}

export interface PreviewRequest extends Omit<CompareRequest, 'a' | 'b'> {
  readonly session: string;
  readonly from: ResumeSource;
}

export interface ChangesPage {
  readonly changes: Change[];
  readonly totals: ChangeTotals;
  readonly nextCursor: string | null;
  readonly caveats: Caveat[];
}

interface CachedComparison {
  readonly comparison: Comparison;
  readonly reader: BorrowedReader;
}

interface OpenPatch {
  readonly stream: PatchStream;
  readonly reader: BorrowedReader;
}

interface CachedPatch extends OpenPatch {
  readonly idle: NodeJS.Timeout;
}

export interface PatchAnswer {
  readonly bytes: Buffer;
  readonly nextCursor: string | null;
  readonly omitted: number;
  readonly omittedPaths: string[];
  readonly caveats: Caveat[];
}

/** Compares snapshots with each other and with current workspaces. */
export class Comparisons {
  readonly #options: ComparisonsOptions;
  readonly #comparisons = new Map<string, CachedComparison>();
  /** Open patches by the cursor of their next chunk. */
  readonly #patches = new Map<string, CachedPatch>();
  #serial = 0;

  constructor(options: ComparisonsOptions) {
    this.#options = options;
  }

  async diff(request: CompareRequest, options: SnapshotCallOptions): Promise<ChangesPage> {
    return await this.#page(this.#sides(request), request, options);
  }

  /** The changes that a resume or restore would make to the current workspace. */
  async preview(request: PreviewRequest, options: SnapshotCallOptions): Promise<ChangesPage> {
    const { from } = request;
    const session = this.#options.findSession(request.session);
    const { lineage, id: sessionId } = session;
    switch (from) {
      case 'files':
        return { changes: [], totals: NO_CHANGES, nextCursor: null, caveats: [] };
      case 'memory':
      case 'clean':
        return await this.#page({ lineage, sessionId, a: 'now', b: 'clean' }, request, options);
      default: {
        const b = this.#options.findSnapshot(from.slice('snapshot:'.length), session.id);
        return await this.#page({ lineage, sessionId, a: 'now', b }, request, options);
      }
    }
  }

  /** The next chunk of a patch. */
  async patch(request: CompareRequest, options: SnapshotCallOptions): Promise<PatchAnswer> {
    const sides = this.#sides(request);
    return await this.#compare(sides, request, options, async (cached, trees, store, now) => {
      const patch = this.#openPatch(request.cursor, cached, trees);
      patch.reader.store = store;
      let isCached = false;
      try {
        const { bytes, resumeAfter, isCut, isLast, omitted, omittedPaths } = await patch.stream.next();
        const caveats = caveatsOfSides(sides, now);
        const answer = { bytes, omitted, omittedPaths: omittedPaths.map(formatPath), caveats };
        if (isLast) return { ...answer, nextCursor: null };
        this.#serial += 1;
        const { before, after } = trees;
        const callerState = `${isCut ? CUT : WHOLE}${this.#serial}`;
        const nextCursor = writeDiffCursor({ before, after, callerState, resumeAfter: resumeAfter ?? [] });
        this.#cachePatch(nextCursor, patch);
        isCached = true;
        return { ...answer, nextCursor };
      } finally {
        if (!isCached) await patch.stream.close();
      }
    });
  }

  /** The patch that the cursor continues. If it is no longer open and the cursor is between two files, a new one. */
  #openPatch(cursor: string | undefined, { comparison, reader }: CachedComparison, trees: Trees): OpenPatch {
    const previous = cursor === undefined ? undefined : this.#patches.get(cursor);
    if (cursor !== undefined && previous !== undefined) {
      clearTimeout(previous.idle);
      this.#patches.delete(cursor);
      return previous;
    }
    if (trees.callerState.startsWith(CUT)) {
      throw new HoldfastError('conflict', 'The patch cannot be continued', {
        why: 'the supervisor has closed it, and the cursor is in the middle of a file',
        next: 'request the patch again from the beginning',
      });
    }
    return {
      stream: new PatchStream(comparison, reader, trees.resumeAfter, this.#options.lineWorker),
      reader,
    };
  }

  async close(): Promise<void> {
    const all = [...this.#patches.values()];
    this.#patches.clear();
    for (const { stream, idle } of all) {
      clearTimeout(idle);
      await stream.close();
    }
  }

  #sides({ a, b, session }: CompareRequest): ComparedSides {
    const { findSnapshot, findSession } = this.#options;
    const find = (id: string): SnapshotRow | 'now' => (id === 'now' ? 'now' : findSnapshot(id, session));
    const sides = { a: find(a), b: find(b) };
    const row = sides.a === 'now' ? sides.b : sides.a;
    if (sides.a !== 'now' && sides.b !== 'now' && sides.a.lineage !== sides.b.lineage) {
      throw new HoldfastError('invalid_params', `${a} and ${b} cannot be compared`, {
        why: 'their sessions are not forks of each other',
      });
    }
    if (session === undefined && row === 'now') {
      throw new HoldfastError('invalid_params', '`now` needs a session', {
        why: 'both sides are the current workspace, and no session is named',
        next: 'name the session',
      });
    }
    const owner = session === undefined ? (row === 'now' ? null : row.sessionId) : findSession(session).id;
    const lineage = row === 'now' ? findSession(owner ?? '').lineage : row.lineage;
    return { lineage, sessionId: owner, ...sides };
  }

  async #page(
    sides: ComparedSides,
    request: Omit<CompareRequest, 'a' | 'b'>,
    options: SnapshotCallOptions,
  ): Promise<ChangesPage> {
    return await this.#compare(sides, request, options, async ({ comparison }, trees, _store, now) => {
      const limit = request.limit ?? DIFF_LIMITS.default;
      const { changes, next } = await comparison.page(trees.resumeAfter, limit, options.signal);
      const { before, after } = trees;
      return {
        changes,
        totals: comparison.totals,
        nextCursor:
          next === null ? null : writeDiffCursor({ before, after, resumeAfter: next, callerState: '' }),
        caveats: caveatsOfSides(sides, now),
      };
    });
  }

  /** Finds the two trees, by a scan or from the cursor, and compares them. */
  async #compare<T>(
    sides: ComparedSides,
    { path, cursor }: Pick<CompareRequest, 'path' | 'cursor'>,
    options: SnapshotCallOptions,
    act: (cached: CachedComparison, trees: Trees, store: LineageStore, now: ScanResult | null) => Promise<T>,
  ): Promise<T> {
    const { stores, snapshotCreation, leasedRoots } = this.#options;
    const { lineage, sessionId, a, b } = sides;
    const names = path === undefined ? [] : parsePath(path);
    const previous = cursor === undefined ? null : readDiffCursor(cursor);
    const isNow = a === 'now' || b === 'now';
    const rootOf = (side: Side, now: Hash | null): Hash | null =>
      side === 'now' ? now : side === 'clean' ? null : parseHash(side.root);

    const during = async (store: LineageStore, now: Hash | null, scan: ScanResult | null): Promise<T> => {
      const overlay = new Map<string, Buffer>();
      const clean = async (): Promise<Hash> => {
        if (previous !== null && this.#comparisons.has(keyOf({ lineage, ...previous, names })))
          return previous.after;
        const top = parseRoot(await store.read(now ?? Buffer.alloc(0), OBJECT_KINDS.root));
        const sink = (kind: ObjectKind, body: Buffer): Hash => {
          const hash = hashOf(kind, body);
          overlay.set(hash.toString('hex'), body);
          return hash;
        };
        const items = sessionId === null ? null : this.#options.seedOf(this.#options.findSession(sessionId));
        return await seedTree(items, top, { reader: store, sink, signal: options.signal });
      };
      const before = rootOf(a, now) ?? (await clean());
      const after = rootOf(b, now) ?? (await clean());
      if (previous !== null && !(previous.before.equals(before) && previous.after.equals(after)))
        throw comparisonExpired();
      for (const root of isNow ? [now] : []) if (root !== null) leasedRoots.lease(lineage, root);
      const cached = await this.#comparison(
        store,
        overlay,
        // The tree of a clean workspace has no file contents to search for edited renames.
        { lineage, before, after, names, findEdited: a !== 'clean' && b !== 'clean' },
        options.signal,
      );
      const resumeAfter = previous?.resumeAfter ?? null;
      const isInside = resumeAfter !== null && names.every((name, index) => resumeAfter[index]?.equals(name));
      return await act(
        cached,
        {
          before,
          after,
          resumeAfter: isInside ? resumeAfter : null,
          callerState: previous?.callerState ?? '',
        },
        store,
        scan,
      );
    };

    // A later page uses the tree that the first page scanned.
    if (previous !== null || !isNow) {
      return await stores.use(lineage, async (store) => {
        const now = previous === null ? null : a === 'now' ? previous.before : previous.after;
        if (isNow && now !== null && store.find(now) === null) throw comparisonExpired();
        return await during(store, isNow ? now : null, null);
      });
    }
    return await snapshotCreation.withCurrentTree(
      sessionId ?? '',
      (store, scan) => during(store, parseHash(scan.root), scan),
      options,
    );
  }

  async #comparison(
    store: LineageStore,
    overlay: ReadonlyMap<string, Buffer>,
    { lineage, before, after, names, findEdited }: ComparisonKey,
    signal: AbortSignal | undefined,
  ): Promise<CachedComparison> {
    const key = keyOf({ lineage, before, after, names });
    const previous = this.#comparisons.get(key);
    this.#comparisons.delete(key);
    const reader = previous?.reader ?? new BorrowedReader(overlay);
    reader.store = store;
    const comparison =
      previous?.comparison ??
      (await Comparison.create(reader, { before, after, path: names, signal, findEdited }));
    const cached = { comparison, reader };
    this.#comparisons.set(key, cached);
    for (const oldest of this.#comparisons.keys()) {
      if (this.#comparisons.size <= CACHE_SIZES.comparisons) break;
      this.#comparisons.delete(oldest);
    }
    return cached;
  }

  #cachePatch(cursor: string, { stream, reader }: OpenPatch): void {
    const end = (key: string): void => {
      const patch = this.#patches.get(key);
      if (patch === undefined) return;
      this.#patches.delete(key);
      clearTimeout(patch.idle);
      void patch.stream.close();
    };
    const idle = setTimeout(() => end(cursor), PATCH_IDLE_TIMEOUT_MS).unref();
    this.#patches.set(cursor, { stream, reader, idle });
    for (const oldest of this.#patches.keys()) {
      if (this.#patches.size <= CACHE_SIZES.patches) break;
      end(oldest);
    }
  }
}

/** `now`: the scan of the workspace, on the first page only. */
function caveatsOfSides({ a, b }: ComparedSides, now: ScanResult | null): Caveat[] {
  const caveats = (name: Caveat['side'], side: Side): Caveat[] => {
    if (side === 'clean') return [];
    if (side !== 'now') return snapshotCaveats(name, side);
    return now === null ? [] : workspaceCaveats(name, now);
  };
  return [...caveats('a', a), ...caveats('b', b)];
}

interface ComparisonKey {
  readonly lineage: string;
  readonly before: Hash;
  readonly after: Hash;
  readonly names: PathSegments;
  readonly findEdited: boolean;
}

function keyOf({ lineage, before, after, names }: Omit<ComparisonKey, 'findEdited'>): string {
  return [lineage, before.toString('hex'), after.toString('hex'), formatPath(names)].join(' ');
}

interface Trees {
  readonly before: Hash;
  readonly after: Hash;
  readonly resumeAfter: PathSegments | null;
  readonly callerState: string;
}

/** How the cursor of a patch says whether it is in the middle of a file or between two files. */
const CUT = 'c';
const WHOLE = 'w';

function comparisonExpired(): HoldfastError {
  return new HoldfastError('conflict', 'The comparison cannot be continued', {
    why: 'the tree of the workspace that it compared is no longer stored',
    next: 'request the comparison again from the beginning',
  });
}

/** The reader of a cached comparison. Each request lends it the store that the request has locked. */
class BorrowedReader implements ObjectReader {
  store: ObjectReader | null = null;
  readonly #overlay: ReadonlyMap<string, Buffer>;

  constructor(overlay: ReadonlyMap<string, Buffer> = new Map()) {
    this.#overlay = overlay;
  }

  read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    const own = this.#overlay.size === 0 ? undefined : this.#overlay.get(hash.toString('hex'));
    if (own !== undefined) return Promise.resolve(own);
    if (this.store === null)
      throw new HoldfastError('internal', 'A cached comparison was read outside a request');
    return this.store.read(hash, kind);
  }
}
