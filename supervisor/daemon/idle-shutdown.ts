import { z } from 'zod';

/** Whoever starts a supervisor in a program that should not be kept in use names it here, ms. */
const VARIABLE = 'HOLDFAST_IDLE_SHUTDOWN_MS';
const LOOKS = 10;

/** After how long without a client and a sandbox the supervisor is to leave; null: never. */
export function idleShutdownMs(env: Readonly<Record<string, string | undefined>>): number | null {
  const said = env[VARIABLE];
  if (said === undefined) return null;
  const parsed = z.coerce.number().int().min(100).max(86_400_000).safeParse(said);
  return parsed.success ? parsed.data : null;
}

/** Tells once when nobody has needed the supervisor for `afterMs`, and then never again. */
export class IdleShutdown {
  readonly #timer: NodeJS.Timeout;
  #unneededLooks = 0;

  constructor(afterMs: number, isNeeded: () => boolean, unneeded: () => void) {
    this.#timer = setInterval(() => {
      this.#unneededLooks = isNeeded() ? 0 : this.#unneededLooks + 1;
      if (this.#unneededLooks < LOOKS) return;
      this.close();
      unneeded();
    }, afterMs / LOOKS);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
