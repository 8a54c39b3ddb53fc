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

/** Comparisons that are kept for their next page, and patches that are kept for their next piece. */
const KEPT = { comparisons: 4, patches: 4 } as const;
/** A patch that nobody goes on with is ended. */
const PATCH_IDLE_MS = 60_000;

/** `now`: the workspace as it is. `clean`: as it begins. */
type Side = SnapshotRow | 'now' | 'clean';

export interface ComparedSides {
  readonly lineage: string;
  /** Whose workspace `now` is. */
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
  /** What the workspace of a session begins with; null for nothing. */
  readonly seedOf: (session: SessionRow) => AsyncIterable<SeedItem> | null;
  /** The file of the thread that compares lines. */
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

interface KeptComparison {
  readonly comparison: Comparison;
  readonly reader: BorrowedReader;
}

interface OpenPatch {
  readonly stream: PatchStream;
  readonly reader: BorrowedReader;
}

interface KeptPatch extends OpenPatch {
  readonly idle: NodeJS.Timeout;
}

export interface PatchAnswer {
  readonly bytes: Buffer;
  readonly nextCursor: string | null;
  readonly omitted: number;
  readonly omittedPaths: string[];
  readonly caveats: Caveat[];
}

/** Snapshots, and workspaces as they are now, beside each other. */
export class Comparisons {
  readonly #options: ComparisonsOptions;
  readonly #kept = new Map<string, KeptComparison>();
  /** By the cursor that goes on with it. */
  readonly #patches = new Map<string, KeptPatch>();
  #serial = 0;

  constructor(options: ComparisonsOptions) {
    this.#options = options;
  }

  async diff(request: CompareRequest, options: SnapshotCallOptions): Promise<ChangesPage> {
    return await this.#page(this.#sides(request), request, options);
  }

  /** What resuming from there would change, or a restore. Begins with the workspace as it is. */
  async preview(request: PreviewRequest, options: SnapshotCallOptions): Promise<ChangesPage> {
    const { from } = request;
    const session = this.#options.findSession(request.session);
    const { lineage, id: sessionId } = session;
    switch (from) {
      case 'files':
        return { changes: [], totals: NO_CHANGES, nextCursor: null, caveats: [] };
      case 'memory':
        throw new HoldfastError('not_supported', 'Resuming from memory is not in this version', {
          next: 'resume with --from files',
        });
      case 'clean':
        return await this.#page({ lineage, sessionId, a: 'now', b: 'clean' }, request, options);
      default: {
        const b = this.#options.findSnapshot(from.slice('snapshot:'.length), session.id);
        return await this.#page({ lineage, sessionId, a: 'now', b }, request, options);
      }
    }
  }

  /** The next piece of a patch. */
  async patch(request: CompareRequest, options: SnapshotCallOptions): Promise<PatchAnswer> {
    const sides = this.#sides(request);
    return await this.#compared(sides, request, options, async (kept, trees, store, now) => {
      const patch = this.#openPatch(request.cursor, kept, trees);
      patch.reader.store = store;
      let isKept = false;
      try {
        const { bytes, resumeAfter, isCut, isLast, omitted, omittedPaths } = await patch.stream.next();
        const caveats = caveatsOfSides(sides, now);
        const told = { bytes, omitted, omittedPaths: omittedPaths.map(formatPath), caveats };
        if (isLast) return { ...told, nextCursor: null };
        this.#serial += 1;
        const { before, after } = trees;
        const rest = `${isCut ? CUT : WHOLE}${this.#serial}`;
        const nextCursor = writeDiffCursor({
          before,
          after,
          callerState: rest,
          resumeAfter: resumeAfter ?? [],
        });
        this.#keepPatch(nextCursor, patch);
        isKept = true;
        return { ...told, nextCursor };
      } finally {
        if (!isKept) await patch.stream.close();
      }
    });
  }

  /** The one that the cursor goes on with; where that is gone and ended between two files, another. */
  #openPatch(cursor: string | undefined, { comparison, reader }: KeptComparison, trees: Trees): OpenPatch {
    const known = cursor === undefined ? undefined : this.#patches.get(cursor);
    if (cursor !== undefined && known !== undefined) {
      clearTimeout(known.idle);
      this.#patches.delete(cursor);
      return known;
    }
    if (trees.rest.startsWith(CUT)) {
      throw new HoldfastError('conflict', 'The patch cannot be gone on with', {
        why: 'the supervisor does not keep it any more, and it was in the middle of a file',
        next: 'ask for it again from the beginning',
      });
    }
    return { stream: new PatchStream(comparison, reader, trees.behind, this.#options.lineWorker), reader };
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
      throw new HoldfastError('invalid_params', `${a} and ${b} are not compared`, {
        why: 'they are of sessions of which neither was forked from the other',
      });
    }
    if (session === undefined && row === 'now') {
      throw new HoldfastError('invalid_params', 'It is not said which workspace is meant by `now`', {
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
    return await this.#compared(sides, request, options, async ({ comparison }, trees, _store, now) => {
      const limit = request.limit ?? DIFF_LIMITS.default;
      const { changes, next } = await comparison.page(trees.behind, limit, options.signal);
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

  /** Finds the two trees, by looking at the workspace or by the cursor, and compares them. */
  async #compared<T>(
    sides: ComparedSides,
    { path, cursor }: Pick<CompareRequest, 'path' | 'cursor'>,
    options: SnapshotCallOptions,
    act: (kept: KeptComparison, trees: Trees, store: LineageStore, now: ScanResult | null) => Promise<T>,
  ): Promise<T> {
    const { stores, snapshotCreation, leasedRoots } = this.#options;
    const { lineage, sessionId, a, b } = sides;
    const names = path === undefined ? [] : parsePath(path);
    const known = cursor === undefined ? null : readDiffCursor(cursor);
    const isNow = a === 'now' || b === 'now';
    const rootOf = (side: Side, now: Hash | null): Hash | null =>
      side === 'now' ? now : side === 'clean' ? null : parseHash(side.root);

    const during = async (store: LineageStore, now: Hash | null, scan: ScanResult | null): Promise<T> => {
      const overlay = new Map<string, Buffer>();
      const clean = async (): Promise<Hash> => {
        if (known !== null && this.#kept.has(keyOf({ lineage, ...known, names }))) return known.after;
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
      if (known !== null && !(known.before.equals(before) && known.after.equals(after))) throw anew();
      for (const root of isNow ? [now] : []) if (root !== null) leasedRoots.lease(lineage, root);
      const kept = await this.#comparison(
        store,
        overlay,
        // Of a clean workspace the tree is known, and not what its files hold.
        { lineage, before, after, names, findEdited: a !== 'clean' && b !== 'clean' },
        options.signal,
      );
      const behind = known?.resumeAfter ?? null;
      const isInside = behind !== null && names.every((name, index) => behind[index]?.equals(name));
      return await act(
        kept,
        { before, after, behind: isInside ? behind : null, rest: known?.callerState ?? '' },
        store,
        scan,
      );
    };

    // A page that goes on is of the tree that the first one looked at.
    if (known !== null || !isNow) {
      return await stores.use(lineage, async (store) => {
        const now = known === null ? null : a === 'now' ? known.before : known.after;
        if (isNow && now !== null && store.find(now) === null) throw anew();
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
    { lineage, before, after, names, findEdited }: Compared,
    signal: AbortSignal | undefined,
  ): Promise<KeptComparison> {
    const key = keyOf({ lineage, before, after, names });
    const known = this.#kept.get(key);
    this.#kept.delete(key);
    const reader = known?.reader ?? new BorrowedReader(overlay);
    reader.store = store;
    const comparison =
      known?.comparison ??
      (await Comparison.create(reader, { before, after, path: names, signal, findEdited }));
    const kept = { comparison, reader };
    this.#kept.set(key, kept);
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= KEPT.comparisons) break;
      this.#kept.delete(oldest);
    }
    return kept;
  }

  #keepPatch(cursor: string, { stream, reader }: OpenPatch): void {
    const end = (key: string): void => {
      const patch = this.#patches.get(key);
      if (patch === undefined) return;
      this.#patches.delete(key);
      clearTimeout(patch.idle);
      void patch.stream.close();
    };
    const idle = setTimeout(() => end(cursor), PATCH_IDLE_MS).unref();
    this.#patches.set(cursor, { stream, reader, idle });
    for (const oldest of this.#patches.keys()) {
      if (this.#patches.size <= KEPT.patches) break;
      end(oldest);
    }
  }
}

/** `now`: what was found in the workspace, where the first page looked at it. */
function caveatsOfSides({ a, b }: ComparedSides, now: ScanResult | null): Caveat[] {
  const caveats = (name: Caveat['side'], side: Side): Caveat[] => {
    if (side === 'clean') return [];
    if (side !== 'now') return snapshotCaveats(name, side);
    return now === null ? [] : workspaceCaveats(name, now);
  };
  return [...caveats('a', a), ...caveats('b', b)];
}

interface Compared {
  readonly lineage: string;
  readonly before: Hash;
  readonly after: Hash;
  readonly names: PathSegments;
  readonly findEdited: boolean;
}

function keyOf({ lineage, before, after, names }: Omit<Compared, 'findEdited'>): string {
  return [lineage, before.toString('hex'), after.toString('hex'), formatPath(names)].join(' ');
}

interface Trees {
  readonly before: Hash;
  readonly after: Hash;
  readonly behind: PathSegments | null;
  readonly rest: string;
}

/** How the cursor of a patch says whether it ends between two files. */
const CUT = 'c';
const WHOLE = 'w';
function anew(): HoldfastError {
  return new HoldfastError('conflict', 'The comparison cannot be gone on with', {
    why: 'what it compared is not kept any more',
    next: 'ask for it again from the beginning',
  });
}

/** What is kept between two requests reads from the store of the request that is served. */
class BorrowedReader implements ObjectReader {
  store: ObjectReader | null = null;
  readonly #overlay: ReadonlyMap<string, Buffer>;

  constructor(overlay: ReadonlyMap<string, Buffer> = new Map()) {
    this.#overlay = overlay;
  }

  read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    const own = this.#overlay.size === 0 ? undefined : this.#overlay.get(hash.toString('hex'));
    if (own !== undefined) return Promise.resolve(own);
    if (this.store === null) throw new HoldfastError('internal', 'There is no store to read from');
    return this.store.read(hash, kind);
  }
}
