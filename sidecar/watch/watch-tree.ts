import { type BigIntStats, type Dirent, fstatSync, lstatSync, opendirSync } from 'node:fs';
import { encodeName } from '../../protocol/paths.ts';
import type { FileChange, WatchMode } from '../../protocol/watch.ts';
import { type Directory, isPathError } from '../files/directory.ts';
import { hasTemporaryForm, type TemporaryEntries } from '../files/temporary-entries.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import type { WatchBudget } from './budget.ts';
import { EventQueue } from './event-queue.ts';
import type { Excludes } from './excludes.ts';
import { FolderRegistry } from './folder-registry.ts';
import {
  FolderOpener,
  identityOf,
  namesOf,
  signatureOf,
  timestampsOf,
  type WatchedFolder,
} from './watched-folder.ts';

/** Delay from the first change to the report of a batch. */
const BATCH_MS = 40;
const POLL_MS = 2000;
/** A polling pass may take one part in this many of the time. */
const POLL_SHARE = 10;
const SELF = '.';

export interface WatchListener {
  changed(path: string, kind: FileChange['kind']): void;
  /** Changes were lost: everything may be different. */
  overflow(): void;
  /** All changes of a batch were reported. */
  batchEnded(): void;
}

export interface WatchTreeOptions {
  /** The tree owns this folder. */
  readonly root: Directory;
  /** Changes of these entries are not reported. */
  readonly temporaryEntries: TemporaryEntries;
  /** Path of the folder, as the start of reported paths. */
  readonly path: string;
  readonly recursive: boolean;
  /** Report only this name. */
  readonly onlyName: Buffer | null;
  readonly excludes: Excludes | null;
  readonly budget: WatchBudget;
  readonly pollMs?: number;
}

/** A folder that is being read. */
interface FolderRead {
  readonly folder: WatchedFolder;
  /** Its changes cause no events. */
  readonly isPolled: boolean;
  /** Its entries at the last read. Null if they are not known. */
  readonly before: ReadonlyMap<string, string> | null;
}

/** An entry of a folder that is being read. */
interface FoundEntry {
  readonly name: string;
  /** Empty if it was not needed. */
  readonly signature: string;
  /** Null if it is not a folder. */
  readonly folderIdentity: string | null;
}

/**
 * Watches a folder and everything below it. Each folder gets an inotify watch before it is read, so that no change is
 * missed. Folders without a watch are polled every few seconds. No link is followed, and a folder that moved is not
 * read under its old name.
 */
export class WatchTree {
  readonly #options: WatchTreeOptions;
  readonly #folders: FolderRegistry;
  readonly #opener: FolderOpener;
  readonly #listeners = new Set<WatchListener>();
  readonly #ending = new AbortController();
  readonly #queue = new EventQueue();
  #work: Promise<void> = Promise.resolve();
  #batch: NodeJS.Timeout | undefined;
  #poll: NodeJS.Timeout | undefined;

  constructor(options: WatchTreeOptions) {
    this.#options = options;
    this.#opener = new FolderOpener(options.root);
    const identity = identityOf(fstatSync(options.root.fd, { bigint: true }));
    this.#folders = new FolderRegistry(identity, options.budget, {
      changed: (folder, event, name) => this.#onEvent(folder, event, name),
      watchLost: () => this.#schedulePoll(0),
    });
  }

  /** Resolves when every later change will be reported. */
  async start(): Promise<void> {
    this.#work = this.#scan([this.#folders.top], false);
    await this.#work;
    this.#schedulePoll(0);
  }

  get mode(): WatchMode {
    return this.#folders.isFullyWatched ? 'inotify' : 'polling';
  }

  listen(listener: WatchListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    this.#ending.abort();
    clearTimeout(this.#batch);
    clearTimeout(this.#poll);
    await this.#work.catch(() => undefined); // It fails because the tree is closing.
    this.#folders.removeTree(this.#folders.top);
    this.#opener.close();
    this.#options.root.close();
  }

  // inotify events

  #onEvent(folder: WatchedFolder, event: string, name: Buffer | null): void {
    if (this.#queue.countEvent()) this.#scheduleBatch();
    if (folder.isRemoved) return;
    const latin = name?.toString('latin1') ?? SELF;
    // An event of the folder itself also reaches its parent's watch. Only the top folder has no parent.
    if (latin === SELF && folder.parent !== null) return;
    this.#queue.add(folder, latin, event === 'rename');
    this.#scheduleBatch();
  }

  #scheduleBatch(): void {
    if (this.#batch !== undefined || this.#ending.signal.aborted) return;
    this.#batch = setTimeout(() => {
      this.#enqueue(() => this.#reportBatch());
    }, BATCH_MS);
  }

  /** Runs one task at a time: tasks share the open folder and the known entries. */
  #enqueue(work: () => Promise<void>): void {
    this.#work = this.#work
      .then(work)
      .catch((error: unknown) => {
        if (this.#ending.signal.aborted) return;
        console.error('watch:', error);
        this.#overflow();
      })
      // The folder may have moved by the next task.
      .finally(() => this.#opener.close());
  }

  async #reportBatch(): Promise<void> {
    this.#batch = undefined;
    const changed = this.#queue.take();
    if (changed === null) {
      this.#overflow();
      await this.#scan([this.#folders.top], false);
      return;
    }
    const slices = new TimeSlice(this.#ending.signal);
    for (const [folder, names] of changed) {
      if (folder.isRemoved) continue;
      for (const [name, renamed] of names) {
        if (name === SELF) this.#checkTop();
        else if (!this.#isExcluded(folder, name)) await this.#compareName(folder, name, renamed);
        if (slices.isUsedUp) await slices.yieldToEventLoop();
      }
    }
    this.#endBatch();
  }

  /** Compares one name with its known state and reports the difference. */
  async #compareName(folder: WatchedFolder, name: string, renamed: boolean): Promise<void> {
    const stat = this.#stat(folder, name);
    const child = folder.children.get(name);
    const known = folder.entries?.has(name);
    if (stat === null) {
      if (child !== undefined) this.#folders.removeTree(child);
      if (known !== false && !this.#options.temporaryEntries.wasRecentlyTemporary(name))
        this.#report(folder, name, 'deleted');
      this.#folders.deleteEntry(folder, name);
      return;
    }
    if (child !== undefined && (!stat.isDirectory() || identityOf(stat) !== child.identity)) {
      this.#folders.removeTree(child);
      // Another entry has the name now. What was below it is gone, without events.
      this.#overflow();
    }
    const isNew = known === false || (known === undefined && renamed);
    this.#folders.setEntry(folder, name, signatureOf(stat));
    this.#report(folder, name, isNew ? 'created' : 'changed');
    if (stat.isDirectory() && this.#options.recursive && !folder.children.has(name)) {
      await this.#scan(
        [this.#folders.addFolder(folder, name, identityOf(stat))].filter((one) => one !== null),
        true,
      );
    }
  }

  #checkTop(): void {
    const { root, path } = this.#options;
    if (fstatSync(root.fd).nlink > 0) return;
    for (const listener of this.#listeners) {
      listener.changed(path, 'deleted');
      listener.overflow();
    }
  }

  // Reading folders

  /** Watches and reads folders and everything below them. With `report`, reports all entries as created. */
  async #scan(from: readonly WatchedFolder[], report: boolean): Promise<void> {
    const slices = new TimeSlice(this.#ending.signal);
    const todo = [...from];
    for (let folder = todo.pop(); folder !== undefined; folder = todo.pop()) {
      if (!folder.isRemoved) todo.push(...(await this.#read(folder, report, slices)));
      if (slices.isUsedUp) await slices.yieldToEventLoop();
    }
  }

  /**
   * Reads a folder and stores its entries. Reports the changes that no inotify event reports: everything with `report`, and
   * all differences in a polled folder. Returns the child folders to read next.
   */
  async #read(folder: WatchedFolder, report: boolean, slices: TimeSlice): Promise<WatchedFolder[]> {
    const directory = this.#open(folder);
    if (directory === null) return [];
    this.#folders.watchOrPoll(folder, directory);
    const read: FolderRead = { folder, isPolled: folder.watcher === null, before: folder.entries };
    const entries = new Map<string, string>();
    const toRead: WatchedFolder[] = [];
    let fits = true;
    // A descriptor of its own: during a pause, other tasks may read other folders.
    const listing = opendirSync(directory.selfPath, { encoding: 'latin1', bufferSize: 512 });
    try {
      for (let entry = listing.readSync(); entry !== null; entry = listing.readSync()) {
        if (slices.isUsedUp) await slices.yieldToEventLoop();
        const found = this.#found(read, entry);
        if (found === null) continue;
        fits = fits && this.#folders.hasCapacityFor(folder, entries.size + 1);
        if (fits) entries.set(found.name, found.signature);
        if (report) this.#report(folder, found.name, 'created');
        else this.#reportDifference(read, found);
        const child = this.#childToRead(read, found);
        if (child !== null) toRead.push(child);
      }
    } finally {
      listing.closeSync();
    }
    if (fits) this.#removeMissing(read, entries);
    this.#folders.replaceEntries(folder, fits ? entries : null);
    return toRead;
  }

  /** An entry to watch. Null if it is excluded or already gone. Only a polled folder needs the stat of a file. */
  #found({ folder, isPolled }: FolderRead, entry: Dirent): FoundEntry | null {
    const { name } = entry;
    if (this.#isExcluded(folder, name)) return null;
    if (!isPolled && !entry.isDirectory()) return { name, signature: '', folderIdentity: null };
    const stat = this.#stat(folder, name);
    if (stat === null) return null;
    return {
      name,
      signature: signatureOf(stat),
      folderIdentity: stat.isDirectory() ? identityOf(stat) : null,
    };
  }

  /** Reports an entry of a polled folder that is new or has changed. A changed folder is reported when it is read itself. */
  #reportDifference(
    { folder, isPolled, before }: FolderRead,
    { name, signature, folderIdentity }: FoundEntry,
  ): void {
    if (before === null || !isPolled) return;
    const old = before.get(name);
    if (old === undefined) this.#report(folder, name, 'created');
    else if (old !== signature && old !== '' && folderIdentity === null)
      this.#report(folder, name, 'changed');
  }

  /** The child folder that an entry is, if it must be read now. A polled folder's known children are polled themselves. */
  #childToRead({ folder, isPolled }: FolderRead, { name, folderIdentity }: FoundEntry): WatchedFolder | null {
    if (folderIdentity === null || !this.#options.recursive) return null;
    const child = folder.children.get(name);
    if (child?.identity === folderIdentity) {
      return !isPolled || this.#wasNeverRead(child) ? child : null;
    }
    if (child !== undefined) {
      this.#folders.removeTree(child);
      this.#overflow();
    }
    return this.#folders.addFolder(folder, name, folderIdentity);
  }

  /** Removes children that are gone. Reports missing entries of a polled folder. */
  #removeMissing({ folder, isPolled, before }: FolderRead, entries: ReadonlyMap<string, string>): void {
    if (before === null) return;
    for (const name of before.keys()) {
      if (entries.has(name)) continue;
      const child = folder.children.get(name);
      if (child !== undefined) this.#folders.removeTree(child);
      if (isPolled) this.#report(folder, name, 'deleted');
    }
  }

  /** Was never read. */
  #wasNeverRead(folder: WatchedFolder): boolean {
    return folder.entries === null && folder.timestamps === '';
  }

  // Polling

  #schedulePoll(tookMs: number): void {
    clearTimeout(this.#poll);
    if (!this.#folders.hasPolledFolders || this.#ending.signal.aborted) return;
    const pause = Math.max(this.#options.pollMs ?? POLL_MS, tookMs * POLL_SHARE);
    this.#poll = setTimeout(() => this.#enqueue(() => this.#pollAll()), pause);
  }

  async #pollAll(): Promise<void> {
    const since = performance.now();
    const slices = new TimeSlice(this.#ending.signal);
    const todo = [this.#folders.top];
    for (let folder = todo.pop(); folder !== undefined; folder = todo.pop()) {
      if (folder.isRemoved) continue;
      if (folder.watcher === null) await this.#pollOne(folder, slices);
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      todo.push(...folder.children.values());
    }
    this.#checkTop();
    this.#endBatch();
    this.#schedulePoll(performance.now() - since);
  }

  async #pollOne(folder: WatchedFolder, slices: TimeSlice): Promise<void> {
    const directory = this.#open(folder);
    if (directory === null) return;
    const stamp = timestampsOf(directory);
    if (folder.entries === null && folder.timestamps !== stamp && folder.timestamps !== 'unknown') {
      this.#reportFolder(folder);
    }
    folder.timestamps = stamp;
    const fresh = await this.#read(folder, false, slices);
    if (fresh.length > 0) await this.#scan(fresh, true);
  }

  #open(folder: WatchedFolder): Directory | null {
    try {
      const directory = this.#opener.open(folder);
      if (identityOf(fstatSync(directory.fd, { bigint: true })) === folder.identity) return directory;
    } catch (error) {
      if (!isPathError(error)) throw error;
    }
    // Moved, removed or replaced. The parent folder gets an event for that.
    this.#opener.close();
    return null;
  }

  #stat(folder: WatchedFolder, name: string): BigIntStats | null {
    const directory = this.#open(folder);
    if (directory === null) return null;
    try {
      return lstatSync(directory.pathOf(Buffer.from(name, 'latin1')), { bigint: true });
    } catch (error) {
      if (isPathError(error)) return null;
      throw error;
    }
  }

  #isTemporary(folder: WatchedFolder, name: string): boolean {
    if (!hasTemporaryForm(name)) return false;
    const directory = this.#open(folder);
    return directory !== null && this.#options.temporaryEntries.isTemporary(directory.fd, name);
  }

  #isExcluded(folder: WatchedFolder, name: string): boolean {
    const { onlyName: only, excludes } = this.#options;
    if (this.#isTemporary(folder, name)) return true;
    if (only !== null) return !only.equals(Buffer.from(name, 'latin1'));
    if (excludes === null) return false;
    return excludes(
      [...namesOf(folder), name].map((one) => encodeName(Buffer.from(one, 'latin1'))).join('/'),
    );
  }

  #report(folder: WatchedFolder, name: string, kind: FileChange['kind']): void {
    const path = this.#encodedPath([...namesOf(folder), name]);
    for (const listener of this.#listeners) listener.changed(path, kind);
  }

  #reportFolder(folder: WatchedFolder): void {
    for (const listener of this.#listeners) listener.changed(this.#encodedPath(namesOf(folder)), 'changed');
  }

  #encodedPath(names: readonly string[]): string {
    return [this.#options.path, ...names.map((one) => encodeName(Buffer.from(one, 'latin1')))].join('/');
  }

  #overflow(): void {
    for (const listener of this.#listeners) listener.overflow();
    this.#endBatch();
  }

  #endBatch(): void {
    for (const listener of this.#listeners) listener.batchEnded();
  }
}
