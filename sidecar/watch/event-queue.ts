import { readFileSync } from 'node:fs';
import type { WatchedFolder } from './watched-folder.ts';

/** Limit of changed names in the queue. */
const MAX_CHANGED = 20_000;
/** The kernel's queue length for one inotify instance, unless the system says otherwise. */
const DEFAULT_QUEUE = 16_384;

/** The changed names of each folder, and whether a name was created or removed. */
export type ChangedNames = ReadonlyMap<WatchedFolder, ReadonlyMap<string, boolean>>;

/** Events of the kernel that have not been processed. It is bounded, and remembers that events were lost. */
export class EventQueue {
  readonly #kernelLength = kernelQueueLength();
  #changed = new Map<WatchedFolder, Map<string, boolean>>();
  #names = 0;
  #lost = false;
  #inThisTurn = 0;

  add(folder: WatchedFolder, name: string, cameOrWent: boolean): void {
    if (this.#lost) return;
    let names = this.#changed.get(folder);
    if (names === undefined) this.#changed.set(folder, (names = new Map<string, boolean>()));
    if (!names.has(name)) this.#names += 1;
    names.set(name, (names.get(name) ?? false) || cameOrWent);
    if (this.#names > MAX_CHANGED) this.#lose();
  }

  /**
   * Must be called for every event. Node does not report an overflow of the kernel's queue, but then a full queue was
   * read in one turn of the event loop. True if that may have happened.
   */
  countEvent(): boolean {
    if (this.#inThisTurn === 0) setImmediate(() => (this.#inThisTurn = 0));
    this.#inThisTurn += 1;
    if (this.#inThisTurn < this.#kernelLength / 2) return false;
    this.#lose();
    return true;
  }

  /** All changes since the last call. Null if some were lost. */
  take(): ChangedNames | null {
    const changed = this.#lost ? null : this.#changed;
    this.#lost = false;
    this.#changed = new Map();
    this.#names = 0;
    return changed;
  }

  #lose(): void {
    this.#lost = true;
    this.#changed.clear();
    this.#names = 0;
  }
}

function kernelQueueLength(): number {
  try {
    return Number(readFileSync('/proc/sys/fs/inotify/max_queued_events', 'utf8')) || DEFAULT_QUEUE;
  } catch {
    return DEFAULT_QUEUE; // Some sandboxes hide this file.
  }
}
