/** Missing this often in a row is gone: one look may meet a folder that is just being replaced. */
const MISSES = 2;

/** Looks every `everyMs` whether the home is still there; tells once when it is not, and then never again. */
export class HomeWatch {
  readonly #timer: NodeJS.Timeout;
  #missed = 0;

  constructor(home: { isPresent(): boolean }, gone: () => void, everyMs = 2000) {
    this.#timer = setInterval(() => {
      this.#missed = home.isPresent() ? 0 : this.#missed + 1;
      if (this.#missed < MISSES) return;
      this.close();
      gone();
    }, everyMs);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
