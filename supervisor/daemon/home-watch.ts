/** Consecutive checks without the home: a single one may meet a folder that is being replaced. */
const MISSES = 2;

/** Checks every `everyMs` that the home exists. Calls `onGone` once when it does not. */
export class HomeWatch {
  readonly #timer: NodeJS.Timeout;
  #missed = 0;

  constructor(home: { isPresent(): boolean }, onGone: () => void, everyMs = 2000) {
    this.#timer = setInterval(() => {
      this.#missed = home.isPresent() ? 0 : this.#missed + 1;
      if (this.#missed < MISSES) return;
      this.close();
      onGone();
    }, everyMs);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
