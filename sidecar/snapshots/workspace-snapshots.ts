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
import type { Totals, WalkResult } from './walk.ts';

const NO_ROOT = '0'.repeat(64);
const PROGRESS_MS = 200;
const OWNER_ALL = 0o700;
/** Less than this is read again in no time. */
const WORTH = { files: 100, bytes: 2 ** 20 } as const;

export interface WorkspaceSnapshotsOptions {
  readonly system: SystemCalls;
  /** A folder that nobody untrusted can replace; taken over. */
  readonly root: Directory;
  /** The sidecar's own folder, which the agent cannot reach. */
  readonly control: string;
}

/**
 * The workspace as snapshots see it, and what is known of it from call to call. One call at a time. Nothing here trusts that an
 * object is in the store because it was sent there once: only what the base of a scan has, or what the store says it has.
 */
export class WorkspaceSnapshots implements Disposable {
  readonly #system: SystemCalls;
  readonly #root: Directory;
  readonly #lent: TemporaryChmods;
  readonly #own: TemporaryEntries;
  #known = new CachedDirectory(null, Buffer.alloc(0));
  /** Names of files with several, as the last look found them. */
  #names: WalkResult['hardLinks'] = new Map();
  /** How many there are. */
  #linked: number | null = null;
  /** At the last complete look. */
  #files: number | null = null;
  /** Tree that the last complete scan found, in hexadecimal. */
  #last: string | null = null;
  /** Newest tree of which we heard that the store has it. */
  #confirmed: string | null = null;
  /** Hashes (latin1) of what was made since then. */
  readonly #made = new Set<string>();
  /** What an earlier sidecar has left was looked for. */
  #isRecalled = false;
  readonly #memory = new UploadBuffers();
  /** What the next sidecar would have to read again. */
  readonly #unkept = { files: 0, bytes: 0 };

  private constructor({ system, root, control }: WorkspaceSnapshotsOptions) {
    this.#system = system;
    this.#root = root;
    this.#own = new TemporaryEntries(control);
    this.#lent = new TemporaryChmods(join(control, IN_SANDBOX.temporaryChmodsName));
  }

  /** Puts right what an earlier sidecar has left half done. */
  static async open(options: WorkspaceSnapshotsOptions): Promise<WorkspaceSnapshots> {
    const snapshots = new WorkspaceSnapshots(options);
    snapshots.#lent.recover(options.root);
    await snapshots.#clear();
    return snapshots;
  }

  /** Removes what a restore that was cut off has left. True where there was something. */
  async #clear(): Promise<boolean> {
    if (!this.#own.hasLeftovers('restore')) return false;
    const root = this.#root;
    const { mode, mtimeNs } = fstatSync(root.fd, { bigint: true });
    const isDenied = (Number(mode) & OWNER_ALL) !== OWNER_ALL;
    const giveBack = isDenied ? this.#lent.grant(root.fd, [], OWNER_ALL) : null;
    try {
      return (await StagingDirectory.removeLeftovers({ own: this.#own, root })) > 0;
    } finally {
      giveBack?.(root.fd);
      this.#system.setMtime(root.fd, mtimeNs);
    }
  }

  [Symbol.dispose](): void {
    this.#root.close();
  }

  async scan(
    { base, budgetBytes, frozen, isBaseSuspect, awaitsLeases }: TaskParams<'scan'>,
    work: TaskRuntime,
  ): Promise<ScanResult> {
    const began = performance.now();
    if (base === null) this.#isRecalled = true;
    if (base !== null && (await this.#recall(work, !isBaseSuspect))) this.#confirmed = base;
    else await this.#trustOnly(base, work.store, isBaseSuspect);
    const outbox = new UploadQueue(work.store, base !== null, this.#made, this.#memory);
    let scanned: ScanOutcome;
    try {
      scanned = await this.#look(work, {
        outlet: outbox,
        budgetBytes,
        frozen,
        patienceMs: leaseTimeout(awaitsLeases),
      });
      await outbox.end();
    } finally {
      outbox.close();
    }
    const { root, files, directories, bytes, changedFiles, changedBytes, readMs, moved } = scanned;
    const { missing, missingPaths } = scanned;
    this.#last = root === null ? null : root.toString('hex');
    this.#unkept.files += changedFiles;
    this.#unkept.bytes += changedBytes;
    return {
      root: this.#last ?? NO_ROOT,
      complete: root !== null,
      files,
      directories: Math.max(directories, 0),
      bytes,
      changedFiles,
      changedBytes,
      newObjects: outbox.newObjects,
      newBytes: outbox.newBytes,
      scanMs: performance.now() - began,
      readMs,
      changedDuringScan: moved,
      missing,
      missingPaths: [...missingPaths],
    };
  }

  /**
   * See SNAPSHOT_CALLS. `file_not_found` where the snapshot has nothing at `path`. What fails before it has touched anything says so:
   * `untouched` in its details.
   */
  async restore(
    { root, path, dryRun, seen }: TaskParams<'restore'>,
    work: TaskRuntime,
  ): Promise<RestoreResult> {
    const objects = new RemoteObjects(work.store);
    const run = { isBegun: () => false };
    try {
      return await this.#restore({ root, path, dryRun, seen }, objects, work, run);
    } catch (error) {
      if (run.isBegun() || !(error instanceof HoldfastError)) throw error;
      const { code, message, why, next, details } = error;
      const told = { why, next, details: { ...details, untouched: true }, cause: error };
      throw new HoldfastError(code, message, told);
    } finally {
      objects.close();
    }
  }

  async #restore(
    { root, path, dryRun, seen }: TaskParams<'restore'>,
    objects: RemoteObjects,
    work: TaskRuntime,
    run: { isBegun: () => boolean },
  ): Promise<RestoreResult> {
    const names = path === null ? [] : parsePath(path);
    const wanted = parseRoot(await objects.read(parseHash(root), OBJECT_KINDS.root));
    const cleared = !dryRun && (await this.#clear());
    if (cleared || seen === null || seen !== this.#last) {
      await this.#recall(work, false);
      const outlet = new NullSink(this.#made);
      await this.#look(work, { outlet, budgetBytes: null, frozen: false, patienceMs: leaseTimeout(false) });
    }
    const wasEmpty = this.#known.fingerprints.length === 0;
    const restore = new Restore({
      system: this.#system,
      lent: this.#lent,
      own: this.#own,
      root: this.#root,
      baseline: this.#known,
      hardLinks: this.#names,
      objects,
      path: names,
      work,
    });
    if (dryRun) return await restore.dryRun(wanted);
    run.isBegun = () => restore.hasTouchedFiles;
    this.#last = null;
    this.#linked = null;
    const result = await restore.run(wanted);
    this.#unkept.files += result.created + result.replaced;
    this.#unkept.bytes += result.bytes;
    if (wasEmpty && path === null) {
      // All that is known now is in that tree.
      this.#confirmed = root;
      this.#made.clear();
    } else for (const folder of restore.adopted) for (const key of hashesIn(folder)) this.#made.add(key);
    return result;
  }

  /** Leaves what is known for the next sidecar, where it would take that longer to find out. See `snapshot/save-scan-cache`. */
  async saveCache(work: TaskRuntime): Promise<boolean> {
    const { files, bytes } = this.#unkept;
    const place = cacheOriginOf(this.#system, this.#root.fd);
    if (this.#last === null || place === null || (files < WORTH.files && bytes < WORTH.bytes)) return false;
    const known = { top: this.#known, root: this.#last, linked: this.#linked, files: this.#files ?? 0 };
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
    this.#unkept.files -= files;
    this.#unkept.bytes -= bytes;
    return true;
  }

  /**
   * Begins with what an earlier sidecar knew, where that can be believed. Its facts are of then: what looks otherwise now is read.
   * True where all of it is in the store, if that is asked.
   */
  async #recall(work: TaskRuntime, asks: boolean): Promise<boolean> {
    if (this.#isRecalled) return false;
    let isStored = false;
    try {
      const place = cacheOriginOf(this.#system, this.#root.fd);
      const read = (offset: number): Promise<Buffer> => {
        work.check();
        return work.store.readCache(offset);
      };
      const known = place === null ? null : await readCache(read, place);
      if (known !== null) {
        // With its root a store has all of a tree, and nothing goes while it is asked; without it, it is asked for everything.
        isStored = asks && (await work.store.have([parseHash(known.root)]))(0);
        this.#known = known.top;
        this.#linked = known.linked;
        this.#files = known.files;
        this.#last = isStored ? known.root : null;
      }
    } catch (error) {
      work.check();
      const { code, sentence: why } = HoldfastError.from(error);
      if (code === 'connection_closed') throw error;
      console.error(`snapshots: what an earlier sidecar knew is not used: ${why}`);
    }
    this.#isRecalled = true;
    return isStored;
  }

  async #look(
    work: TaskRuntime,
    options: {
      readonly outlet: ObjectSink;
      readonly budgetBytes: number | null;
      readonly frozen: boolean;
      readonly patienceMs: number;
    },
  ): Promise<ScanOutcome> {
    let said = performance.now();
    let files = 0;
    const check = (totals: Readonly<Totals>): void => {
      work.check();
      // A large file counts when it was read; until then its pieces only say that the scan goes on.
      files = Math.max(files, totals.files);
      const now = performance.now();
      if (now - said < PROGRESS_MS) return;
      said = now;
      const before = this.#files ?? 0;
      work.progress('scanning', files, before === 0 ? undefined : Math.max(files, before));
    };
    const scan = new Scan({
      system: this.#system,
      lent: this.#lent,
      own: this.#own,
      root: this.#root.fd,
      baseline: this.#known,
      linkedBefore: this.#linked,
      filesBefore: this.#files,
      ...options,
      waiting: (files) => work.progress('waiting for files that a program has leased', files),
      check,
    });
    // Until it is over, what is known may be of several moments.
    const last = this.#last;
    this.#last = null;
    const scanned = await scan.run();
    if (scanned.walk.complete) this.#files = scanned.files;
    if (scanned.root !== null) {
      this.#linked = countNames(scanned);
      this.#names = scanned.walk.hardLinks;
      if (scanned.root.toString('hex') === last) this.#last = last;
    }
    return scanned;
  }

  /** Afterwards everything that is known and not read anew is in the store, or is made anew. */
  async #trustOnly(base: string | null, store: RemoteStore, isSuspect: boolean): Promise<void> {
    if (base === null) {
      this.#known = new CachedDirectory(null, Buffer.alloc(0));
      this.#linked = null;
      this.#last = null;
      this.#made.clear();
    } else if (isSuspect || base !== this.#last) {
      const suspects = base === this.#confirmed && !isSuspect ? new Set(this.#made) : this.#hashes();
      const missing = await missingOf(suspects, store);
      if (missing.size > 0) this.#forget(missing, suspects);
      this.#made.clear();
      for (const key of suspects) if (!missing.has(key)) this.#made.add(key);
    } else {
      this.#made.clear();
      // A tree that did not change costs not even a question.
      this.#made.add(nameKey(parseHash(base)));
    }
    this.#confirmed = base;
  }

  /** All that is known, but for what only lists name. */
  #hashes(): Set<string> {
    return hashesIn(this.#known);
  }

  #forget(missing: ReadonlySet<string>, suspects: ReadonlySet<string>): void {
    const isLost = (entry: TreeEntry): boolean => {
      if (entry.type !== 'file' && entry.type !== 'directory') return false;
      // What a list names is not known here: with a list that may be missing, all of it may.
      const lost = entry.content.depth > 0 ? suspects : missing;
      return entry.content.items.some(({ hash }) => lost.has(nameKey(hash)));
    };
    for (const folder of this.#known.withDescendants()) {
      if (isLost(folder.entry)) folder.isDirty = true;
      const lost = new Set<string>();
      for (const entry of folder.decodeEntries().values()) {
        if (entry.type === 'file' && isLost(entry)) lost.add(nameKey(entry.name));
      }
      if (lost.size > 0) invalidateNames(folder, lost);
    }
  }
}

/** Hashes (latin1) of a folder and all below it. */
function hashesIn(top: CachedDirectory): Set<string> {
  const keys = new Set<string>();
  for (const folder of top.withDescendants()) {
    for (const { hash } of folder.entry.content.items) keys.add(nameKey(hash));
    for (const entry of folder.decodeEntries().values()) {
      for (const { hash } of itemsOf(entry)) keys.add(nameKey(hash));
    }
  }
  return keys;
}

/** These names are looked at again, whatever they look like. */
export function invalidateNames(folder: CachedDirectory, keys: ReadonlySet<string>): void {
  let index = 0;
  for (let at = 0; at < folder.dirents.length; at += direntLength(folder.dirents, at)) {
    if (isDotEntry(folder.dirents, at)) continue;
    if (keys.has(nameKey(direntName(folder.dirents, at)))) invalidateFingerprint(folder.fingerprints, index);
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

function countNames({ walk }: ScanOutcome): number {
  let count = 0;
  for (const names of walk.hardLinks.values()) count += names.length;
  return count;
}

/** For a machine without native calls. */
export function snapshotsUnsupported(): HoldfastError {
  return new HoldfastError('not_supported', 'Snapshots cannot be taken here', {
    why: 'this machine has no native calls for the sidecar',
  });
}
