import { fstatSync } from 'node:fs';
import { join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { parsePath } from '../../protocol/paths.ts';
import { parseRoot, type TreeEntry } from '../../snapshot-format/entries.ts';
import { type Hash, OBJECT_KINDS, parseHash } from '../../snapshot-format/objects.ts';
import { type RestoreResult, type ScanResult, SNAPSHOT_WIRE_LIMITS } from '../../snapshot-format/wire.ts';
import type { Directory } from '../files/directory.ts';
import { OwnEntries } from '../files/own-entries.ts';
import { IN_SANDBOX } from '../wire.ts';
import { FACT_WORDS, forgetFacts } from './facts.ts';
import { Folder, keyOf } from './folder.ts';
import { leasePatience } from './leases.ts';
import { LentModes } from './lent-modes.ts';
import { Nowhere, type ObjectOutlet, Outbox } from './outbox.ts';
import { OutboxMemory, PUT_BYTES } from './outbox-memory.ts';
import { isLeftOut, recordLength, recordName } from './records.ts';
import { RemoteObjects } from './remote-objects.ts';
import { Restore } from './restore.ts';
import { Scan, type Scanned } from './scan.ts';
import { Staging } from './staging.ts';
import { placeOf, readCache, writeCache } from './scan-cache.ts';
import type { Store, Work } from './store.ts';
import type { System } from './system.ts';
import type { TaskParams } from './thread-messages.ts';
import type { Totals, WalkResult } from './walk.ts';

const NO_ROOT = '0'.repeat(64);
const PROGRESS_MS = 200;
const OWNER_ALL = 0o700;
/** Less than this is read again in no time. */
const WORTH = { files: 100, bytes: 2 ** 20 } as const;

export interface WorkspaceSnapshotsOptions {
  readonly system: System;
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
  readonly #system: System;
  readonly #root: Directory;
  readonly #lent: LentModes;
  readonly #own: OwnEntries;
  #known = new Folder(null, Buffer.alloc(0));
  /** Names of files with several, as the last look found them. */
  #names: WalkResult['linked'] = new Map();
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
  readonly #memory = new OutboxMemory();
  /** What the next sidecar would have to read again. */
  readonly #unkept = { files: 0, bytes: 0 };

  private constructor({ system, root, control }: WorkspaceSnapshotsOptions) {
    this.#system = system;
    this.#root = root;
    this.#own = new OwnEntries(control);
    this.#lent = new LentModes(join(control, IN_SANDBOX.lentName));
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
    if (!this.#own.hasLeft('restore')) return false;
    const root = this.#root;
    const { mode, mtimeNs } = fstatSync(root.fd, { bigint: true });
    const isDenied = (Number(mode) & OWNER_ALL) !== OWNER_ALL;
    const giveBack = isDenied ? this.#lent.lend(root.fd, [], OWNER_ALL) : null;
    try {
      return (await Staging.clear({ own: this.#own, root })) > 0;
    } finally {
      giveBack?.(root.fd);
      this.#system.setMtime(root.fd, mtimeNs);
    }
  }

  [Symbol.dispose](): void {
    this.#root.close();
  }

  async scan(
    { base, budgetBytes, frozen, doubts, awaitsLeases }: TaskParams<'scan'>,
    work: Work,
  ): Promise<ScanResult> {
    const began = performance.now();
    if (base === null) this.#isRecalled = true;
    if (base !== null && (await this.#recall(work, !doubts))) this.#confirmed = base;
    else await this.#trustOnly(base, work.store, doubts);
    const outbox = new Outbox(work.store, base !== null, this.#made, this.#memory);
    let scanned: Scanned;
    try {
      scanned = await this.#look(work, {
        outlet: outbox,
        budgetBytes,
        frozen,
        patienceMs: leasePatience(awaitsLeases),
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
      moved,
      missing,
      missingPaths: [...missingPaths],
    };
  }

  /**
   * See SNAPSHOT_CALLS. `file_not_found` where the snapshot has nothing at `path`. What fails before it has touched anything says so:
   * `untouched` in its details.
   */
  async restore({ root, path, dryRun, seen }: TaskParams<'restore'>, work: Work): Promise<RestoreResult> {
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
    work: Work,
    run: { isBegun: () => boolean },
  ): Promise<RestoreResult> {
    const names = path === null ? [] : parsePath(path);
    const wanted = parseRoot(await objects.read(parseHash(root), OBJECT_KINDS.root));
    const cleared = !dryRun && (await this.#clear());
    if (cleared || seen === null || seen !== this.#last) {
      await this.#recall(work, false);
      const outlet = new Nowhere(this.#made);
      await this.#look(work, { outlet, budgetBytes: null, frozen: false, patienceMs: leasePatience(false) });
    }
    const wasEmpty = this.#known.stats.length === 0;
    const restore = new Restore({
      system: this.#system,
      lent: this.#lent,
      own: this.#own,
      root: this.#root,
      known: this.#known,
      linked: this.#names,
      objects,
      path: names,
      work,
    });
    if (dryRun) return await restore.count(wanted);
    run.isBegun = () => restore.isBegun;
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

  /** Leaves what is known for the next sidecar, where it would take that longer to find out. See `snapshot/keep`. */
  async keep(work: Work): Promise<boolean> {
    const { files, bytes } = this.#unkept;
    const place = placeOf(this.#system, this.#root.fd);
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
  async #recall(work: Work, asks: boolean): Promise<boolean> {
    if (this.#isRecalled) return false;
    let isStored = false;
    try {
      const place = placeOf(this.#system, this.#root.fd);
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
    work: Work,
    options: {
      readonly outlet: ObjectOutlet;
      readonly budgetBytes: number | null;
      readonly frozen: boolean;
      readonly patienceMs: number;
    },
  ): Promise<Scanned> {
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
      known: this.#known,
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
      this.#names = scanned.walk.linked;
      if (scanned.root.toString('hex') === last) this.#last = last;
    }
    return scanned;
  }

  /** Afterwards everything that is known and not read anew is in the store, or is made anew. */
  async #trustOnly(base: string | null, store: Store, doubts: boolean): Promise<void> {
    if (base === null) {
      this.#known = new Folder(null, Buffer.alloc(0));
      this.#linked = null;
      this.#last = null;
      this.#made.clear();
    } else if (doubts || base !== this.#last) {
      const suspects = base === this.#confirmed && !doubts ? new Set(this.#made) : this.#hashes();
      const missing = await missingOf(suspects, store);
      if (missing.size > 0) this.#forget(missing, suspects);
      this.#made.clear();
      for (const key of suspects) if (!missing.has(key)) this.#made.add(key);
    } else {
      this.#made.clear();
      // A tree that did not change costs not even a question.
      this.#made.add(keyOf(parseHash(base)));
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
      return entry.content.items.some(({ hash }) => lost.has(keyOf(hash)));
    };
    for (const folder of this.#known.all()) {
      if (isLost(folder.entry)) folder.isDirty = true;
      const lost = new Set<string>();
      for (const entry of folder.encoded().values()) {
        if (entry.type === 'file' && isLost(entry)) lost.add(keyOf(entry.name));
      }
      if (lost.size > 0) forgetNames(folder, lost);
    }
  }
}

/** Hashes (latin1) of a folder and all below it. */
function hashesIn(top: Folder): Set<string> {
  const keys = new Set<string>();
  for (const folder of top.all()) {
    for (const { hash } of folder.entry.content.items) keys.add(keyOf(hash));
    for (const entry of folder.encoded().values()) {
      for (const { hash } of itemsOf(entry)) keys.add(keyOf(hash));
    }
  }
  return keys;
}

/** These names are looked at again, whatever they look like. */
export function forgetNames(folder: Folder, keys: ReadonlySet<string>): void {
  let index = 0;
  for (let at = 0; at < folder.records.length; at += recordLength(folder.records, at)) {
    if (isLeftOut(folder.records, at)) continue;
    if (keys.has(keyOf(recordName(folder.records, at)))) forgetFacts(folder.stats, index);
    index += FACT_WORDS;
  }
}

function itemsOf(entry: TreeEntry): readonly { readonly hash: Hash }[] {
  return entry.type === 'file' ? entry.content.items : [];
}

async function missingOf(keys: ReadonlySet<string>, store: Store): Promise<Set<string>> {
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

function countNames({ walk }: Scanned): number {
  let count = 0;
  for (const names of walk.linked.values()) count += names.length;
  return count;
}

/** For a machine without native calls. */
export function notHere(): HoldfastError {
  return new HoldfastError('not_supported', 'Snapshots cannot be taken here', {
    why: 'this machine has no native calls for the sidecar',
  });
}
