import type { StorageLimits } from './storage-limits.ts';

/** The limits of several directories of each session, as one. */
export class StorageLimitGroup {
  readonly #limits: readonly StorageLimits[];

  constructor(limits: readonly StorageLimits[]) {
    this.#limits = limits;
  }

  start(): void {
    for (const one of this.#limits) one.start();
  }

  async close(): Promise<void> {
    await Promise.all(this.#limits.map((one) => one.close()));
  }

  measureSoon(sessionId: string): void {
    for (const one of this.#limits) one.measureSoon(sessionId);
  }

  /** Errors: `storage_limit` of the first directory that is too large. */
  async requireSpace(sessionId: string, what: string): Promise<void> {
    for (const one of this.#limits) await one.requireSpace(sessionId, what);
  }

  forget(sessionId: string): void {
    for (const one of this.#limits) one.forget(sessionId);
  }
}
