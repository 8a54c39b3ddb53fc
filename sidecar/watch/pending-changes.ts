import type { FileChange } from '../../protocol/watch.ts';

type Kind = FileChange['kind'];

export interface Batch {
  readonly changes: FileChange[];
  readonly overflow: boolean;
}

/** What one watcher has not been told yet: each path once, and no more than a bound of them. */
export class PendingChanges {
  readonly #most: number;
  readonly #mostCharacters: number;
  readonly #kinds = new Map<string, Kind>();
  #characters = 0;
  #overflow = false;

  constructor(most: number, mostCharacters: number) {
    this.#most = most;
    this.#mostCharacters = mostCharacters;
  }

  add(path: string, kind: Kind): void {
    if (this.#overflow) return;
    const before = this.#kinds.get(path);
    if (before === undefined) this.#characters += path.length;
    this.#kinds.set(path, before === undefined ? kind : merged(before, kind));
    if (this.#kinds.size > this.#most || this.#characters > this.#mostCharacters) this.overflow();
  }

  /** From here on, nothing less than looking at everything again will do. */
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
