/** Looks every `everyMs` whether the home is still there; tells once when it is not, and then never again. */
export class HomeWatch {
  readonly #timer: NodeJS.Timeout;

  constructor(home: { stillThere(): boolean }, gone: () => void, everyMs = 2000) {
    this.#timer = setInterval(() => {
      if (home.stillThere()) return;
      this.close();
      gone();
    }, everyMs);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
