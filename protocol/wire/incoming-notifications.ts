import type { NotificationMap } from './shapes.ts';
import { formatIssues } from './shapes.ts';

type Listener = (params: unknown, bytes: Buffer) => void;

const EMPTY = Buffer.alloc(0);

/** Who listens to which notification of the other side. */
export class IncomingNotifications {
  /** A map, and no look-up in an object: `constructor` is a name like any other. */
  readonly #shapes: ReadonlyMap<string, NotificationMap[string]>;
  readonly #listeners = new Map<string, Set<Listener>>();
  readonly #onListenerError: (error: unknown, name: string) => void;

  constructor(shapes: NotificationMap, onListenerError: (error: unknown, name: string) => void) {
    this.#shapes = new Map(Object.entries(shapes));
    this.#onListenerError = onListenerError;
  }

  /** Returns the end of it. */
  add(name: string, listener: Listener): () => void {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners);
    // The same function may listen twice; each has an end of its own.
    const entry: Listener = (params, bytes) => listener(params, bytes);
    listeners.add(entry);
    return () => {
      listeners.delete(entry);
    };
  }

  /** What is wrong with it, if something is. Unknown ones are ignored: a newer program may say more. */
  receive(name: string, params: unknown, bytes: Buffer | undefined): string | undefined {
    const shape = this.#shapes.get(name);
    if (shape === undefined) return undefined;
    const parsed = shape.params.safeParse(params ?? {});
    if (!parsed.success) return `${name}: ${formatIssues(parsed.error)}`;
    if (bytes !== undefined && shape.bytes !== 'params') return `${name} carries raw bytes`;
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      this.guard(name, () => listener(parsed.data, bytes ?? EMPTY));
    }
    return undefined;
  }

  /** A listener that throws is a fault of this side: it is reported, and the connection goes on. */
  guard(name: string, listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.#onListenerError(error, name);
    }
  }
}
