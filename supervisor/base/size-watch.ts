import { setTimeout as sleep } from 'node:timers/promises';

export interface SizeWatchOptions {
  /** Bytes now. */
  readonly measure: () => Promise<number>;
  readonly limitBytes: number;
  readonly everyMs: number;
  /** Ends the watch. */
  readonly signal: AbortSignal;
}

/** Measures again and again. True: it found more than the limit. False: the signal came first. A measurement that fails is left out. */
export async function watchSize({
  measure,
  limitBytes,
  everyMs,
  signal,
}: SizeWatchOptions): Promise<boolean> {
  while (!signal.aborted) {
    const bytes = await measure().catch(() => 0);
    if (bytes > limitBytes) return !signal.aborted;
    await sleep(everyMs, undefined, { signal, ref: false }).catch(() => undefined);
  }
  return false;
}
