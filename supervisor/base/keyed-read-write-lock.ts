interface Lock {
  readers: number;
  /** Exclusive holders, and those that wait to be one. */
  writers: number;
  /** Resolved when one of the numbers changes. */
  changed: PromiseWithResolvers<void>;
}

/**
 * A read-write lock per key. A waiting writer keeps new readers out. A restore takes it exclusively, and each change that a client
 * makes to a file shares it: a change between the snapshot before the restore and its end would be lost. Whoever waits for the
 * exclusive lock must hold nothing that a reader may wait for.
 */
export class KeyedReadWriteLock {
  readonly #locks = new Map<string, Lock>();

  /** Runs `act` while nobody holds the exclusive lock of the key. */
  async runShared<T>(key: string, act: () => Promise<T>): Promise<T> {
    let lock = this.#lockOf(key);
    for (; lock.writers > 0; lock = this.#lockOf(key)) await lock.changed.promise;
    lock.readers += 1;
    try {
      return await act();
    } finally {
      lock.readers -= 1;
      this.#notify(key, lock);
    }
  }

  /** Runs `act` when every reader has ended, and before the next one. Several exclusive holders do not exclude each other. */
  async runExclusive<T>(key: string, act: () => Promise<T>): Promise<T> {
    const lock = this.#lockOf(key);
    lock.writers += 1;
    try {
      while (lock.readers > 0) await lock.changed.promise;
      return await act();
    } finally {
      lock.writers -= 1;
      this.#notify(key, lock);
    }
  }

  #lockOf(key: string): Lock {
    const known = this.#locks.get(key);
    if (known !== undefined) return known;
    const lock: Lock = { readers: 0, writers: 0, changed: Promise.withResolvers() };
    this.#locks.set(key, lock);
    return lock;
  }

  #notify(key: string, lock: Lock): void {
    if (lock.readers === 0 && lock.writers === 0) this.#locks.delete(key);
    const { resolve } = lock.changed;
    lock.changed = Promise.withResolvers();
    resolve();
  }
}
