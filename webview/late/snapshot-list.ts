import type { SnapshotGraph, SnapshotUsage } from '../../protocol/snapshots.ts';
import type { PageSnapshot, SnapshotPage } from '../late-messages.ts';

export interface SnapshotList {
  /** Newest first. */
  readonly snapshots: readonly PageSnapshot[];
  /** Where older ones begin; null if these are all. */
  readonly next: string | null;
  readonly graph: SnapshotGraph;
  readonly usage: SnapshotUsage;
}

/**
 * Reads the list of snapshots a page at a time. What changes while it is read is read afterwards, once; older pages that were
 * read stay.
 */
export class SnapshotReader {
  list: SnapshotList | null = null;
  /** Why the last read failed; null if it did not. */
  why: string | null = null;
  readonly #request: (cursor: string | undefined) => Promise<SnapshotPage>;
  #listener: (() => void) | null = null;
  #isReading = false;
  /** What to read next: the newest ones again, older ones, or both. */
  readonly #wanted = new Set<'newest' | 'older'>();

  constructor(request: (cursor: string | undefined) => Promise<SnapshotPage>) {
    this.#request = request;
  }

  /** Calls the one who shows the list. Returns what ends that. */
  onChange(listener: () => void): () => void {
    this.#listener = listener;
    return () => {
      if (this.#listener === listener) this.#listener = null;
    };
  }

  /** Something has changed, which matters while somebody looks. */
  refresh(): void {
    if (this.#listener !== null) this.read();
  }

  /** A snapshot was deleted. */
  drop(id: string): void {
    if (this.list === null) return;
    this.list = { ...this.list, snapshots: this.list.snapshots.filter((one) => one.id !== id) };
    this.#listener?.();
    this.refresh();
  }

  read(): void {
    this.#wanted.add('newest');
    void this.#run();
  }

  readOlder(): void {
    this.#wanted.add('older');
    void this.#run();
  }

  async #run(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      while (this.#wanted.size > 0) {
        const older = !this.#wanted.delete('newest');
        if (older) this.#wanted.delete('older');
        this.list = older ? await this.#older() : await this.#newest();
        this.why = null;
        this.#listener?.();
      }
    } catch (error) {
      this.#wanted.clear();
      this.why = error instanceof Error ? error.message : String(error);
      this.#listener?.();
    } finally {
      this.#isReading = false;
    }
  }

  async #newest(): Promise<SnapshotList> {
    const { snapshots, next, graph, usage } = await this.#request(undefined);
    const last = snapshots.at(-1);
    const known = this.list?.snapshots ?? [];
    // Older pages stay where they join the new one; where they do not, they are read again when they are asked for.
    const at = last === undefined || next === null ? -1 : known.findIndex(({ id }) => id === last.id);
    if (at === -1 || this.list === null) return { snapshots, next, graph, usage };
    return { snapshots: [...snapshots, ...known.slice(at + 1)], next: this.list.next, graph, usage };
  }

  async #older(): Promise<SnapshotList | null> {
    const { list } = this;
    if (typeof list?.next !== 'string') return list;
    const { snapshots, next } = await this.#request(list.next);
    return { ...list, snapshots: [...list.snapshots, ...snapshots], next };
  }
}
