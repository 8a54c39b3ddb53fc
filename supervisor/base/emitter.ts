/**
 * One event that a module reports and others react to. Listeners run at once, in the order in which they were added; the error of
 * a listener is the emitter's, so that a reaction inside a transaction can undo it.
 */
export class Emitter<T> {
  readonly #listeners: ((value: T) => void)[] = [];

  on(listener: (value: T) => void): void {
    this.#listeners.push(listener);
  }

  emit(value: T): void {
    for (const listener of this.#listeners) listener(value);
  }
}
