import { type FSWatcher, watch } from 'node:fs';
import type { Directory } from '../files/directory.ts';
import { errnoOf } from '../files/directory.ts';

/** Interval of an extra check while inotify works: events are lost when the kernel's queue overflows. */
const RECHECK_MS = 250;
const POLL_MS = { first: 20, most: 250 } as const;

/** How changes are detected. `polling`: this user has no inotify instance or watch left. */
export type WatchMode = 'inotify' | 'polling';

/**
 * Notifies its listeners when a directory may have changed. Spurious notifications happen. While somebody listens, a
 * missed event is made up for within 250 ms. Without inotify it polls: every 20 ms at first, then less often.
 */
export class DirectoryWatcher {
  readonly #listeners = new Set<() => void>();
  readonly #directory: Directory;
  readonly #onMode: (mode: WatchMode) => void;
  #watcher: FSWatcher | undefined;
  #timer: NodeJS.Timeout | undefined;
  #waitMs: number = POLL_MS.first;
  #closed = false;

  /** Keeps the directory open until `close`. Calls `onMode` with the mode in use. */
  constructor(directory: Directory, onMode: (mode: WatchMode) => void) {
    this.#directory = directory;
    this.#onMode = onMode;
    this.#watch();
  }

  /** Returns a function that removes the listener. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    this.#waitMs = POLL_MS.first;
    this.#schedule();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#unschedule();
    };
  }

  /** Reports a change that the sidecar made itself. */
  notify(): void {
    for (const listener of [...this.#listeners]) listener();
  }

  close(): void {
    this.#closed = true;
    this.#watcher?.close();
    this.#watcher = undefined;
    this.#unschedule();
    this.notify();
    this.#listeners.clear();
  }

  #watch(): void {
    try {
      const watcher = watch(this.#directory.selfPath, { persistent: false });
      this.#watcher = watcher;
      watcher.on('change', () => {
        this.#waitMs = POLL_MS.first;
        this.notify();
      });
      watcher.on('error', (error) => this.#fallBack(error));
      this.#onMode('inotify');
    } catch (error) {
      this.#fallBack(error);
    }
  }

  #fallBack(error: unknown): void {
    this.#watcher?.close();
    this.#watcher = undefined;
    switch (errnoOf(error)) {
      case 'EMFILE':
      case 'ENFILE':
      case 'ENOSPC':
      case 'ENOMEM':
        this.#onMode('polling');
        break;
      case undefined:
      default:
        // The directory is gone. Its readers find out when they read it.
        break;
    }
    this.#schedule();
  }

  #schedule(): void {
    this.#unschedule();
    if (this.#closed || this.#listeners.size === 0) return;
    const wait = this.#watcher === undefined ? this.#waitMs : RECHECK_MS;
    this.#timer = setTimeout(() => {
      this.#waitMs = Math.min(this.#waitMs * 1.5, POLL_MS.most);
      this.notify();
      this.#schedule();
    }, wait);
  }

  #unschedule(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
