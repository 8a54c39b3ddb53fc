/** What all watches of one sidecar may use together: neither the machine's watches nor our memory end with a large tree. */
export interface WatchLimits {
  /** Folders with a watch of their own; the rest is polled. */
  readonly watches: number;
  /** Names that are remembered. */
  readonly names: number;
  /** Folders that are looked at in any way; what lies in more of them is not told of one by one. */
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
