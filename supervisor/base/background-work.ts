import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from './log.ts';

/** Work that runs in the background until the supervisor shuts down. */
export class BackgroundWork {
  readonly #running = new Set<Promise<void>>();
  readonly #log: Log;

  constructor(log: Log) {
    this.#log = log;
  }

  /** An error is logged. The caller retries on a later occasion. */
  add(work: Promise<void>): void {
    const guarded = work.catch((error: unknown) => {
      this.#log.warn('background work failed', { why: HoldfastError.from(error).sentence });
    });
    this.#running.add(guarded);
    void guarded.finally(() => this.#running.delete(guarded));
  }

  async settled(): Promise<void> {
    await Promise.allSettled(this.#running);
  }
}
