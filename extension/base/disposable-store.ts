import type { Disposable } from 'vscode';

/** Disposables with one lifetime. They are disposed of once, in reverse order, even if one of them throws. */
export class DisposableStore implements Disposable {
  readonly #owned: Disposable[] = [];
  #disposed = false;

  get isDisposed(): boolean {
    return this.#disposed;
  }

  /** Takes ownership. A disposable that is added after the end is disposed of immediately. */
  add<T extends Disposable>(disposable: T): T {
    if (this.#disposed) disposable.dispose();
    else this.#owned.push(disposable);
    return disposable;
  }

  /** Adds a function that runs at the end. */
  onDispose(dispose: () => void): void {
    this.add({ dispose });
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
