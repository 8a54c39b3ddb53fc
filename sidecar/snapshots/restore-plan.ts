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

/** Limit of directories that are read in advance, level by level. */
const MAX_READ_AHEAD = 1000;

/** Entries of a directory in the snapshot and in the workspace, paired by name, the last name first. */
type Pairs = [TreeEntry | null, TreeEntry | null][];
type Mutable<T> = { -readonly [K in keyof T]: T[K] };

export interface PlanOptions {
  readonly objects: RemoteObjects;
  readonly links: HardLinks;
  /** Returns a new name in the staging directory. Null for a dry run. */
  readonly newName: (() => Buffer) | null;
  /** The path to restore. Empty: everything. */
  readonly path: readonly Buffer[];
  readonly check: () => void;
}

/** A new entry, and the directory that it will be placed in. */
export interface PlannedEntry extends StagedEntry {
  readonly directory: CachedDirectory;
}

/**
 * Compares the workspace with a snapshot. Once everything in `toStage` is in the staging directory, the steps need no
 * content. Directories with equal content are skipped.
 */
export class RestorePlan {
  readonly steps: RestoreStep[] = [];
  readonly counts: Mutable<RestoreResult> = { created: 0, replaced: 0, removed: 0, touched: 0, bytes: 0 };
  readonly #options: PlanOptions;
  /** What `#readAhead` has read. */
  readonly #ahead = new Map<CachedDirectory, Pairs>();
  /** The entries that the steps expect in the staging directory. */
  readonly toStage: PlannedEntry[] = [];
  /** Hard link groups that were counted. */
  readonly #groups = new Set<string>();

  constructor(options: PlanOptions) {
    this.#options = options;
  }

  /** The attributes of the top directory are not among the steps. */
  async compute(root: DirectoryEntry, known: CachedDirectory): Promise<void> {
    for (const { hash } of root.content.items) this.#options.objects.expect(hash);
    await this.#readAhead(root, known, this.#options.path);
    await this.#compare(root, known, this.#options.path);
    const isWhole = this.#options.path.length === 0;
    if (isWhole && this.steps.length === 0 && !haveSameAttributes(root, known.entry))
      this.counts.touched += 1;
  }

  /** Fetches each level of differing directories at once. One by one, each would cost a round trip. */
  async #readAhead(
    wanted: DirectoryEntry,
    directory: CachedDirectory,
    only: readonly Buffer[],
  ): Promise<void> {
    let level = [{ wanted, directory, only }];
    for (let left = MAX_READ_AHEAD; level.length > 0 && left > 0; left -= level.length) {
      const below: typeof level = [];
      for (const one of level.slice(0, left)) {
        this.#options.check();
        const pairs = await this.#pairs(one.wanted, one.directory, one.only);
        this.#ahead.set(one.directory, pairs);
        const rest = one.only.slice(1);
        for (const [next, current] of pairs) {
          if (next?.type !== 'directory' || current?.type !== 'directory') continue;
          const present = one.directory.children.find(({ name }) => name.equals(current.name));
          const differs = rest.length > 0 || !haveSameContent(next, current);
          if (present !== undefined && differs) below.push({ wanted: next, directory: present, only: rest });
        }
      }
      level = below;
    }
  }

  /** Compares two directories. `only`: the names on the path to restore. */
  async #compare(wanted: DirectoryEntry, directory: CachedDirectory, only: readonly Buffer[]): Promise<void> {
    interface Level {
      readonly wanted: DirectoryEntry;
      readonly directory: CachedDirectory;
      readonly only: readonly Buffer[];
      readonly left: Pairs;
      /** Index of its first step. */
      readonly begin: number;
    }
    const enter = async (
      entry: DirectoryEntry,
      present: CachedDirectory,
      names: readonly Buffer[],
    ): Promise<Level> => ({
      wanted: entry,
      directory: present,
      only: names,
      left: this.#ahead.get(present) ?? (await this.#pairs(entry, present, names)),
      begin: this.steps.length,
    });
    const levels = [await enter(wanted, directory, only)];
    for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
      this.#options.check();
      const pair = level.left.pop();
      if (pair === undefined) {
        levels.pop();
        const parent = levels.at(-1);
        if (parent === undefined) return;
        this.#close(level.wanted, level.directory, level.begin, level.only.length > 0);
        continue;
      }
      const [next, current] = pair;
      const rest = level.only.slice(1);
      // An entry that the snapshot could not read stays as it is.
      if (next !== null && isMissing(next)) {
        if (level.only.length > 0) throw unreadInSnapshot(this.#options.path);
        continue;
      }
      if (rest.length > 0 && next?.type !== 'directory') throw notInSnapshot(this.#options.path);
      if (next?.type === 'directory' && current?.type === 'directory') {
        const below = level.directory.children.find(({ name }) => name.equals(current.name));
        if (below === undefined) throw changedDuringRestore();
        if (rest.length > 0 || !haveSameContent(next, current)) {
          const begin = this.steps.length;
          this.steps.push({ step: 'enter', name: current.name, inode: inodeOf(below.fingerprint) });
          levels.push({ ...(await enter(next, below, rest)), begin });
        } else if (!haveSameAttributes(next, current)) {
          this.steps.push(
            { step: 'enter', name: current.name, inode: inodeOf(below.fingerprint) },
            { step: 'leave', entry: next },
          );
          this.counts.touched += 1;
        }
      } else if (next === null) {
        if (current !== null) this.#remove(level.directory, current);
      } else await this.#place(level.directory, next, current, rest);
    }
  }

  /** Ends the steps of a directory. */
  #close(wanted: DirectoryEntry, directory: CachedDirectory, begin: number, isAncestor: boolean): void {
    const isSame = haveSameAttributes(wanted, directory.entry);
    if (this.steps.length === begin + 1 && (isAncestor || isSame)) {
      this.steps.pop();
      return;
    }
    if (this.steps.length === begin + 1) this.counts.touched += 1;
    this.steps.push({ step: 'leave', entry: isAncestor ? null : wanted });
  }

  async #pairs(wanted: DirectoryEntry, directory: CachedDirectory, only: readonly Buffer[]): Promise<Pairs> {
    const { objects } = this.#options;
    const present = directory.decodeEntries();
    const pairs: Pairs = [];
    const [name] = only;
    for await (const entry of entriesOf(objects, wanted)) {
      const key = nameKey(entry.name);
      const current = present.get(key) ?? null;
      present.delete(key);
      if (name !== undefined && !entry.name.equals(name)) continue;
      if (entry.type === 'directory' && current?.type === 'directory' && !haveSameContent(entry, current)) {
        for (const { hash } of entry.content.items) objects.expect(hash);
      }
      pairs.push([entry, current]);
    }
    if (name === undefined) for (const entry of present.values()) pairs.push([null, entry]);
    else if (pairs.length === 0) {
      throw notInSnapshot(this.#options.path);
    }
    return pairs.reverse();
  }

  #remove(directory: CachedDirectory, current: TreeEntry): void {
    const isFolder = current.type === 'directory';
    this.counts.removed += isFolder ? namesIn(directory, current.name) : 1;
    this.steps.push({ step: 'remove', name: current.name, present: isFolder ? 'folder' : 'file' });
  }

  /** An entry that is missing or has another type. `rest`: the remaining names on the path to restore. */
  async #place(
    directory: CachedDirectory,
    next: TreeEntry,
    current: TreeEntry | null,
    rest: readonly Buffer[],
  ): Promise<void> {
    if (current !== null && rest.length > 0) {
      throw new HoldfastError('file_not_a_directory', 'The path cannot be restored', {
        why: 'it leads through something that is no longer a folder',
        next: 'restore the parent folder',
      });
    }
    const isKnown = current !== null && !isMissing(current);
    if (
      isKnown &&
      next.type !== 'directory' &&
      haveSameContent(next, current) &&
      haveSameGroup(next, current)
    ) {
      if (haveSameAttributes(next, current)) return;
      this.steps.push({ step: 'dress', entry: next, inode: inodeOfName(directory, next.name) });
      this.counts.touched += 1;
      return;
    }
    let present: Existing = 'nothing';
    if (current === null) this.counts.created += 1;
    else {
      this.counts.replaced += 1;
      present = current.type === 'directory' ? 'folder' : 'file';
      if (current.type === 'directory') this.counts.removed += namesIn(directory, current.name) - 1;
    }
    const { objects, newName } = this.#options;
    let staged = NOT_STAGED;
    if (newName === null) await this.#count(next, rest);
    else {
      staged = newName();
      if (next.type === 'directory' || (next.type === 'file' && next.linkGroup === null)) {
        for (const { hash } of next.content.items) objects.expect(hash);
      }
      this.toStage.push({ staged, entry: next, only: rest, directory });
    }
    this.steps.push({ step: 'place', entry: next, staged, present });
  }

  /** Counts what `StagingBuilder` would create. */
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
    // The size of the data is known only from the piece itself.
    else
      for await (const { bytes } of readContent(this.#options.objects, entry))
        this.counts.bytes += bytes.length;
  }
}

/** Number of entries in a directory tree, including the directory. */
function namesIn(parent: CachedDirectory, name: Buffer): number {
  const top = parent.children.find((directory) => directory.name.equals(name));
  let count = 1;
  for (const directory of top?.withDescendants() ?? []) {
    for (let at = 0; at < directory.dirents.length; at += direntLength(directory.dirents, at)) {
      if (!isDotEntry(directory.dirents, at)) count += 1;
    }
  }
  return count;
}

function inodeOfName(directory: CachedDirectory, name: Buffer): bigint {
  let index = 0;
  for (let at = 0; at < directory.dirents.length; at += direntLength(directory.dirents, at)) {
    if (isDotEntry(directory.dirents, at)) continue;
    if (direntName(directory.dirents, at).equals(name)) return inodeOf(directory.fingerprints, index);
    index += FINGERPRINT_WORDS;
  }
  throw changedDuringRestore();
}
