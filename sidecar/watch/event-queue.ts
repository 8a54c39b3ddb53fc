import { readFileSync } from 'node:fs';
import type { WatchedFolder } from './watched-folder.ts';

/** Changed names that are kept until they are told. */
const MOST_CHANGED = 20_000;
/** What the kernel keeps for one reader before it throws events away, unless the machine says otherwise. */
const USUAL_QUEUE = 16_384;

/** Of each changed folder the names, and whether a name came or went. */
export type ChangedNames = ReadonlyMap<WatchedFolder, ReadonlyMap<string, boolean>>;

/** What the kernel has told and nobody has looked at yet: bounded, and honest about what was lost. */
export class EventQueue {
  readonly #kernelLength = kernelQueue();
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
    if (this.#names > MOST_CHANGED) this.#lose();
  }

  /**
   * To be said of every event. Node says nothing when the kernel's queue has run over; but then a full queue was read in one turn
   * of the event loop. True: it may have.
   */
  countEvent(): boolean {
    if (this.#inThisTurn === 0) setImmediate(() => (this.#inThisTurn = 0));
    this.#inThisTurn += 1;
    if (this.#inThisTurn < this.#kernelLength / 2) return false;
    this.#lose();
    return true;
  }

  /** Everything since the last call; null when it is not all known. */
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

function kernelQueue(): number {
  try {
    return Number(readFileSync('/proc/sys/fs/inotify/max_queued_events', 'utf8')) || USUAL_QUEUE;
  } catch {
    return USUAL_QUEUE; // it is not told in every sandbox
  }
}
