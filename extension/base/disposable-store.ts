import type { Disposable } from 'vscode';

/** What ends together: disposed of in reverse order, once, whatever one of them throws. */
export class DisposableStore implements Disposable {
  readonly #owned: Disposable[] = [];
  #disposed = false;

  get isDisposed(): boolean {
    return this.#disposed;
  }

  /** Takes ownership; what comes after the end is disposed of at once. */
  add<T extends Disposable>(disposable: T): T {
    if (this.#disposed) disposable.dispose();
    else this.#owned.push(disposable);
    return disposable;
  }

  /** As `own`, for an end that is a function. */
  onDispose(end: () => void): void {
    this.add({ dispose: end });
  }

  dispose(): void {
    this.#disposed = true;
    const failures: unknown[] = [];
    for (const owned of this.#owned.splice(0).reverse()) {
      try {
        void owned.dispose();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, 'Not everything could be disposed of');
  }
}
