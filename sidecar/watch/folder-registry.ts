import { type FSWatcher, watch } from 'node:fs';
import { type Directory, errnoOf, isPathError } from '../files/directory.ts';
import type { WatchBudget } from './budget.ts';
import { newFolder, timestampsOf, type WatchedFolder } from './watched-folder.ts';

/** How long to wait before trying inotify again after the watches ran out. */
const RETRY_MS = 30_000;

export interface FolderEvents {
  changed(folder: WatchedFolder, event: string, name: Buffer | null): void;
  /** The kernel dropped the watch. The folder is polled from now on. */
  watchLost(): void;
}

/**
 * The folders of one tree with their known entries and inotify watches. It stays within the budget and returns
 * everything that it used.
 */
export class FolderRegistry {
  readonly top: WatchedFolder;
  readonly #budget: WatchBudget;
  readonly #events: FolderEvents;
  #polled = 0;
  #isOverBudget = false;
  #retryAt = 0;

  constructor(topIdentity: string, budget: WatchBudget, events: FolderEvents) {
    this.top = newFolder(null, '', topIdentity);
    this.#budget = budget;
    this.#events = events;
    budget.folders += 1;
  }

  get hasPolledFolders(): boolean {
    return this.#polled > 0;
  }

  /** False if a part of the tree is polled or beyond the budget. */
  get isFullyWatched(): boolean {
    return this.#polled === 0 && !this.#isOverBudget;
  }

  /** Null if the budget is used up. */
  addFolder(parent: WatchedFolder, name: string, identity: string): WatchedFolder | null {
    if (!this.#budget.hasFolder) {
      this.#isOverBudget = true;
      return null;
    }
    this.#budget.folders += 1;
    const child = newFolder(parent, name, identity);
    parent.children.set(name, child);
    return child;
  }

  setEntry(folder: WatchedFolder, name: string, signature: string): void {
    if (folder.entries === null) return;
    if (!folder.entries.has(name)) {
      if (!this.#budget.hasNames(1)) {
        this.#budget.names -= folder.entries.size;
        folder.entries = null;
        return;
      }
      this.#budget.names += 1;
    }
    folder.entries.set(name, signature);
  }

  deleteEntry(folder: WatchedFolder, name: string): void {
    if (folder.entries?.delete(name) === true) this.#budget.names -= 1;
  }

  /** Whether the budget allows this number of names in place of the folder's current entries. */
  hasCapacityFor(folder: WatchedFolder, names: number): boolean {
    return this.#budget.hasNames(names - (folder.entries?.size ?? 0));
  }

  /** Replaces the known entries. Null: stores none. */
  replaceEntries(folder: WatchedFolder, entries: Map<string, string> | null): void {
    this.#budget.names += (entries?.size ?? 0) - (folder.entries?.size ?? 0);
    folder.entries = entries;
  }

  /** Puts an inotify watch on a folder without one. If none is available, the folder is polled. */
  watchOrPoll(folder: WatchedFolder, directory: Directory): void {
    if (folder.watcher !== null) return;
    const wasPolled = folder.timestamps !== '';
    if (this.#budget.hasWatch && performance.now() >= this.#retryAt) {
      const watcher = tryWatch(directory, (event, name) => this.#events.changed(folder, event, name));
      if (watcher !== null) {
        watcher.on('error', () => this.#dropWatch(folder));
        folder.watcher = watcher;
        folder.timestamps = '';
        this.#budget.watches += 1;
        if (wasPolled) this.#polled -= 1;
        return;
      }
      this.#retryAt = performance.now() + RETRY_MS;
    }
    if (!wasPolled) this.#polled += 1;
    folder.timestamps = timestampsOf(directory);
  }

  #dropWatch(folder: WatchedFolder): void {
    if (folder.watcher === null) return;
    folder.watcher.close();
    folder.watcher = null;
    this.#budget.watches -= 1;
    if (folder.isRemoved) return;
    folder.timestamps = 'unknown';
    this.#polled += 1;
    this.#events.watchLost();
  }

  /** Removes a folder and everything below it. */
  removeTree(top: WatchedFolder): void {
    const todo = [top];
    for (let folder = todo.pop(); folder !== undefined; folder = todo.pop()) {
      if (folder.isRemoved) continue;
      folder.isRemoved = true;
      if (folder.watcher !== null) {
        folder.watcher.close();
        folder.watcher = null;
        this.#budget.watches -= 1;
      } else if (folder.timestamps !== '') this.#polled -= 1;
      this.#budget.folders -= 1;
      this.replaceEntries(folder, null);
      todo.push(...folder.children.values());
    }
    top.parent?.children.delete(top.name);
  }
}

/** Null if no inotify watch is available, or if the folder was removed. */
function tryWatch(
  directory: Directory,
  onEvent: (event: string, name: Buffer | null) => void,
): FSWatcher | null {
  try {
    // Through the descriptor, so the watch is on this folder even if its name was reused.
    return watch(directory.selfPath, { encoding: 'buffer', persistent: false }, onEvent);
  } catch (error) {
    switch (errnoOf(error)) {
      case 'EMFILE':
      case 'ENFILE':
      case 'ENOSPC':
      case 'ENOMEM':
        return null;
      case undefined:
      default:
        if (isPathError(error)) return null;
        throw error;
    }
  }
}
