/**
 * One read-write lock per lineage. Shared for all who rely on stored objects: readers, and the creation of a snapshot
 * from its first store request until its row is written. Exclusive for those who remove objects, while they move files.
 * Fair (first come, first served) and not reentrant.
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
  readonly #waiting: { readonly exclusive: boolean; readonly grant: () => void }[] = [];

  get isFree(): boolean {
    return this.#holders === 0 && this.#waiting.length === 0;
  }

  async acquire(exclusive: boolean): Promise<void> {
    if (this.#waiting.length === 0 && this.#isAvailable(exclusive)) this.#hold(exclusive);
    else await new Promise<void>((grant) => this.#waiting.push({ exclusive, grant }));
  }

  release(exclusive: boolean): void {
    this.#holders -= 1;
    if (exclusive) this.#isExclusive = false;
    for (
      let next = this.#waiting[0];
      next !== undefined && this.#isAvailable(next.exclusive);
      next = this.#waiting[0]
    ) {
      this.#waiting.shift();
      this.#hold(next.exclusive);
      next.grant();
    }
  }

  #isAvailable(exclusive: boolean): boolean {
    return exclusive ? this.#holders === 0 : !this.#isExclusive;
  }

  #hold(exclusive: boolean): void {
    this.#holders += 1;
    this.#isExclusive = exclusive;
  }
}
