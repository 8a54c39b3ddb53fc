import { createHash } from 'node:crypto';
import { BUNDLE_CHUNK_BYTES } from '../../protocol/bundles.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Home } from '../store/home.ts';
import type { ReviewCommentRows } from '../store/review-comments.ts';
import type { ReviewRow, ReviewRows } from '../store/reviews.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { Checkpoints } from '../history/checkpoints.ts';
import type { Contents } from '../history/contents.ts';
import type { EventLog } from '../history/event-log.ts';
import type { HostKey } from '../manifests/host-key.ts';
import type { BaseTrees } from '../snapshots/base-trees.ts';
import type { LineageStore } from '../snapshots/store/lineage-store.ts';
import type { LineageStores } from '../snapshots/store/lineage-stores.ts';
import type { BundleReview, BundleSession, BundleSnapshot } from './bundle-format.ts';
import { type BundlePlan, BundleWriter } from './bundle-writer.ts';

/** An export holds up whatever removes objects of its lineage. */
const MOST_MS = 15 * 60_000;

export interface BundleExportsOptions {
  readonly home: Pick<Home, 'id'>;
  readonly stores: LineageStores;
  readonly snapshots: Pick<Snapshots, 'get'>;
  readonly reviewRows: Pick<ReviewRows, 'findOpen' | 'newestEnded' | 'decisions'>;
  readonly commentRows: Pick<ReviewCommentRows, 'list'>;
  readonly events: Pick<EventLog, 'read' | 'head'>;
  readonly contents: Pick<Contents, 'read'>;
  readonly checkpoints: Pick<Checkpoints, 'verify' | 'envelope'>;
  readonly baseTrees: Pick<BaseTrees, 'find'>;
  /** ms since 1970. */
  readonly now: () => number;
}

/** What is exported. `isNow`: the session as it is, with its review; otherwise the history ends with the snapshot. */
export interface ExportRequest {
  readonly session: SessionRow;
  readonly snapshot: SnapshotRow;
  readonly isNow: boolean;
}

/** Begins exports of sessions. */
export class BundleExports {
  readonly #options: BundleExportsOptions;

  constructor(options: BundleExportsOptions) {
    this.#options = options;
  }

  /** The caller ends it with `close`. `onEnd` gets the SHA-256 of all bytes before the last ones are read. Errors: those of `BundleWriter`. */
  async begin(
    request: ExportRequest,
    key: HostKey,
    onEnd: (sha256: string) => void = () => undefined,
  ): Promise<BundleExport> {
    const controller = new AbortController();
    const writer = new BundleWriter({ ...this.#options, key });
    const plan = await writer.measure(this.#plan(request, key), controller.signal);
    const { store, release } = await holdStore(this.#options.stores, request.snapshot.lineage);
    return new BundleExport(hashed(writer.write(plan, store, controller.signal), onEnd), () => {
      controller.abort(new HoldfastError('cancelled', 'The export was cancelled'));
      release();
    });
  }

  #plan({ session, snapshot, isNow }: ExportRequest, key: HostKey): BundlePlan {
    const { home, snapshots, reviewRows, commentRows, events, baseTrees, now } = this.#options;
    const open = isNow ? reviewRows.findOpen(session.id) : null;
    const ended = isNow ? reviewRows.newestEnded(session.id) : null;
    const reviews = [open, ended].flatMap((row) => {
      const target = row === null ? null : snapshots.get(row.targetSnapshot);
      return row === null || target === null ? [] : [{ row, target }];
    });
    const bases = reviews.flatMap(({ row }) => {
      const base = row.baseSnapshot === null ? null : snapshots.get(row.baseSnapshot);
      return base === null ? [] : [base];
    });
    const rows = [snapshot, ...reviews.map(({ target }) => target), ...bases];
    const base = baseTrees.find(session);
    const { id, name, profile, tags, pinned, starred } = session;
    const facts: BundleSession = {
      madeAt: now(),
      session: { id, name, profile, tags: [...tags], pinned, starred },
      snapshot: snapshot.id,
      snapshots: [...new Map(rows.map((row) => [row.id, toSnapshot(row)])).values()],
      base: base?.isExact === true ? { root: base.root, origin: base.origin, folder: base.folder } : null,
      reviews: reviews.map(({ row }) => this.#review(row)),
      comments: !isNow
        ? []
        : commentRows.list(id).map(({ id: _, sessionId: __, batch: ___, quote, ...comment }) => ({
            ...comment,
            quote: Buffer.from(quote).toString('base64'),
          })),
    };
    const lastSeq = isNow ? events.head(id).seq : snapshot.eventSeq;
    const checkpoint = this.#checkpoint(id, lastSeq);
    return {
      head: { format: 1, home: home.id, publicKey: key.publicKey },
      session: checkpoint === null ? facts : { ...facts, checkpoint },
      lastSeq,
    };
  }

  /** That of a history that was cut; null if it begins later, or if another key signed it: nobody there could verify it. */
  #checkpoint(sessionId: string, lastSeq: number): string | null {
    const { checkpoints } = this.#options;
    const found = checkpoints.verify(sessionId);
    return found?.valid === true && found.seq <= lastSeq ? checkpoints.envelope(sessionId) : null;
  }

  #review({ sessionId: _, lineage: __, ...row }: ReviewRow): BundleReview {
    return { ...row, decisions: this.#options.reviewRows.decisions(row.id).map((one) => ({ ...one })) };
  }
}

/** A bundle that is being read. Nothing that it needs is removed until it is closed. */
export class BundleExport {
  readonly #bytes: AsyncIterator<Buffer>;
  readonly #release: () => void;
  #rest: Buffer[] = [];
  #length = 0;
  #ended = false;
  /** What was read last, for a client that may not have received it. */
  #last: { readonly bytes: Buffer; readonly end: boolean } | null = null;
  /** Bytes before `#last`. */
  #before = 0;
  #isRewound = false;
  #failure: HoldfastError | null = null;
  readonly #deadline: NodeJS.Timeout;

  /** `release` lets go of what it holds, `most` ms after the beginning at the latest: a slow client would stop collection with it. */
  constructor(bytes: AsyncIterable<Buffer>, release: () => void, most = MOST_MS) {
    this.#bytes = bytes[Symbol.asyncIterator]();
    this.#release = release;
    this.#deadline = setTimeout(() => this.#expire(most), most).unref();
  }

  /** The next bytes; fewer than BUNDLE_CHUNK_BYTES only at the end. */
  async read(): Promise<{ bytes: Buffer; end: boolean }> {
    if (this.#isRewound && this.#last !== null) {
      this.#isRewound = false;
      return this.#last;
    }
    while (!this.#ended && this.#length < BUNDLE_CHUNK_BYTES) {
      const next = await this.#next();
      this.#ended = next.done === true;
      if (next.done === true) break;
      this.#rest.push(next.value);
      this.#length += next.value.length;
    }
    const all = Buffer.concat(this.#rest);
    const bytes = all.subarray(0, BUNDLE_CHUNK_BYTES);
    this.#rest = all.length > bytes.length ? [all.subarray(bytes.length)] : [];
    this.#length = all.length - bytes.length;
    this.#before += this.#last?.bytes.length ?? 0;
    this.#last = { bytes, end: this.#ended && this.#length === 0 };
    return this.#last;
  }

  /** The next read returns what the last one did. Returns how many bytes lie before that. */
  rewind(): number {
    this.#isRewound = this.#last !== null;
    return this.#before;
  }

  async #next(): Promise<IteratorResult<Buffer>> {
    try {
      if (this.#failure === null) return await this.#bytes.next();
    } catch (error) {
      throw this.#failure ?? error;
    }
    throw this.#failure;
  }

  #expire(most: number): void {
    this.#failure = new HoldfastError('timeout', 'The session was not exported', {
      why: `it was not read within ${Math.round(most / 60_000)} minutes`,
      next: 'export it to a disk of the machine that has it, and copy the file from there',
    });
    this.#release();
  }

  async close(): Promise<void> {
    clearTimeout(this.#deadline);
    this.#release();
    await this.#bytes.return?.().catch(() => undefined);
  }
}

async function* hashed(
  parts: AsyncIterable<Buffer>,
  onEnd: (sha256: string) => void,
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  for await (const part of parts) {
    hash.update(part);
    yield part;
  }
  onEnd(hash.digest('hex'));
}

function toSnapshot(row: SnapshotRow): BundleSnapshot {
  const { id, createdAt, reason, label, root, stateRoot, files, directories } = row;
  const { bytes, eventSeq, duringTurn, missing, missingPaths } = row;
  return {
    ...{ id, createdAt, reason, label, root, stateRoot, files, directories },
    ...{ bytes, eventSeq, duringTurn, missing, missingPaths },
  };
}

/** Takes the shared lock of a lineage until `release`. */
export async function holdStore(
  stores: LineageStores,
  lineage: string,
): Promise<{ readonly store: LineageStore; readonly release: () => void; readonly released: Promise<void> }> {
  const held = Promise.withResolvers<null>();
  const opened = Promise.withResolvers<LineageStore>();
  const released = stores.use(lineage, async (store) => {
    opened.resolve(store);
    await held.promise;
  });
  released.catch((error: unknown) => opened.reject(error));
  return { store: await opened.promise, release: () => held.resolve(null), released };
}
