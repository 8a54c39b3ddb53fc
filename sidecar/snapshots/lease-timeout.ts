import { readFileSync } from 'node:fs';
import { errnoOf } from '../files/directory.ts';

const BREAK_TIME = '/proc/sys/fs/lease-break-time';
/** The kernel's own default. */
const DEFAULT_SECONDS = 45;
const MARGIN_MS = 1500;
/** An agent does not stand still for longer, whatever this machine's kernel is set to. */
const MOST_MS = 60_000;
/** A program that gives its lease up when it is asked to does so within this time. */
const POLITE_MS = 500;

/**
 * How long a scan tries to read files on which programs hold leases, ms. `toTheEnd`: until the kernel takes a lease from a program that does
 * not give it up. It does so `lease-break-time` after the first attempt to open the file, at the next attempt.
 */
export function leaseTimeout(toTheEnd: boolean): number {
  if (!toTheEnd) return POLITE_MS;
  let seconds = DEFAULT_SECONDS;
  try {
    seconds = Number(readFileSync(BREAK_TIME, 'latin1').trim());
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
  }
  return Number.isFinite(seconds) ? Math.min(seconds * 1000 + MARGIN_MS, MOST_MS) : MOST_MS;
}
