import { fstatSync } from 'node:fs';
import { join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { parsePath } from '../../protocol/paths.ts';
import { parseRoot, type TreeEntry } from '../../snapshot-format/entries.ts';
import { type Hash, OBJECT_KINDS, parseHash } from '../../snapshot-format/objects.ts';
import {
  type RestoreResult,
  type ScanResult,
  SNAPSHOT_WIRE_LIMITS,
} from '../../snapshot-format/sidecar-calls.ts';
import type { Directory } from '../files/directory.ts';
import { TemporaryEntries } from '../files/temporary-entries.ts';
import { IN_SANDBOX } from '../wire.ts';
import { FINGERPRINT_WORDS, invalidateFingerprint } from './fingerprint.ts';
import { CachedDirectory, nameKey } from './cached-directory.ts';
import { leaseTimeout } from './lease-timeout.ts';
import { TemporaryChmods } from './temporary-chmods.ts';
import { NullSink, type ObjectSink, UploadQueue } from './upload-queue.ts';
import { UploadBuffers, PUT_BYTES } from './upload-buffers.ts';
import { isDotEntry, direntLength, direntName } from './dirents.ts';
import { RemoteObjects } from './remote-objects.ts';
import { Restore } from './restore.ts';
import { Scan, type ScanOutcome } from './scan.ts';
import { StagingDirectory } from './staging-directory.ts';
import { cacheOriginOf, readCache, writeCache } from './scan-cache.ts';
import type { RemoteStore, TaskRuntime } from './store.ts';
import type { SystemCalls } from './system-calls.ts';
import type { TaskParams } from './thread-messages.ts';
import type { TreeFilter } from './tree-filter.ts';
import type { Totals, WalkResult } from './walk.ts';

const NO_ROOT = '0'.repeat(64);
const PROGRESS_MS = 200;
const OWNER_ALL = 0o700;
/** Below both limits, reading again is faster than a cache. */
const WORTH_CACHING = { files: 100, bytes: 2 ** 20 } as const;

export interface WorkspaceSnapshotsOptions {
  readonly system: SystemCalls;
  /** A directory that no untrusted process can replace. Owned by this object. */
  readonly root: Directory;
  /** The sidecar's own directory, which the agent cannot reach. */
  readonly control: string;
  /** Scans only a part, and keeps no cache for the next sidecar. */
  readonly filter?: TreeFilter;
}

/**
 * Scans and restores the workspace, or the agent's state in HOME, and caches its state between calls. One call at a time. An object counts as stored
 * only if the base of the scan has it or if the store says so, never because it was uploaded before.
 */
export class WorkspaceSnapshots implements Disposable {
  readonly #system: SystemCalls;
  readonly #root: Directory;
  readonly #chmods: TemporaryChmods;
  readonly #temporaryEntries: TemporaryEntries;
  #top = new CachedDirectory(null, Buffer.alloc(0));
  /** Names of files with several hard links, as the last scan found them. */
  #hardLinks: WalkResult['hardLinks'] = new Map();
  /** Their number. */
  #hardLinkCount: number | null = null;
  /** Number of files at the last complete scan. */
  #fileCount: number | null = null;
  /** Tree hash of the last complete scan, in hexadecimal. */
  #lastRoot: string | null = null;
  /** Newest tree that the store is known to have. */
  #confirmed: string | null = null;
  /** Hashes (latin1) of objects made since then. */
  readonly #unconfirmed = new Set<string>();
  /** The cache of an earlier sidecar was read, or is not needed. */
  #hasReadCache: boolean;
  readonly #filter: TreeFilter | null;
  readonly #buffers = new UploadBuffers();
  /** What the next sidecar would have to read again. */
  readonly #uncached = { files: 0, bytes: 0 };

  private constructor({ system, root, control, filter }: WorkspaceSnapshotsOptions) {
    this.#filter = filter ?? null;
    this.#hasReadCache = filter !== undefined;
    this.#system = system;
    this.#root = root;
    this.#temporaryEntries = new TemporaryEntries(control);
    this.#chmods = new TemporaryChmods(join(control, IN_SANDBOX.temporaryChmodsName));
  }

  /** Opens the workspace and recovers what an earlier sidecar left. */
  static async open(options: WorkspaceSnapshotsOptions): Promise<WorkspaceSnapshots> {
    const snapshots = new WorkspaceSnapshots(options);
    snapshots.#chmods.recover(options.root);
    await snapshots.#removeLeftovers();
    return snapshots;
  }

  /** Removes the leftovers of an interrupted restore. True if there were any. */
  async #removeLeftovers(): Promise<boolean> {
    if (!this.#temporaryEntries.hasLeftovers('restore')) return false;
    const root = this.#root;
    const { mode, mtimeNs } = fstatSync(root.fd, { bigint: true });
    const isDenied = (Number(mode) & OWNER_ALL) !== OWNER_ALL;
    const restoreMode = isDenied ? this.#chmods.grant(root.fd, [], OWNER_ALL) : null;
    try {
      return (await StagingDirectory.removeLeftovers({ temporaryEntries: this.#temporaryEntries, root })) > 0;
    } finally {
      restoreMode?.(root.fd);
      this.#system.setMtime(root.fd, mtimeNs);
    }
  }

  [Symbol.dispose](): void {
    this.#root.close();
  }

  async scan(
    { base, budgetBytes, frozen, isBaseSuspect, awaitsLeases }: Omit<TaskParams<'scan'>, 'state'>,
    work: TaskRuntime,
  ): Promise<ScanResult> {
    const began = performance.now();
    if (base === null) this.#hasReadCache = true;
    if (base !== null && (await this.#readCache(work, !isBaseSuspect))) this.#confirmed = base;
    else await this.#verifyBaseline(base, work.store, isBaseSuspect);
    const queue = new UploadQueue(work.store, base !== null, this.#unconfirmed, this.#buffers);
    let outcome: ScanOutcome;
    try {
      outcome = await this.#scan(work, {
        sink: queue,
        budgetBytes,
        frozen,
        leaseTimeoutMs: leaseTimeout(awaitsLeases),
      });
      await queue.end();
    } finally {
      queue.close();
    }
    const { root, files, directories, bytes, changedFiles, changedBytes, readMs, changedDuringScan } =
      outcome;
    const { missing, missingPaths } = outcome;
    this.#lastRoot = root === null ? null : root.toString('hex');
    this.#uncached.files += changedFiles;
    this.#uncached.bytes += changedBytes;
    return {
      root: this.#lastRoot ?? NO_ROOT,
      complete: root !== null,
      files,
      directories: Math.max(directories, 0),
      bytes,
      changedFiles,
      changedBytes,
      newObjects: queue.newObjects,
      newBytes: queue.newBytes,
      scanMs: performance.now() - began,
      readMs,
      changedDuringScan,
      missing,
      missingPaths: [...missingPaths],
    };
  }

  /**
   * See SNAPSHOT_CALLS. Errors: `file_not_found` if the snapshot has nothing at `path`. An error before anything was
   * changed has `untouched` in its details.
   */
  async restore(
    { root, path, dryRun, scannedRoot }: Omit<TaskParams<'restore'>, 'state'>,
    work: TaskRuntime,
  ): Promise<RestoreResult> {
    const objects = new RemoteObjects(work.store);
    const run = { isBegun: () => false };
    try {
      return await this.#restore({ root, path, dryRun, scannedRoot }, objects, work, run);
    } catch (error) {
      if (run.isBegun() || !(error instanceof HoldfastError)) throw error;
      const { code, message, why, next, details } = error;
      const data = { why, next, details: { ...details, untouched: true }, cause: error };
      throw new HoldfastError(code, message, data);
    } finally {
      objects.close();
    }
  }

  async #restore(
    { root, path, dryRun, scannedRoot }: Omit<TaskParams<'restore'>, 'state'>,
    objects: RemoteObjects,
    work: TaskRuntime,
    run: { isBegun: () => boolean },
  ): Promise<RestoreResult> {
    const names = path === null ? [] : parsePath(path);
    const wanted = parseRoot(await objects.read(parseHash(root), OBJECT_KINDS.root));
    const cleared = !dryRun && (await this.#removeLeftovers());
    if (cleared || scannedRoot === null || scannedRoot !== this.#lastRoot) {
      await this.#readCache(work, false);
      const sink = new NullSink(this.#unconfirmed);
      await this.#scan(work, { sink, budgetBytes: null, frozen: false, leaseTimeoutMs: leaseTimeout(false) });
    }
    const wasEmpty = this.#top.fingerprints.length === 0;
    const restore = new Restore({
      system: this.#system,
      chmods: this.#chmods,
      temporaryEntries: this.#temporaryEntries,
      root: this.#root,
      baseline: this.#top,
      hardLinks: this.#hardLinks,
      objects,
      path: names,
      work,
    });
    if (dryRun) return await restore.dryRun(wanted);
    run.isBegun = () => restore.hasTouchedFiles;
    this.#lastRoot = null;
    this.#hardLinkCount = null;
    const result = await restore.run(wanted);
    this.#uncached.files += result.created + result.replaced;
    this.#uncached.bytes += result.bytes;
    if (wasEmpty && path === null) {
      // The whole baseline is in that tree now.
      this.#confirmed = root;
      this.#unconfirmed.clear();
    } else
      for (const directory of restore.adopted)
        for (const key of hashesIn(directory)) this.#unconfirmed.add(key);
    return result;
  }

  /** Saves the scan cache for the next sidecar, if reading again would take longer. See `snapshot/save-scan-cache`. */
  async saveCache(work: TaskRuntime): Promise<boolean> {
    const { files, bytes } = this.#uncached;
    const place = cacheOriginOf(this.#system, this.#root.fd);
    if (
      this.#lastRoot === null ||
      place === null ||
      (files < WORTH_CACHING.files && bytes < WORTH_CACHING.bytes)
    )
      return false;
    const known = {
      top: this.#top,
      root: this.#lastRoot,
      linked: this.#hardLinkCount,
      files: this.#fileCount ?? 0,
    };
    let sent = 0;
    let unsent: Buffer[] = [];
    const send = async (): Promise<void> => {
      work.check();
      const part = Buffer.concat(unsent);
      unsent = [];
      if (part.length > 0) await work.store.putCache(sent, part);
      sent += part.length;
    };
    try {
      for (const part of writeCache(known, place)) {
        if (unsent.reduce((sum, { length }) => sum + length, part.length) > PUT_BYTES) await send();
        unsent.push(part);
      }
    } catch (error) {
      if (error instanceof RangeError) return false;
      throw error;
    }
    await send();
    await work.store.sealCache(sent);
    this.#uncached.files -= files;
    this.#uncached.bytes -= bytes;
    return true;
  }

  /**
   * Starts from the scan cache of an earlier sidecar, if it is valid. Changed files are read. True if everything in it
   * is in the store, if `asks`.
   */
  async #readCache(work: TaskRuntime, asks: boolean): Promise<boolean> {
    if (this.#hasReadCache) return false;
    let isStored = false;
    try {
      const place = cacheOriginOf(this.#system, this.#root.fd);
      const read = (offset: number): Promise<Buffer> => {
        work.check();
        return work.store.readCache(offset);
      };
      const known = place === null ? null : await readCache(read, place);
      if (known !== null) {
        // A store with the root has the whole tree, and nothing is deleted during the call. Otherwise the store is
        // asked about every object.
        isStored = asks && (await work.store.have([parseHash(known.root)]))(0);
        this.#top = known.top;
        this.#hardLinkCount = known.linked;
        this.#fileCount = known.files;
        this.#lastRoot = isStored ? known.root : null;
      }
    } catch (error) {
      work.check();
      const { code, sentence: why } = HoldfastError.from(error);
      if (code === 'connection_closed') throw error;
      console.error(`snapshots: the scan cache of an earlier sidecar is not used: ${why}`);
    }
    this.#hasReadCache = true;
    return isStored;
  }

  async #scan(
    work: TaskRuntime,
    options: {
      readonly sink: ObjectSink;
      readonly budgetBytes: number | null;
      readonly frozen: boolean;
      readonly leaseTimeoutMs: number;
    },
  ): Promise<ScanOutcome> {
    let said = performance.now();
    let files = 0;
    const check = (totals: Readonly<Totals>): void => {
      work.check();
      // A large file counts after it was read. Its pieces only show progress.
      files = Math.max(files, totals.files);
      const now = performance.now();
      if (now - said < PROGRESS_MS) return;
      said = now;
      const before = this.#fileCount ?? 0;
      work.progress('scanning', files, before === 0 ? undefined : Math.max(files, before));
    };
    const scan = new Scan({
      system: this.#system,
      chmods: this.#chmods,
      temporaryEntries: this.#temporaryEntries,
      root: this.#root.fd,
      baseline: this.#top,
      filter: this.#filter,
      hardLinksBefore: this.#hardLinkCount,
      filesBefore: this.#fileCount,
      ...options,
      onWaiting: (files) => work.progress('waiting for files that a program has leased', files),
      check,
    });
    // Until the scan ends, the cached state may mix several points in time.
    const last = this.#lastRoot;
    this.#lastRoot = null;
    const outcome = await scan.run();
    if (outcome.walk.complete) this.#fileCount = outcome.files;
    if (outcome.root !== null) {
      this.#hardLinkCount = countHardLinks(outcome);
      this.#hardLinks = outcome.walk.hardLinks;
      if (outcome.root.toString('hex') === last) this.#lastRoot = last;
    }
    return outcome;
  }

  /** Afterwards every cached object is in the store, or its file will be read again. */
  async #verifyBaseline(base: string | null, store: RemoteStore, isSuspect: boolean): Promise<void> {
    if (base === null) {
      this.#top = new CachedDirectory(null, Buffer.alloc(0));
      this.#hardLinkCount = null;
      this.#lastRoot = null;
      this.#unconfirmed.clear();
    } else if (isSuspect || base !== this.#lastRoot) {
      const suspects = base === this.#confirmed && !isSuspect ? new Set(this.#unconfirmed) : this.#hashes();
      const missing = await missingOf(suspects, store);
      if (missing.size > 0) this.#invalidate(missing, suspects);
      this.#unconfirmed.clear();
      for (const key of suspects) if (!missing.has(key)) this.#unconfirmed.add(key);
    } else {
      this.#unconfirmed.clear();
      // An unchanged tree needs no question to the store.
      this.#unconfirmed.add(nameKey(parseHash(base)));
    }
    this.#confirmed = base;
  }

  /** All cached hashes, except those that are named only in lists. */
  #hashes(): Set<string> {
    return hashesIn(this.#top);
  }

  #invalidate(missing: ReadonlySet<string>, suspects: ReadonlySet<string>): void {
    const isLost = (entry: TreeEntry): boolean => {
      if (entry.type !== 'file' && entry.type !== 'directory') return false;
      // Hashes in a list are not known here, so if the list may be missing, all of them may be.
      const lost = entry.content.depth > 0 ? suspects : missing;
      return entry.content.items.some(({ hash }) => lost.has(nameKey(hash)));
    };
    for (const directory of this.#top.withDescendants()) {
      if (isLost(directory.entry)) directory.isDirty = true;
      const lost = new Set<string>();
      for (const entry of directory.decodeEntries().values()) {
        if (entry.type === 'file' && isLost(entry)) lost.add(nameKey(entry.name));
      }
      if (lost.size > 0) invalidateNames(directory, lost);
    }
  }
}

/** Hashes (latin1) of a directory and everything below it. */
function hashesIn(top: CachedDirectory): Set<string> {
  const keys = new Set<string>();
  for (const directory of top.withDescendants()) {
    for (const { hash } of directory.entry.content.items) keys.add(nameKey(hash));
    for (const entry of directory.decodeEntries().values()) {
      for (const { hash } of itemsOf(entry)) keys.add(nameKey(hash));
    }
  }
  return keys;
}

/** Makes the next scan read these names again. */
export function invalidateNames(directory: CachedDirectory, keys: ReadonlySet<string>): void {
  let index = 0;
  for (let at = 0; at < directory.dirents.length; at += direntLength(directory.dirents, at)) {
    if (isDotEntry(directory.dirents, at)) continue;
    if (keys.has(nameKey(direntName(directory.dirents, at))))
      invalidateFingerprint(directory.fingerprints, index);
    index += FINGERPRINT_WORDS;
  }
}

function itemsOf(entry: TreeEntry): readonly { readonly hash: Hash }[] {
  return entry.type === 'file' ? entry.content.items : [];
}

async function missingOf(keys: ReadonlySet<string>, store: RemoteStore): Promise<Set<string>> {
  const missing = new Set<string>();
  const all = [...keys];
  for (let from = 0; from < all.length; from += SNAPSHOT_WIRE_LIMITS.have) {
    const part = all.slice(from, from + SNAPSHOT_WIRE_LIMITS.have);
    const has = await store.have(part.map((key) => Buffer.from(key, 'latin1')));
    part.forEach((key, index) => {
      if (!has(index)) missing.add(key);
    });
  }
  return missing;
}

function countHardLinks({ walk }: ScanOutcome): number {
  let count = 0;
  for (const names of walk.hardLinks.values()) count += names.length;
  return count;
}

/** For a machine without koffi. */
export function snapshotsUnsupported(): HoldfastError {
  return new HoldfastError('not_supported', 'Snapshots cannot be created here', {
    why: 'this machine lacks the native system calls of the sidecar',
  });
}
