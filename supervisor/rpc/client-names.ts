/** The names that clients gave themselves in `hello`, for records of who did something. A connection is its own key. */
export class ClientNames {
  readonly #names = new WeakMap<object, string>();

  set(connection: object, name: string): void {
    this.#names.set(connection, name);
  }

  of(connection: object): string {
    return this.#names.get(connection) ?? 'unknown';
  }
}
