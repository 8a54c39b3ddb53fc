/**
 * One read-write lock per lineage. Shared for all who rely on stored objects: readers, and the creation of a snapshot
 * from its first store request until its row is written. Exclusive for those who remove objects, while they move files.
 * Shared uses go before an exclusive one that waits: the creation of a snapshot holds the lock while it waits for the
 * session mutex, and whoever has that mutex may need the lock. Who removes objects has time. Not reentrant.
 */
export class LineageLocks {
  readonly #locks = new Map<string, ReadWriteLock>();

  shared<T>(lineage: string, act: () => Promise<T>): Promise<T> {
    return this.#runLocked(lineage, false, act);
  }

  exclusive<T>(lineage: string, act: () => Promise<T>): Promise<T> {
    return this.#runLocked(lineage, true, act);
  }

  async #runLocked<T>(lineage: string, exclusive: boolean, act: () => Promise<T>): Promise<T> {
    const lock = this.#locks.get(lineage) ?? new ReadWriteLock();
    this.#locks.set(lineage, lock);
    await lock.acquire(exclusive);
    try {
      return await act();
    } finally {
      lock.release(exclusive);
      if (lock.isFree) this.#locks.delete(lineage);
    }
  }
}

class ReadWriteLock {
  #holders = 0;
  #isExclusive = false;
  readonly #shared: (() => void)[] = [];
  readonly #exclusive: (() => void)[] = [];

  get isFree(): boolean {
    return this.#holders === 0 && this.#shared.length === 0 && this.#exclusive.length === 0;
  }

  async acquire(exclusive: boolean): Promise<void> {
    if (this.#isAvailable(exclusive)) this.#acquire(exclusive);
    else await new Promise<void>((grant) => (exclusive ? this.#exclusive : this.#shared).push(grant));
  }

  release(exclusive: boolean): void {
    this.#holders -= 1;
    if (exclusive) this.#isExclusive = false;
    if (this.#holders > 0) return;
    const isNextExclusive = this.#shared.length === 0;
    const next = isNextExclusive ? this.#exclusive.splice(0, 1) : this.#shared.splice(0);
    for (const grant of next) {
      this.#acquire(isNextExclusive);
      grant();
    }
  }

  #isAvailable(exclusive: boolean): boolean {
    return exclusive ? this.#holders === 0 : !this.#isExclusive;
  }

  #acquire(exclusive: boolean): void {
    this.#holders += 1;
    this.#isExclusive = exclusive;
  }
}
