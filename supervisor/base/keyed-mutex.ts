/** One lane per key: tasks of a session run one after the other, those of different sessions beside each other. */
export class KeyedMutex {
  readonly #tails = new Map<string, Promise<unknown>>();

  /** Runs `task` when every earlier task of the key has settled; its outcome is the caller's alone. */
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

  /** Settles when nothing that was asked before this call is left to do. */
  async drained(): Promise<void> {
    await Promise.all(this.#tails.values());
  }
}
