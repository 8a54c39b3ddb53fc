import { HoldfastError } from '../../protocol/errors.ts';
import type { RestoreResult } from '../../snapshot-format/sidecar-calls.ts';
import { readContent } from '../../snapshot-format/content.ts';
import {
  type DirectoryEntry,
  entriesOf,
  type FileEntry,
  type TreeEntry,
} from '../../snapshot-format/entries.ts';
import { isMissing } from '../../snapshot-format/missing-entry.ts';
import type { RemoteObjects } from './remote-objects.ts';
import { changedDuringRestore } from './attributes.ts';
import { FINGERPRINT_WORDS, inodeOf } from './fingerprint.ts';
import type { CachedDirectory } from './cached-directory.ts';
import { nameKey } from './cached-directory.ts';
import type { HardLinks } from './hard-links.ts';
import { unreadInSnapshot, notInSnapshot, type StagedEntry } from './staging-builder.ts';
import { isDotEntry, direntLength, direntName } from './dirents.ts';
import type { Existing, RestoreStep } from './restore-steps.ts';
import { haveSameAttributes, haveSameContent, haveSameGroup } from './compare-entries.ts';

const NOT_STAGED: Buffer = Buffer.alloc(0);

/** Directories that are read in advance, level by level. */
const AHEAD_FOLDERS = 1000;

/** Entries of a directory in the snapshot and in the workspace, by name, the last name first. */
type Pairs = [TreeEntry | null, TreeEntry | null][];
type Mutable<T> = { -readonly [K in keyof T]: T[K] };

export interface PlanOptions {
  readonly objects: RemoteObjects;
  readonly links: HardLinks;
  /** A new name in the staging folder; null: nothing will be made, it is only counted. */
  readonly newName: (() => Buffer) | null;
  /** Names of the path that is to be restored; empty: everything. */
  readonly path: readonly Buffer[];
  readonly check: () => void;
}

/** Something new, and the directory that it will be in. */
export interface PlannedEntry extends StagedEntry {
  readonly folder: CachedDirectory;
}

/**
 * Compares the workspace with a snapshot. The steps that it gives take no content from anywhere once everything that is wanted is in
 * the staging folder. Directories whose content is the same are not looked into.
 */
export class RestorePlan {
  readonly steps: RestoreStep[] = [];
  readonly counts: Mutable<RestoreResult> = { created: 0, replaced: 0, removed: 0, touched: 0, bytes: 0 };
  readonly #options: PlanOptions;
  /** What `#lookAhead` has found. */
  readonly #ahead = new Map<CachedDirectory, Pairs>();
  /** What the steps will find in the staging folder. */
  readonly toStage: PlannedEntry[] = [];
  /** Groups that were counted. */
  readonly #groups = new Set<string>();

  constructor(options: PlanOptions) {
    this.#options = options;
  }

  /** The top directory's own attributes are not among the steps. */
  async compute(root: DirectoryEntry, known: CachedDirectory): Promise<void> {
    for (const { hash } of root.content.items) this.#options.objects.expect(hash);
    await this.#lookAhead(root, known, this.#options.path);
    await this.#compare(root, known, this.#options.path);
    const isWhole = this.#options.path.length === 0;
    if (isWhole && this.steps.length === 0 && !haveSameAttributes(root, known.entry))
      this.counts.touched += 1;
  }

  /** Each level of folders that differ is brought at once: one by one they would cost a round trip for each folder that has some. */
  async #lookAhead(wanted: DirectoryEntry, folder: CachedDirectory, only: readonly Buffer[]): Promise<void> {
    let level = [{ wanted, folder, only }];
    for (let left = AHEAD_FOLDERS; level.length > 0 && left > 0; left -= level.length) {
      const below: typeof level = [];
      for (const one of level.slice(0, left)) {
        this.#options.check();
        const pairs = await this.#pairs(one.wanted, one.folder, one.only);
        this.#ahead.set(one.folder, pairs);
        const rest = one.only.slice(1);
        for (const [next, now] of pairs) {
          if (next?.type !== 'directory' || now?.type !== 'directory') continue;
          const present = one.folder.children.find(({ name }) => name.equals(now.name));
          const differs = rest.length > 0 || !haveSameContent(next, now);
          if (present !== undefined && differs) below.push({ wanted: next, folder: present, only: rest });
        }
      }
      level = below;
    }
  }

  /** What is in two directories. `only`: the names on the way to what is to be restored. */
  async #compare(wanted: DirectoryEntry, folder: CachedDirectory, only: readonly Buffer[]): Promise<void> {
    interface Level {
      readonly wanted: DirectoryEntry;
      readonly folder: CachedDirectory;
      readonly only: readonly Buffer[];
      readonly left: Pairs;
      /** Where its first step is. */
      readonly begin: number;
    }
    const enter = async (
      entry: DirectoryEntry,
      present: CachedDirectory,
      names: readonly Buffer[],
    ): Promise<Level> => ({
      wanted: entry,
      folder: present,
      only: names,
      left: this.#ahead.get(present) ?? (await this.#pairs(entry, present, names)),
      begin: this.steps.length,
    });
    const levels = [await enter(wanted, folder, only)];
    for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
      this.#options.check();
      const pair = level.left.pop();
      if (pair === undefined) {
        levels.pop();
        const parent = levels.at(-1);
        if (parent === undefined) return;
        this.#close(level.wanted, level.folder, level.begin, level.only.length > 0);
        continue;
      }
      const [next, now] = pair;
      const rest = level.only.slice(1);
      // What the snapshot lacks stays as it is.
      if (next !== null && isMissing(next)) {
        if (level.only.length > 0) throw unreadInSnapshot(this.#options.path);
        continue;
      }
      if (rest.length > 0 && next?.type !== 'directory') throw notInSnapshot(this.#options.path);
      if (next?.type === 'directory' && now?.type === 'directory') {
        const below = level.folder.children.find(({ name }) => name.equals(now.name));
        if (below === undefined) throw changedDuringRestore();
        if (rest.length > 0 || !haveSameContent(next, now)) {
          const begin = this.steps.length;
          this.steps.push({ step: 'enter', name: now.name, inode: inodeOf(below.fingerprint) });
          levels.push({ ...(await enter(next, below, rest)), begin });
        } else if (!haveSameAttributes(next, now)) {
          this.steps.push(
            { step: 'enter', name: now.name, inode: inodeOf(below.fingerprint) },
            { step: 'leave', entry: next },
          );
          this.counts.touched += 1;
        }
      } else if (next === null) {
        if (now !== null) this.#remove(level.folder, now);
      } else await this.#put(level.folder, next, now, rest);
    }
  }

  /** Steps in a directory are over. */
  #close(wanted: DirectoryEntry, folder: CachedDirectory, begin: number, isOnTheWay: boolean): void {
    const isSame = haveSameAttributes(wanted, folder.entry);
    if (this.steps.length === begin + 1 && (isOnTheWay || isSame)) {
      this.steps.pop();
      return;
    }
    if (this.steps.length === begin + 1) this.counts.touched += 1;
    this.steps.push({ step: 'leave', entry: isOnTheWay ? null : wanted });
  }

  async #pairs(wanted: DirectoryEntry, folder: CachedDirectory, only: readonly Buffer[]): Promise<Pairs> {
    const { objects } = this.#options;
    const present = folder.decodeEntries();
    const pairs: Pairs = [];
    const [name] = only;
    for await (const entry of entriesOf(objects, wanted)) {
      const key = nameKey(entry.name);
      const now = present.get(key) ?? null;
      present.delete(key);
      if (name !== undefined && !entry.name.equals(name)) continue;
      if (entry.type === 'directory' && now?.type === 'directory' && !haveSameContent(entry, now)) {
        for (const { hash } of entry.content.items) objects.expect(hash);
      }
      pairs.push([entry, now]);
    }
    if (name === undefined) for (const entry of present.values()) pairs.push([null, entry]);
    else if (pairs.length === 0) {
      throw notInSnapshot(this.#options.path);
    }
    return pairs.reverse();
  }

  #remove(folder: CachedDirectory, now: TreeEntry): void {
    const isFolder = now.type === 'directory';
    this.counts.removed += isFolder ? namesIn(folder, now.name) : 1;
    this.steps.push({ step: 'remove', name: now.name, present: isFolder ? 'folder' : 'file' });
  }

  /** What is not there, or is something else. `rest`: names below it that alone are wanted. */
  async #put(
    folder: CachedDirectory,
    next: TreeEntry,
    now: TreeEntry | null,
    rest: readonly Buffer[],
  ): Promise<void> {
    if (now !== null && rest.length > 0) {
      throw new HoldfastError('file_not_a_directory', 'The path cannot be restored', {
        why: 'it leads through something that is no folder now',
        next: 'restore the folder above',
      });
    }
    const isKnown = now !== null && !isMissing(now);
    if (isKnown && next.type !== 'directory' && haveSameContent(next, now) && haveSameGroup(next, now)) {
      if (haveSameAttributes(next, now)) return;
      this.steps.push({ step: 'dress', entry: next, inode: inodeOfName(folder, next.name) });
      this.counts.touched += 1;
      return;
    }
    let present: Existing = 'nothing';
    if (now === null) this.counts.created += 1;
    else {
      this.counts.replaced += 1;
      present = now.type === 'directory' ? 'folder' : 'file';
      if (now.type === 'directory') this.counts.removed += namesIn(folder, now.name) - 1;
    }
    const { objects, newName } = this.#options;
    let staged = NOT_STAGED;
    if (newName === null) await this.#count(next, rest);
    else {
      staged = newName();
      if (next.type === 'directory' || (next.type === 'file' && next.linkGroup === null)) {
        for (const { hash } of next.content.items) objects.expect(hash);
      }
      this.toStage.push({ staged, entry: next, only: rest, folder });
    }
    this.steps.push({ step: 'place', entry: next, staged, present });
  }

  /** What `Maker` would count. */
  async #count(entry: TreeEntry, rest: readonly Buffer[]): Promise<void> {
    const { objects, check } = this.#options;
    const waiting: { entry: TreeEntry; rest: readonly Buffer[] }[] = [{ entry, rest }];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      check();
      if (next.entry.type === 'file') await this.#countFile(next.entry);
      if (next.entry.type !== 'directory') continue;
      const [name] = next.rest;
      for await (const below of entriesOf(objects, next.entry)) {
        if (name !== undefined && !below.name.equals(name)) continue;
        if (isMissing(below)) continue;
        this.counts.created += 1;
        waiting.push({ entry: below, rest: next.rest.slice(1) });
      }
    }
  }

  async #countFile(entry: FileEntry): Promise<void> {
    if (entry.linkGroup !== null) {
      const key = nameKey(entry.linkGroup);
      const isPlain = this.#options.path.length > 0;
      if (this.#groups.has(key) || this.#options.links.find(entry, isPlain) !== null) return;
      this.#groups.add(key);
    }
    if (!entry.sparse) this.counts.bytes += entry.size;
    // How much of a piece is data stands in the piece only.
    else
      for await (const { bytes } of readContent(this.#options.objects, entry))
        this.counts.bytes += bytes.length;
  }
}

/** Of a directory and all below it, itself counted. */
function namesIn(parent: CachedDirectory, name: Buffer): number {
  const top = parent.children.find((folder) => folder.name.equals(name));
  let count = 1;
  for (const folder of top?.withDescendants() ?? []) {
    for (let at = 0; at < folder.dirents.length; at += direntLength(folder.dirents, at)) {
      if (!isDotEntry(folder.dirents, at)) count += 1;
    }
  }
  return count;
}

function inodeOfName(folder: CachedDirectory, name: Buffer): bigint {
  let index = 0;
  for (let at = 0; at < folder.dirents.length; at += direntLength(folder.dirents, at)) {
    if (isDotEntry(folder.dirents, at)) continue;
    if (direntName(folder.dirents, at).equals(name)) return inodeOf(folder.fingerprints, index);
    index += FINGERPRINT_WORDS;
  }
  throw changedDuringRestore();
}
