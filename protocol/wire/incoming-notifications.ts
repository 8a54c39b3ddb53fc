import type { NotificationMap } from './shapes.ts';
import { formatIssues } from './shapes.ts';
import { parseNewer } from '../newer-values.ts';

type Listener = (params: unknown, bytes: Buffer) => void;

const EMPTY = Buffer.alloc(0);

/** Dispatches notifications of the other side to listeners. */
export class IncomingNotifications {
  /** A Map and not an object, because `constructor` is a valid name. */
  readonly #shapes: ReadonlyMap<string, NotificationMap[string]>;
  readonly #listeners = new Map<string, Set<Listener>>();
  readonly #onListenerError: (error: unknown, name: string) => void;
  readonly #isNewer: () => boolean;

  constructor(
    shapes: NotificationMap,
    options: {
      readonly onListenerError: (error: unknown, name: string) => void;
      /** Whether the other side is newer than this program. */
      readonly isNewer: () => boolean;
    },
  ) {
    this.#shapes = new Map(Object.entries(shapes));
    this.#onListenerError = options.onListenerError;
    this.#isNewer = options.isNewer;
  }

  /** Returns the function that removes the listener. */
  add(name: string, listener: Listener): () => void {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners);
    // The same function may be added twice and is then removed separately.
    const entry: Listener = (params, bytes) => listener(params, bytes);
    listeners.add(entry);
    return () => {
      listeners.delete(entry);
    };
  }

  /** Returns what is wrong with the notification, if anything. Ignores what only a newer peer knows. */
  receive(name: string, params: unknown, bytes: Buffer | undefined): string | undefined {
    const shape = this.#shapes.get(name);
    if (shape === undefined) return undefined;
    const isNewer = this.#isNewer();
    const parsed = isNewer ? parseNewer(shape.params, params ?? {}) : shape.params.safeParse(params ?? {});
    if (!parsed.success) return isNewer ? undefined : `${name}: ${formatIssues(parsed.error)}`;
    if (bytes !== undefined && shape.bytes !== 'params') return `${name} carries raw bytes`;
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      this.guard(name, () => listener(parsed.data, bytes ?? EMPTY));
    }
    return undefined;
  }

  /** An error in a listener is a fault of this side: it is reported, and the connection continues. */
  guard(name: string, listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.#onListenerError(error, name);
    }
  }
}
