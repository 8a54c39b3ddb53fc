import { constants } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { formatPath } from '../../protocol/paths.ts';
import { encodeRoot, type TreeEntry } from '../../snapshot-format/entries.ts';
import { type Hash, OBJECT_KINDS } from '../../snapshot-format/objects.ts';
import { missingEntry } from '../../snapshot-format/missing-entry.ts';
import { buildContentRef, type Piece } from '../../snapshot-format/content-ref.ts';
import { MAX_MISSING_PATHS } from '../../protocol/snapshots.ts';
import { errnoOf } from '../files/directory.ts';
import { toFileError } from '../files/file-errors.ts';
import type { TemporaryEntries } from '../files/temporary-entries.ts';
import { EntryReader } from './entry-reader.ts';
import { invalidateFingerprint, linksOf, modeOf, sizeOf } from './fingerprint.ts';
import { type CachedDirectory, nameKey, detachedCopy } from './cached-directory.ts';
import { encodeDirectory } from './encode-directory.ts';
import { assignHardLinkGroups } from './hard-link-groups.ts';
import type { TemporaryChmods } from './temporary-chmods.ts';
import { HardLinkContents } from './hard-link-contents.ts';
import { ConsistencyCheck } from './consistency-check.ts';
import type { ObjectSink } from './upload-queue.ts';
import { areSameEntries } from './compare-entries.ts';
import type { SystemCalls } from './system-calls.ts';
import type { TreeFilter } from './tree-filter.ts';
import { type EntryLocation, pathOf, type Totals, Walk, type WalkVisitor, type WalkResult } from './walk.ts';

const { S_IFMT, S_IFREG } = constants;
/**
 * Up to this number of files, scanning twice is faster than always waiting for the next timestamp. Also the number of
 * changed entries kept in memory before they are encoded.
 */
const SMALL_SCAN_FILES = 5000;
/** Pauses before unreadable files are tried again, ms. The last one repeats. */
const RETRY_MS = [10, 30, 100, 250, 500, 1000] as const;
/** Limit of the characters in their paths. */
const MISSING_CHARACTERS = 64 * 1024;

export interface ScanOptions {
  readonly system: SystemCalls;
  readonly chmods: TemporaryChmods;
  /** Temporary entries of the sidecar in the workspace. */
  readonly temporaryEntries: TemporaryEntries;
  /** Descriptor of the workspace, which may be O_PATH. */
  readonly root: number;
  readonly baseline: CachedDirectory;
  /** Without one everything is scanned. */
  readonly filter?: TreeFilter | null;
  /** Number of names with several hard links at the last scan. Null if unknown. */
  readonly hardLinksBefore: number | null;
  /** Number of files at the last scan. Null if unknown. */
  readonly filesBefore: number | null;
  readonly sink: ObjectSink;
  readonly budgetBytes: number | null;
  readonly frozen: boolean;
  /** How long files with leases are tried again, ms. */
  readonly leaseTimeoutMs: number;
  /** Reports the number of files that the scan waits for. */
  readonly onWaiting: (files: number) => void;
  readonly check: (totals: Readonly<Totals>) => void;
}

export interface ScanOutcome extends Totals {
  /** Null if the scan was not complete. */
  readonly root: Hash | null;
  readonly changedFiles: number;
  readonly changedBytes: number;
  readonly readMs: number;
  readonly changedDuringScan: boolean;
  /** Number of files that could not be read, and the first paths. */
  readonly missing: number;
  readonly missingPaths: readonly string[];
  readonly walk: WalkResult;
}

/** Scans the workspace: reads what has changed, cuts it into objects, and updates the baseline. */
export class Scan implements WalkVisitor {
  readonly #options: ScanOptions;
  readonly #consistency: ConsistencyCheck;
  readonly #reader: EntryReader;
  readonly #hardLinkContents = new HardLinkContents();
  readonly #hardLinks: { count: number; changed: boolean } = { count: 0, changed: false };
  /** Decoded entries of the directory in which an invalidated entry was read last. */
  #entries: { readonly directory: CachedDirectory; readonly encoded: ReadonlyMap<string, TreeEntry> } | null =
    null;
  #budget: number;
  /** Changed entries with the bytes read for each. An entry that two walks read counts once. */
  readonly #counted = new Map<TreeEntry, number>();
  #changedFiles = 0;
  #changedBytes = 0;
  #readMs = 0;
  #wasRenamed = false;
  /** Of the last walk. */
  #missing = 0;
  #missingPaths: string[] = [];
  #missingCharacters = 0;

  constructor(options: ScanOptions) {
    this.#options = options;
    this.#budget = options.budgetBytes ?? Number.POSITIVE_INFINITY;
    const { system, chmods, sink, frozen, check } = options;
    this.#consistency = new ConsistencyCheck(system, frozen);
    this.#reader = new EntryReader({
      system,
      chmods,
      sink,
      consistency: this.#consistency,
      hardLinks: this.#hardLinkContents,
      check: () => check(NO_TOTALS),
    });
  }

  async run(): Promise<ScanOutcome> {
    const { hardLinksBefore: linkedBefore, filesBefore, frozen } = this.#options;
    const isSmall = filesBefore !== null && filesBefore <= SMALL_SCAN_FILES;
    // Otherwise a file written just before the scan looks changed during it, and the agent is paused for nothing.
    await this.#consistency.begin(!frozen && !isSmall);
    let walk = await this.#walk();
    if (!frozen && isSmall && walk.complete && this.#consistency.isAmbiguous) {
      await this.#consistency.restart();
      this.#entries = null;
      walk = await this.#walk();
    }
    walk = await this.#retryUnreadable(walk);
    let hash: Hash | null = null;
    if (walk.complete) {
      let linked = 0;
      for (const names of walk.hardLinks.values()) linked += names.length;
      this.#hardLinks.count = linked;
      if (this.#hardLinks.changed || this.#wasRenamed || linked !== linkedBefore)
        assignHardLinkGroups(walk.hardLinks);
      this.#options.sink.startDraining();
      hash = await this.#encode(walk);
    }
    const { files, directories, bytes } = walk;
    return {
      files,
      directories,
      bytes,
      root: hash,
      changedFiles: this.#changedFiles,
      changedBytes: this.#changedBytes,
      readMs: this.#readMs,
      changedDuringScan: this.#consistency.changedDuringScan,
      missing: this.#missing,
      missingPaths: this.#missingPaths,
      walk,
    };
  }

  /**
   * Walks again until every file could be read, or until the timeout. A repeated walk opens only unread and changed
   * files.
   */
  async #retryUnreadable(first: WalkResult): Promise<WalkResult> {
    const { leaseTimeoutMs, onWaiting: waiting, check } = this.#options;
    const until = performance.now() + leaseTimeoutMs;
    let walk = first;
    for (let tries = 0; walk.complete && this.#missing > 0; tries += 1) {
      const left = until - performance.now();
      if (left <= 0) break;
      waiting(this.#missing);
      const pause = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)] ?? 0;
      await sleep(Math.min(pause, left));
      check(NO_TOTALS);
      this.#entries = null;
      walk = await this.#walk();
    }
    return walk;
  }

  async #walk(): Promise<WalkResult> {
    const { system, chmods, temporaryEntries, baseline, root, filter = null } = this.#options;
    this.#hardLinkContents.clear();
    this.#missing = this.#missingCharacters = 0;
    this.#missingPaths = [];
    const walker = new Walk({ system, chmods, temporaryEntries, visitor: this, top: baseline, filter });
    const walk = await walker.run(root);
    if (walker.wasRenamed) this.#wasRenamed = true;
    return walk;
  }

  check(totals: Readonly<Totals>): void {
    this.#options.check(totals);
  }

  entryVanished(directory: CachedDirectory, name: Buffer): void {
    this.#consistency.noteChangeAt([...directory.path(), name]);
  }

  directoryVisited(directory: CachedDirectory): Promise<void> | undefined {
    if (this.#changedFiles > SMALL_SCAN_FILES) {
      directory.encodeChanges();
      this.#counted.clear();
    }
    const { sink } = this.#options;
    return sink.isFull ? sink.flush() : undefined;
  }

  directoryChanged(directory: CachedDirectory, fd: number, fingerprint: Uint32Array): void {
    // Names that come and go beside the scanned ones change it too.
    const isOnTheWay = this.#options.filter?.isOnlyOnTheWay(directory) === true;
    if (!isOnTheWay) this.#consistency.noteCtime(fingerprint);
    const entry = this.#reader.readDirectory(directory, fd, fingerprint);
    directory.entry = isOnTheWay ? { ...entry, ...ON_THE_WAY } : entry;
    directory.hasEntryChanged = true;
  }

  /** Returns without a promise if possible: most files are small, and waiting costs as much as reading them. */
  entryChanged(
    place: EntryLocation,
    dirfd: number,
    fingerprint: Uint32Array,
    isAgain: boolean,
  ): boolean | Promise<boolean> {
    const isFile = (modeOf(fingerprint) & S_IFMT) === S_IFREG;
    if (linksOf(fingerprint) > 1) this.#hardLinks.changed = true;
    if (isFile) {
      const linked = this.#reader.reuseHardLink(place, fingerprint);
      if (linked !== null) {
        // A change was noted under the first name.
        this.#note(place, linked, fingerprint, isAgain, 0);
        return this.#options.sink.isFull ? this.#flush() : true;
      }
      if (sizeOf(fingerprint) > this.#budget) return false;
      this.#budget -= sizeOf(fingerprint);
    }
    this.#consistency.noteCtime(fingerprint);
    const began = performance.now();
    try {
      const entry = isFile
        ? this.#reader.readFile(place, dirfd, fingerprint)
        : this.#reader.readNonRegular(place, dirfd, fingerprint);
      if (entry instanceof Promise) return this.#noteAsync(place, entry, fingerprint, isAgain, began);
      this.#note(place, entry, fingerprint, isAgain);
    } catch (error) {
      if (!isFile || !isLeased(error)) throw toFileError(error, formatPath(pathOf(place)));
      this.#noteMissing(place, fingerprint, isAgain);
    }
    this.#readMs += performance.now() - began;
    return this.#options.sink.isFull ? this.#flush() : true;
  }

  /** The kernel has asked the holder to give up its lease. Until then the tree only records that the file exists. */
  #noteMissing(place: EntryLocation, fingerprint: Uint32Array, isAgain: boolean): void {
    this.#missing += 1;
    if (this.#missingPaths.length < MAX_MISSING_PATHS) {
      const path = formatPath(pathOf(place));
      this.#missingCharacters += path.length;
      if (this.#missingCharacters <= MISSING_CHARACTERS) this.#missingPaths.push(path);
    }
    invalidateFingerprint(fingerprint, 0);
    this.#note(place, missingEntry(place.name), fingerprint, isAgain, 0);
  }

  async #noteAsync(
    place: EntryLocation,
    entry: Promise<TreeEntry | null>,
    fingerprint: Uint32Array,
    isAgain: boolean,
    began: number,
  ): Promise<true> {
    try {
      this.#note(place, await entry, fingerprint, isAgain);
    } catch (error) {
      throw toFileError(error, formatPath(pathOf(place)));
    }
    this.#readMs += performance.now() - began;
    return await this.#flush();
  }

  async #flush(): Promise<true> {
    const { sink } = this.#options;
    const began = performance.now();
    if (sink.isFull) await sink.flush();
    this.#readMs += performance.now() - began;
    return true;
  }

  /** `read`: bytes read for this name; by default all of them. */
  #note(
    place: EntryLocation,
    entry: TreeEntry | null,
    fingerprint: Uint32Array,
    isAgain: boolean,
    read?: number,
  ): void {
    const { directory, name } = place;
    if (entry === null) {
      this.#consistency.noteChangeAt(pathOf(place));
      return;
    }
    if (isAgain && linksOf(fingerprint) === 1 && this.#isUnchanged(directory, entry)) return;
    const key = nameKey(name);
    const before = directory.changedEntries.get(key);
    directory.changedEntries.set(key, entry);
    directory.isDirty = true;
    const counted = before === undefined ? undefined : this.#counted.get(before);
    if (before !== undefined) this.#counted.delete(before);
    const bytes = read ?? bytesOf(entry);
    this.#counted.set(entry, bytes);
    if (counted === undefined) this.#changedFiles += 1;
    this.#changedBytes += bytes - (counted ?? 0);
  }

  /** Equals the entry made of this name before. */
  #isUnchanged(directory: CachedDirectory, entry: TreeEntry): boolean {
    if (this.#entries?.directory !== directory)
      this.#entries = { directory, encoded: directory.decodeEntries() };
    const known = this.#entries.encoded.get(nameKey(entry.name));
    return known !== undefined && areSameEntries(entry, known);
  }

  /** Encodes the innermost directories first. */
  async #encode({ visited }: WalkResult): Promise<Hash> {
    const { sink, baseline } = this.#options;
    for (const directory of [...visited].reverse()) {
      const fresh = directory.children.filter((below) => below.hasEntryChanged);
      if (fresh.length > 0) directory.isDirty = true;
      if (!directory.isDirty) continue;
      this.#encodeDirectory(directory, fresh);
      for (const below of fresh) below.hasEntryChanged = false;
      if (sink.isFull) await sink.flush();
      this.#options.check(NO_TOTALS);
    }
    baseline.hasEntryChanged = false;
    return sink.add(OBJECT_KINDS.root, encodeRoot(baseline.entry), hashesOf(baseline.entry));
  }

  /** `fresh`: children whose entries have changed. */
  #encodeDirectory(directory: CachedDirectory, fresh: readonly CachedDirectory[]): void {
    const { sink } = this.#options;
    const bodies = encodeDirectory(directory, fresh);
    // With several pieces it is not worth finding out which of them names which object.
    const names =
      bodies.length > 1
        ? []
        : [...directory.changedEntries.values(), ...fresh.map(({ entry }) => entry)].flatMap(hashesOf);
    const pieces: Piece[] = bodies.map((body, index) => ({
      index,
      hash: sink.add(OBJECT_KINDS.tree, body, names),
    }));
    const content = buildContentRef(pieces, (kind, body) => sink.add(kind, body));
    const entry = { ...directory.entry, content };
    if (!areSameEntries(entry, directory.entry)) directory.hasEntryChanged = true;
    directory.entry = entry;
    directory.encodedEntries = detachedCopy(
      bodies.length === 1 ? (bodies[0] ?? NOTHING) : Buffer.concat(bodies),
    );
    directory.changedEntries.clear();
    directory.encodedChanges = NOTHING;
    directory.isDirty = false;
    directory.haveNamesChanged = false;
  }
}

const NOTHING: Buffer = Buffer.alloc(0);
/** Attributes of a directory that is only on the way to what is scanned: always the same. */
const ON_THE_WAY = { mode: 0o700, mtimeNs: 0n, xattrs: [] } as const;

/** Opening a file without blocking fails like this while another program holds a lease on it. */
function isLeased(error: unknown): boolean {
  const code = errnoOf(error);
  return code === 'EAGAIN' || code === 'EWOULDBLOCK';
}

function bytesOf(entry: TreeEntry): number {
  return entry.type === 'file' ? entry.size : 0;
}

function hashesOf(entry: TreeEntry): Hash[] {
  return entry.type === 'file' || entry.type === 'directory'
    ? entry.content.items.map(({ hash }) => hash)
    : [];
}

const NO_TOTALS: Totals = { files: 0, directories: 0, bytes: 0 };
