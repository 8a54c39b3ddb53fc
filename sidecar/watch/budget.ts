/**
 * Limits for all watches of one sidecar, so that a large tree exhausts neither the machine's inotify watches nor
 * memory.
 */
export interface WatchLimits {
  /** Folders with an inotify watch. The others are polled. */
  readonly watches: number;
  /** Names that are stored. */
  readonly names: number;
  /** Folders that are watched or polled. Changes in further folders are not reported one by one. */
  readonly folders: number;
}
export const WATCH_LIMITS: WatchLimits = { watches: 10_000, names: 200_000, folders: 50_000 };

export class WatchBudget {
  readonly #limits: WatchLimits;
  watches = 0;
  names = 0;
  folders = 0;

  constructor(limits: WatchLimits = WATCH_LIMITS) {
    this.#limits = limits;
  }

  get hasWatch(): boolean {
    return this.watches < this.#limits.watches;
  }

  get hasFolder(): boolean {
    return this.folders < this.#limits.folders;
  }

  hasNames(count: number): boolean {
    return this.names + count <= this.#limits.names;
  }
}
