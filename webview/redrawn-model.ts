/** What a page shows. It says when that has changed, and keeps the failure of a request until it is dismissed. */
export class RedrawnModel {
  /** The last request that failed; null once it is dismissed. */
  failure: string | null = null;
  #onChange: () => void = () => undefined;
  #isScheduled = false;

  /** Calls `listener` at most once per frame after changes. */
  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  changed(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      this.#onChange();
    });
  }

  fail(error: unknown): void {
    this.failure = error instanceof Error ? error.message : String(error);
    this.changed();
  }

  dismiss(): void {
    this.failure = null;
    this.changed();
  }
}
