import { type FSWatcher, watch } from 'node:fs';
import type { Directory } from '../files/directory.ts';
import { errnoOf } from '../files/directory.ts';

/** How often to look although nothing was said: events may be lost when their queue overflows. */
const SAFETY_MS = 250;
const POLL_MS = { first: 20, most: 250 } as const;

/** Which way changes become known: `polling` when the machine has no inotify instance or watch left for this user. */
export type WatchMode = 'inotify' | 'polling';

/**
 * Tells when something in a directory may have changed. Spurious calls happen; a missed one is made up for within 250 ms
 * while somebody listens. Without inotify it polls, from 20 ms on, slower while nothing happens.
 */
export class DirectoryWatcher {
  readonly #listeners = new Set<() => void>();
  readonly #directory: Directory;
  readonly #onMode: (mode: WatchMode) => void;
  #watcher: FSWatcher | undefined;
  #timer: NodeJS.Timeout | undefined;
  #waitMs: number = POLL_MS.first;
  #closed = false;

  /** The directory stays open as long as this; `onMode` hears which way it goes. */
  constructor(directory: Directory, onMode: (mode: WatchMode) => void) {
    this.#directory = directory;
    this.#onMode = onMode;
    this.#watch();
  }

  /** Returns the end of it. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    this.#waitMs = POLL_MS.first;
    this.#arm();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#disarm();
    };
  }

  /** For a change that we made ourselves. */
  notify(): void {
    for (const listener of [...this.#listeners]) listener();
  }

  close(): void {
    this.#closed = true;
    this.#watcher?.close();
    this.#watcher = undefined;
    this.#disarm();
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
        // The directory itself is gone: there is nothing more to hear, and its readers find out by looking.
        break;
    }
    this.#arm();
  }

  #arm(): void {
    this.#disarm();
    if (this.#closed || this.#listeners.size === 0) return;
    const wait = this.#watcher === undefined ? this.#waitMs : SAFETY_MS;
    this.#timer = setTimeout(() => {
      this.#waitMs = Math.min(this.#waitMs * 1.5, POLL_MS.most);
      this.notify();
      this.#arm();
    }, wait);
  }

  #disarm(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
