import { readFileSync } from 'node:fs';
import { errnoOf } from '../files/directory.ts';

const BREAK_TIME = '/proc/sys/fs/lease-break-time';
/** The kernel's default. */
const DEFAULT_SECONDS = 45;
const MARGIN_MS = 1500;
/** The agent is never paused for longer, whatever the kernel's setting is. */
const MAX_MS = 60_000;
/** A cooperative program gives up its lease within this time. */
const COOPERATIVE_MS = 500;

/**
 * How long a scan retries files that programs hold leases on, ms. `toTheEnd`: until the kernel breaks the lease, which
 * it does at the first attempt to open the file after `lease-break-time`.
 */
export function leaseTimeout(toTheEnd: boolean): number {
  if (!toTheEnd) return COOPERATIVE_MS;
  let seconds = DEFAULT_SECONDS;
  try {
    seconds = Number(readFileSync(BREAK_TIME, 'latin1').trim());
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
  }
  return Number.isFinite(seconds) ? Math.min(seconds * 1000 + MARGIN_MS, MAX_MS) : MAX_MS;
}
