import { createHash } from 'node:crypto';
import { statfs } from 'node:fs/promises';
import { constants, createZstdDecompress } from 'node:zlib';
import { HoldfastError } from '../../protocol/errors.ts';
import { OBJECT_KINDS, parseHash } from '../../snapshot-format/objects.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Ids } from '../base/ids.ts';
import type { Artifacts } from '../history/artifacts.ts';
import { IncomingPacks, MIN_FREE_MIB } from '../snapshots/store/incoming-packs.ts';
import type { LineageStore } from '../snapshots/store/lineage-store.ts';
import type { LineageStores } from '../snapshots/store/lineage-stores.ts';
import type { Home } from '../store/home.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import { holdStore } from './bundle-exports.ts';
import { refusedBundle, rootsOf } from './bundle-format.ts';
import { BundleReader, type ReadBundle } from './bundle-reader.ts';
import type { SessionImport } from './session-import.ts';
import { TarReader } from './tar.ts';

/** The file of a session that holds the contents that came with it. */
const ARTIFACT = 'imported';
/** 2^23 bytes: what a decompression may keep of what it has written. Our own bundles need 2^21. */
const WINDOW_LOG = 23;
/** What is decompressed at once: each of it is a write to the file of the contents. */
const DECOMPRESSED_BYTES = 2 ** 18;
const MIB = 2 ** 20;

export interface BundleImportsOptions {
  readonly home: Pick<Home, 'store'>;
  readonly stores: LineageStores;
  readonly artifacts: Pick<Artifacts, 'append' | 'syncLarge' | 'remove'>;
  readonly sessionImport: SessionImport;
  readonly ids: Ids;
}

export interface Imported {
  readonly row: SessionRow;
  readonly snapshot: SnapshotRow;
  readonly bundle: ReadBundle;
}

export interface ImportRequest {
  readonly profile: string;
  readonly name: string | undefined;
  /** The id of the only key that is accepted. */
  readonly key: string;
  /** It is that of this home. */
  readonly isOwn: boolean;
}

/** Begins imports of bundles. */
export class BundleImports {
  readonly #options: BundleImportsOptions;
  /** Sessions that have files but no row yet. */
  readonly #arriving = new Set<string>();

  constructor(options: BundleImportsOptions) {
    this.#options = options;
  }

  /** Whether files without a row belong to a session that is being imported. */
  isArriving(sessionId: string): boolean {
    return this.#arriving.has(sessionId);
  }

  /** The caller ends it with `commit` or `abort`. */
  async begin(request: ImportRequest): Promise<BundleImport> {
    const sessionId = this.#options.ids.next('ses');
    this.#arriving.add(sessionId);
    try {
      const held = await holdStore(this.#options.stores, sessionId);
      return new BundleImport(this.#options, request, sessionId, held.store, async (isKept) => {
        try {
          held.release();
          await held.released;
          if (!isKept) await this.#options.stores.remove(sessionId, () => true);
        } finally {
          this.#arriving.delete(sessionId);
        }
      });
    } catch (error) {
      this.#arriving.delete(sessionId);
      throw error;
    }
  }
}

/**
 * One bundle on its way in. Its objects lie in the incoming packs of a lineage that no row names, and its contents in a file of a
 * session that has no row: until `commit` nothing of it can be seen, and what a killed supervisor leaves is garbage.
 */
export class BundleImport {
  readonly #options: BundleImportsOptions;
  readonly #request: ImportRequest;
  readonly #sessionId: string;
  readonly #store: LineageStore;
  readonly #release: (isKept: boolean) => Promise<void>;
  readonly #packs: IncomingPacks;
  readonly #reader: BundleReader;
  readonly #decompression = createZstdDecompress({
    chunkSize: DECOMPRESSED_BYTES,
    params: { [constants.ZSTD_d_windowLogMax]: WINDOW_LOG },
  });
  readonly #read: Promise<void>;
  #failure: HoldfastError | null = null;
  #contentBytes = 0;
  #received = 0;
  readonly #hash = createHash('sha256');
  #isOver = false;

  constructor(
    options: BundleImportsOptions,
    request: ImportRequest,
    sessionId: string,
    store: LineageStore,
    release: (isKept: boolean) => Promise<void>,
  ) {
    this.#options = options;
    this.#request = request;
    this.#sessionId = sessionId;
    this.#store = store;
    this.#release = release;
    this.#packs = new IncomingPacks(store, () => this.#freeBytes());
    const file = {
      append: (bytes: Buffer) => this.#appendContent(bytes),
      requireSpace: (bytes: number) => this.#requireSpace(bytes),
    };
    this.#reader = new BundleReader(this.#packs, file, request.key);
    this.#read = this.#readAll();
    this.#read.catch((error: unknown) => {
      this.#failure = asRefusal(error);
      this.#decompression.destroy();
    });
  }

  /** Bytes of the file that were taken. */
  get received(): number {
    return this.#received;
  }

  /** Resolves when more bytes can be taken. Errors: those of `BundleReader`; then the import is over. */
  async append(bytes: Buffer): Promise<void> {
    this.#throwIfFailed();
    this.#hash.update(bytes);
    this.#received += bytes.length;
    // The caller reuses its buffer.
    if (this.#decompression.write(Buffer.from(bytes))) {
      this.#throwIfFailed();
      return;
    }
    await new Promise<void>((resolve) => {
      this.#decompression.once('drain', resolve);
      this.#decompression.once('close', resolve);
    });
    // What stopped it is known once the reader has seen it.
    if (this.#decompression.destroyed) await this.#read.catch(() => undefined);
    this.#throwIfFailed();
  }

  /**
   * Makes the session. Either all of it exists afterwards, or nothing. `around` is given what writes the rows and the SHA-256 of the
   * file, and may put more into its transaction.
   */
  async commit(around: (insert: () => Imported, sha256: string) => Imported): Promise<Imported> {
    try {
      this.#throwIfFailed();
      this.#decompression.end();
      await this.#read;
      const bundle = this.#reader.finish();
      if (this.#contentBytes > 0) await this.#options.artifacts.syncLarge(this.#sessionId, ARTIFACT);
      await failpoint('import.after-contents');
      await this.#publish(bundle);
      await failpoint('import.after-publish');
      const { profile, name, isOwn } = this.#request;
      const target = { sessionId: this.#sessionId, profile, name, isOwn, artifact: ARTIFACT };
      const imported = around(
        () => ({
          ...this.#options.sessionImport.insert(bundle, target),
          bundle,
        }),
        this.#hash.digest('hex'),
      );
      await this.#end(true);
      await failpoint('import.after-row');
      return imported;
    } catch (error) {
      // Nothing, if the session exists already.
      await this.abort();
      throw asRefusal(error);
    }
  }

  /** Removes everything that came. Does nothing after the end. */
  async abort(): Promise<void> {
    if (this.#isOver) return;
    this.#failure ??= new HoldfastError('cancelled', 'The session was not imported');
    this.#decompression.destroy();
    await this.#read.catch(() => undefined);
    try {
      this.#options.artifacts.remove(this.#sessionId);
    } finally {
      await this.#end(false);
    }
  }

  async #end(isKept: boolean): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    try {
      await this.#packs.close();
    } finally {
      await this.#release(isKept);
    }
  }

  async #readAll(): Promise<void> {
    const tar = new TarReader(this.#reader);
    await this.#packs.beginScan();
    // A few bytes may stand for a disk full of zeros: every member is bounded, and takes no space that the home keeps free.
    for await (const chunk of this.#decompression as AsyncIterable<Buffer>) await tar.write(chunk);
    tar.end();
  }

  /** The trees must be whole before anything names them. */
  async #publish({ session }: ReadBundle): Promise<void> {
    const roots = rootsOf(session);
    const [first = ''] = roots;
    await this.#packs.publish(first);
    for (const root of roots)
      if (this.#store.kindOf(parseHash(root)) !== OBJECT_KINDS.root)
        throw refusedBundle('it does not hold one of its trees');
  }

  #appendContent(bytes: Buffer): void {
    this.#options.artifacts.append(this.#sessionId, ARTIFACT, this.#contentBytes, bytes);
    this.#contentBytes += bytes.length;
  }

  async #freeBytes(): Promise<number> {
    const { bavail, bsize } = await statfs(this.#options.home.store);
    return Math.max(0, bavail * bsize - MIN_FREE_MIB * MIB);
  }

  async #requireSpace(bytes: number): Promise<void> {
    if (bytes <= (await this.#freeBytes())) return;
    throw new HoldfastError('no_space', 'The session was not imported', {
      why: `the home's disk would have less than ${MIN_FREE_MIB} MiB left`,
      next: 'free some space (`holdfast gc`, or delete sessions you no longer need) and try again',
    });
  }

  #throwIfFailed(): void {
    if (this.#failure !== null) throw this.#failure;
  }
}

function asRefusal(error: unknown): HoldfastError {
  // Of a pack: a sidecar sent it, as far as its check knows.
  if (error instanceof HoldfastError && error.code === 'invalid_params')
    return refusedBundle(error.why ?? 'one of its packs is not valid', error);
  if (error instanceof HoldfastError) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (code.startsWith('ZSTD_') || code.startsWith('ERR_') || code.startsWith('Z_'))
    return refusedBundle('it is not compressed as Holdfast does it, or it was cut off', error);
  return HoldfastError.from(error, 'The session was not imported');
}
