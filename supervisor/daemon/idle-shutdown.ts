import { z } from 'zod';

/** Set by a program that must not be kept in use by its supervisor, for example VS Code. ms. */
const VARIABLE = 'HOLDFAST_IDLE_SHUTDOWN_MS';
const CHECKS = 10;

/** How long without a client and a sandbox until the supervisor shuts down; null: never. */
export function idleShutdownMs(env: Readonly<Record<string, string | undefined>>): number | null {
  const value = env[VARIABLE];
  if (value === undefined) return null;
  const parsed = z.coerce.number().int().min(100).max(86_400_000).safeParse(value);
  return parsed.success ? parsed.data : null;
}

/** Calls `onIdle` once, when nobody has needed the supervisor for `afterMs`. */
export class IdleShutdown {
  readonly #timer: NodeJS.Timeout;
  #idleChecks = 0;

  constructor(afterMs: number, isNeeded: () => boolean, onIdle: () => void) {
    this.#timer = setInterval(() => {
      this.#idleChecks = isNeeded() ? 0 : this.#idleChecks + 1;
      if (this.#idleChecks < CHECKS) return;
      this.close();
      onIdle();
    }, afterMs / CHECKS);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
