import type { FileChange } from '../../protocol/watch.ts';

type Kind = FileChange['kind'];

export interface Batch {
  readonly changes: FileChange[];
  readonly overflow: boolean;
}

/** Changes that one watcher has not received: each path once, and a bounded number. */
export class PendingChanges {
  readonly #maxPaths: number;
  readonly #maxCharacters: number;
  readonly #kinds = new Map<string, Kind>();
  #characters = 0;
  #overflow = false;

  constructor(maxPaths: number, maxCharacters: number) {
    this.#maxPaths = maxPaths;
    this.#maxCharacters = maxCharacters;
  }

  add(path: string, kind: Kind): void {
    if (this.#overflow) return;
    const before = this.#kinds.get(path);
    if (before === undefined) this.#characters += path.length;
    this.#kinds.set(path, before === undefined ? kind : merged(before, kind));
    if (this.#kinds.size > this.#maxPaths || this.#characters > this.#maxCharacters) this.overflow();
  }

  /** Changes were lost, so the watcher must read everything again. */
  overflow(): void {
    this.#overflow = true;
    this.#kinds.clear();
  }

  get isEmpty(): boolean {
    return this.#kinds.size === 0 && !this.#overflow;
  }

  take(): Batch {
    const batch = {
      changes: [...this.#kinds].map(([path, kind]) => ({ path, kind })),
      overflow: this.#overflow,
    };
    this.#kinds.clear();
    this.#characters = 0;
    this.#overflow = false;
    return batch;
  }
}

function merged(before: Kind, now: Kind): Kind {
  if (now === 'deleted') return 'deleted';
  if (before === 'deleted') return 'changed';
  return before;
}
