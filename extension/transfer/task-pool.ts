/** Runs a limited number of tasks at the same time, because on another machine each waits for a round trip. */
export class TaskPool {
  readonly #limit: number;
  readonly #running = new Set<Promise<void>>();
  #failure: { readonly error: unknown } | undefined;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Resolves once the task has begun. Errors: that of an earlier task, after which no task begins. */
  async begin(task: () => Promise<void>): Promise<void> {
    while (this.#running.size >= this.#limit) await Promise.race(this.#running);
    this.#throwFailure();
    const running: Promise<void> = task().then(
      () => void this.#running.delete(running),
      (error: unknown) => {
        this.#running.delete(running);
        this.#failure ??= { error };
      },
    );
    this.#running.add(running);
  }

  /** Resolves once no task runs. Errors: that of the first task that failed. */
  async drain(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
    this.#throwFailure();
  }

  #throwFailure(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
  }
}
