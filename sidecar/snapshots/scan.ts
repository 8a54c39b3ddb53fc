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
import { type EntryLocation, pathOf, type Totals, Walk, type WalkVisitor, type WalkResult } from './walk.ts';

const { S_IFMT, S_IFREG } = constants;
/**
 * A workspace of so many files is looked through twice in less time than it would take to wait for a tick of the clock again and again; so
 * many entries wait for their folder to be encoded as they are, as bytes are not made of them twice then.
 */
const SMALL = 5000;
/** Pauses before files that could not be read are tried again, ms; the last one again and again. */
const AGAIN_MS = [10, 30, 100, 250, 500, 1000] as const;
/** Characters of the paths of such files. */
const MISSING_CHARACTERS = 64 * 1024;

export interface ScanOptions {
  readonly system: SystemCalls;
  readonly lent: TemporaryChmods;
  /** What the sidecar has in the workspace for a while. */
  readonly own: TemporaryEntries;
  /** Descriptor of the workspace; O_PATH is enough. */
  readonly root: number;
  readonly baseline: CachedDirectory;
  /** Names of files with several at the last scan; null where that is not known. */
  readonly linkedBefore: number | null;
  /** How many there were at the last look; null where that is not known. */
  readonly filesBefore: number | null;
  readonly outlet: ObjectSink;
  readonly budgetBytes: number | null;
  readonly frozen: boolean;
  /** How long files that cannot be opened because of leases are tried again, ms. */
  readonly patienceMs: number;
  /** So many of them are waited for. */
  readonly waiting: (files: number) => void;
  readonly check: (totals: Readonly<Totals>) => void;
}

export interface ScanOutcome extends Totals {
  /** Null where it was not complete. */
  readonly root: Hash | null;
  readonly changedFiles: number;
  readonly changedBytes: number;
  readonly readMs: number;
  readonly moved: boolean;
  /** Files that could not be read, and the first of their paths. */
  readonly missing: number;
  readonly missingPaths: readonly string[];
  readonly walk: WalkResult;
}

/** One look through the workspace: what has changed is read, cut into objects, and noted in `known`. */
export class Scan implements WalkVisitor {
  readonly #options: ScanOptions;
  readonly #moment: ConsistencyCheck;
  readonly #reader: EntryReader;
  readonly #linkedContents = new HardLinkContents();
  readonly #linkedNames: { count: number; changed: boolean } = { count: 0, changed: false };
  /** What was known of the names of the folder in which something was looked at again last. */
  #entries: { readonly folder: CachedDirectory; readonly encoded: ReadonlyMap<string, TreeEntry> } | null =
    null;
  #budget: number;
  /** Entries that are among those that have changed, with the bytes read for them: one that is read in both of two looks is one. */
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
    const { system, lent, outlet, frozen, check } = options;
    this.#moment = new ConsistencyCheck(system, frozen);
    this.#reader = new EntryReader({
      system,
      lent,
      sink: outlet,
      consistency: this.#moment,
      hardLinks: this.#linkedContents,
      check: () => check(NO_TOTALS),
    });
  }

  async run(): Promise<ScanOutcome> {
    const { linkedBefore, filesBefore, frozen } = this.#options;
    const isSmall = filesBefore !== null && filesBefore <= SMALL;
    // Else what was written just before would look as if it were written meanwhile, and an agent be frozen for nothing.
    await this.#moment.begin(!frozen && !isSmall);
    let walk = await this.#walk();
    if (!frozen && isSmall && walk.complete && this.#moment.isAmbiguous) {
      await this.#moment.restart();
      this.#entries = null;
      walk = await this.#walk();
    }
    walk = await this.#untilReadable(walk);
    let hash: Hash | null = null;
    if (walk.complete) {
      let linked = 0;
      for (const names of walk.hardLinks.values()) linked += names.length;
      this.#linkedNames.count = linked;
      if (this.#linkedNames.changed || this.#wasRenamed || linked !== linkedBefore)
        assignHardLinkGroups(walk.hardLinks);
      this.#options.outlet.startDraining();
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
      moved: this.#moment.changedDuringScan,
      missing: this.#missing,
      missingPaths: this.#missingPaths,
      walk,
    };
  }

  /** Walks again until every file could be read, or patience is at its end. Only names that were not read, or look otherwise, are opened. */
  async #untilReadable(first: WalkResult): Promise<WalkResult> {
    const { patienceMs, waiting, check } = this.#options;
    const until = performance.now() + patienceMs;
    let walk = first;
    for (let tries = 0; walk.complete && this.#missing > 0; tries += 1) {
      const left = until - performance.now();
      if (left <= 0) break;
      waiting(this.#missing);
      const pause = AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)] ?? 0;
      await sleep(Math.min(pause, left));
      check(NO_TOTALS);
      this.#entries = null;
      walk = await this.#walk();
    }
    return walk;
  }

  async #walk(): Promise<WalkResult> {
    const { system, lent, own, baseline, root } = this.#options;
    this.#linkedContents.clear();
    this.#missing = this.#missingCharacters = 0;
    this.#missingPaths = [];
    const tour = new Walk({ system, lent, own, walker: this, top: baseline });
    const walk = await tour.run(root);
    if (tour.wasRenamed) this.#wasRenamed = true;
    return walk;
  }

  check(totals: Readonly<Totals>): void {
    this.#options.check(totals);
  }

  entryVanished(folder: CachedDirectory, name: Buffer): void {
    this.#moment.noteChangeAt([...folder.path(), name]);
  }

  directoryVisited(folder: CachedDirectory): Promise<void> | undefined {
    if (this.#changedFiles > SMALL) {
      folder.encodeChanges();
      this.#counted.clear();
    }
    const { outlet } = this.#options;
    return outlet.isFull ? outlet.flush() : undefined;
  }

  directoryChanged(folder: CachedDirectory, fd: number, facts: Uint32Array): void {
    this.#moment.noteCtime(facts);
    folder.entry = this.#reader.readDirectory(folder, fd, facts);
    folder.hasEntryChanged = true;
  }

  /** At once where it can be: most files are small, and waiting costs as much as reading them. */
  entryChanged(
    place: EntryLocation,
    directory: number,
    facts: Uint32Array,
    isAgain: boolean,
  ): boolean | Promise<boolean> {
    const isFile = (modeOf(facts) & S_IFMT) === S_IFREG;
    if (linksOf(facts) > 1) this.#linkedNames.changed = true;
    if (isFile) {
      const linked = this.#reader.reuseHardLink(place, facts);
      if (linked !== null) {
        // That it changed meanwhile was noted under its first name.
        this.#note(place, linked, facts, isAgain, 0);
        return this.#options.outlet.isFull ? this.#flush() : true;
      }
      if (sizeOf(facts) > this.#budget) return false;
      this.#budget -= sizeOf(facts);
    }
    this.#moment.noteCtime(facts);
    const began = performance.now();
    try {
      const entry = isFile
        ? this.#reader.readFile(place, directory, facts)
        : this.#reader.readNonRegular(place, directory, facts);
      if (entry instanceof Promise) return this.#noteLater(place, entry, facts, isAgain, began);
      this.#note(place, entry, facts, isAgain);
    } catch (error) {
      if (!isFile || !isLeased(error)) throw toFileError(error, formatPath(pathOf(place)));
      this.#noteMissing(place, facts, isAgain);
    }
    this.#readMs += performance.now() - began;
    return this.#options.outlet.isFull ? this.#flush() : true;
  }

  /** The kernel has asked whoever holds the lease to give it up; until then the tree says only that the file is there. */
  #noteMissing(place: EntryLocation, facts: Uint32Array, isAgain: boolean): void {
    this.#missing += 1;
    if (this.#missingPaths.length < MAX_MISSING_PATHS) {
      const path = formatPath(pathOf(place));
      this.#missingCharacters += path.length;
      if (this.#missingCharacters <= MISSING_CHARACTERS) this.#missingPaths.push(path);
    }
    invalidateFingerprint(facts, 0);
    this.#note(place, missingEntry(place.name), facts, isAgain, 0);
  }

  async #noteLater(
    place: EntryLocation,
    entry: Promise<TreeEntry | null>,
    facts: Uint32Array,
    isAgain: boolean,
    began: number,
  ): Promise<true> {
    try {
      this.#note(place, await entry, facts, isAgain);
    } catch (error) {
      throw toFileError(error, formatPath(pathOf(place)));
    }
    this.#readMs += performance.now() - began;
    return await this.#flush();
  }

  async #flush(): Promise<true> {
    const { outlet } = this.#options;
    const began = performance.now();
    if (outlet.isFull) await outlet.flush();
    this.#readMs += performance.now() - began;
    return true;
  }

  /** `read`: bytes of it that were read for this name; all of them where it is left out. */
  #note(
    place: EntryLocation,
    entry: TreeEntry | null,
    facts: Uint32Array,
    isAgain: boolean,
    read?: number,
  ): void {
    const { folder, name } = place;
    if (entry === null) {
      this.#moment.noteChangeAt(pathOf(place));
      return;
    }
    if (isAgain && linksOf(facts) === 1 && this.#isKnown(folder, entry)) return;
    const key = nameKey(name);
    const before = folder.changedEntries.get(key);
    folder.changedEntries.set(key, entry);
    folder.isDirty = true;
    const counted = before === undefined ? undefined : this.#counted.get(before);
    if (before !== undefined) this.#counted.delete(before);
    const bytes = read ?? bytesOf(entry);
    this.#counted.set(entry, bytes);
    if (counted === undefined) this.#changedFiles += 1;
    this.#changedBytes += bytes - (counted ?? 0);
  }

  /** As it was made of the same name before. */
  #isKnown(folder: CachedDirectory, entry: TreeEntry): boolean {
    if (this.#entries?.folder !== folder) this.#entries = { folder, encoded: folder.decodeEntries() };
    const known = this.#entries.encoded.get(nameKey(entry.name));
    return known !== undefined && areSameEntries(entry, known);
  }

  /** From the innermost folders outwards. */
  async #encode({ visited }: WalkResult): Promise<Hash> {
    const { outlet, baseline } = this.#options;
    for (const folder of [...visited].reverse()) {
      const fresh = folder.children.filter((below) => below.hasEntryChanged);
      if (fresh.length > 0) folder.isDirty = true;
      if (!folder.isDirty) continue;
      this.#encodeFolder(folder, fresh);
      for (const below of fresh) below.hasEntryChanged = false;
      if (outlet.isFull) await outlet.flush();
      this.#options.check(NO_TOTALS);
    }
    baseline.hasEntryChanged = false;
    return outlet.add(OBJECT_KINDS.root, encodeRoot(baseline.entry), hashesOf(baseline.entry));
  }

  /** `fresh`: folders in it whose entries are not as they were. */
  #encodeFolder(folder: CachedDirectory, fresh: readonly CachedDirectory[]): void {
    const { outlet } = this.#options;
    const bodies = encodeDirectory(folder, fresh);
    // Which piece of several names what is not worth finding out.
    const names =
      bodies.length > 1
        ? []
        : [...folder.changedEntries.values(), ...fresh.map(({ entry }) => entry)].flatMap(hashesOf);
    const pieces: Piece[] = bodies.map((body, index) => ({
      index,
      hash: outlet.add(OBJECT_KINDS.tree, body, names),
    }));
    const content = buildContentRef(pieces, (kind, body) => outlet.add(kind, body));
    const entry = { ...folder.entry, content };
    if (!areSameEntries(entry, folder.entry)) folder.hasEntryChanged = true;
    folder.entry = entry;
    folder.encodedEntries = detachedCopy(
      bodies.length === 1 ? (bodies[0] ?? NOTHING) : Buffer.concat(bodies),
    );
    folder.changedEntries.clear();
    folder.encodedChanges = NOTHING;
    folder.isDirty = false;
    folder.haveNamesChanged = false;
  }
}

const NOTHING: Buffer = Buffer.alloc(0);

/** What opening a file without waiting gives while another program holds a lease on it. */
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
