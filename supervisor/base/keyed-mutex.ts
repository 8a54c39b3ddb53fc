/** A mutex per key: tasks of one key run one after the other, tasks of different keys at the same time. */
export class KeyedMutex {
  readonly #tails = new Map<string, Promise<unknown>>();

  /** Runs `task` when every earlier task of the key has settled. The caller gets its result or error. */
  run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key) ?? Promise.resolve();
    const mine = before.then(task, task);
    const settled = mine.then(
      () => undefined,
      () => undefined,
    );
    this.#tails.set(key, settled);
    void settled.then(() => {
      if (this.#tails.get(key) === settled) this.#tails.delete(key);
    });
    return mine;
  }

  /** Settles when every task that was added before this call has settled. */
  async drained(): Promise<void> {
    await Promise.all(this.#tails.values());
  }
}
