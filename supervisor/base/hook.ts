/** Steps that others add to something a module does. Each is awaited before the next, in the order in which they were added. */
export class Hook<T> {
  readonly #steps: ((value: T) => Promise<void>)[] = [];

  add(step: (value: T) => Promise<void>): void {
    this.#steps.push(step);
  }

  /** Rejects with the error of the first step that fails; the later ones are not run. */
  async run(value: T): Promise<void> {
    for (const step of this.#steps) await step(value);
  }
}
