import type { EgressEvent } from '../../protocol/egress.ts';
import type { EventEntry } from '../../protocol/events.ts';

/**
 * Repeats of one observation are aggregated: first over this window, then over windows of twice the length, up to the
 * longest.
 */
const FIRST_WINDOW_MS = 5000;
const LONGEST_WINDOW_MS = 10 * 60_000;
/** A denied host is reported once per turn, however often the program tries; in a longer turn again after this time. */
const DENIED_WINDOW_MS = LONGEST_WINDOW_MS;
/** Maximum number of different observations reported singly at a time; beyond it, those of one kind are aggregated. */
const MOST_KINDS = 256;
/** Token bucket for new hosts: this many are reported singly, then one per refill. */
const BURST = 200;
const REFILL_MS = 5000;

export type EgressObservation = Omit<EgressEvent, 'count' | 'firstAt' | 'lastAt'>;

interface Window {
  /** Not reported yet; null if nothing is pending. */
  pending: {
    seen: EgressObservation;
    count: number;
    firstAt: number;
    lastAt: number;
    bytesIn: number;
    bytesOut: number;
  } | null;
  lengthMs: number;
  timer: NodeJS.Timeout;
}

export interface EventAggregatorOptions {
  readonly record: (entries: EventEntry[]) => void;
  /** ms since 1970. */
  readonly now: () => number;
  readonly firstWindowMs?: number;
}

/**
 * Aggregates the egress decisions of one session into events: the first of its kind at once, repeats together and
 * ever more rarely, so that a program that retries for ever does not fill the history.
 */
export class EgressEventAggregator {
  readonly #options: EventAggregatorOptions;
  readonly #windows = new Map<string, Window>();
  #tokens = BURST;
  #refilledAt: number;
  #closed = false;

  constructor(options: EventAggregatorOptions) {
    this.#options = options;
    this.#refilledAt = options.now();
  }

  /** `count`: how often it happened, if the caller has counted already. */
  add(seen: EgressObservation, count = 1): void {
    if (this.#closed) return;
    const now = this.#options.now();
    const own = keyOf(seen);
    const alone = this.#windows.has(own) || (this.#windows.size < MOST_KINDS && this.#takeToken(now));
    const reported = alone ? seen : anyHost(seen);
    const key = alone ? own : keyOf(reported);
    const window = this.#windows.get(key);
    if (window === undefined) {
      this.#report(reported, count, now, now, seen.bytesIn, seen.bytesOut);
      const isDeniedHost = reported.decision === 'denied' && reported.host !== '' && reported.host !== '*';
      const first = isDeniedHost ? DENIED_WINDOW_MS : FIRST_WINDOW_MS;
      this.#windows.set(key, this.#open(key, this.#options.firstWindowMs ?? first));
      return;
    }
    const { pending } = window;
    if (pending === null) {
      window.pending = {
        seen: reported,
        count,
        firstAt: now,
        lastAt: now,
        bytesIn: seen.bytesIn,
        bytesOut: seen.bytesOut,
      };
      return;
    }
    pending.count += count;
    pending.lastAt = now;
    pending.bytesIn += seen.bytesIn;
    pending.bytesOut += seen.bytesOut;
  }

  /** Reports pending denials with their count; a denial in the new turn is reported again. */
  beginTurn(): void {
    for (const [key, { pending, timer }] of this.#windows) {
      if (!key.startsWith(DENIED_KEY)) continue;
      clearTimeout(timer);
      this.#windows.delete(key);
      if (pending !== null) this.#reportPending(pending);
    }
  }

  /** Reports what is pending. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const { pending, timer } of this.#windows.values()) {
      clearTimeout(timer);
      if (pending !== null) this.#reportPending(pending);
    }
    this.#windows.clear();
  }

  #takeToken(now: number): boolean {
    const refilled = Math.max(0, Math.floor((now - this.#refilledAt) / REFILL_MS));
    if (refilled > 0) {
      this.#tokens = Math.min(BURST, this.#tokens + refilled);
      this.#refilledAt = now;
    }
    if (this.#tokens === 0) return false;
    this.#tokens -= 1;
    return true;
  }

  #open(key: string, lengthMs: number): Window {
    const timer = setTimeout(() => this.#due(key), lengthMs);
    timer.unref();
    return { pending: null, lengthMs, timer };
  }

  #due(key: string): void {
    const window = this.#windows.get(key);
    if (window === undefined) return;
    if (window.pending === null) {
      this.#windows.delete(key);
      return;
    }
    this.#windows.set(key, this.#open(key, Math.min(window.lengthMs * 2, LONGEST_WINDOW_MS)));
    this.#reportPending(window.pending);
  }

  #reportPending({ seen, count, firstAt, lastAt, bytesIn, bytesOut }: NonNullable<Window['pending']>): void {
    this.#report(seen, count, firstAt, lastAt, bytesIn, bytesOut);
  }

  #report(
    seen: EgressObservation,
    count: number,
    first: number,
    last: number,
    bytesIn: number,
    bytesOut: number,
  ): void {
    const data: EgressEvent = {
      ...seen,
      bytesIn,
      bytesOut,
      count,
      firstAt: new Date(first).toISOString(),
      lastAt: new Date(last).toISOString(),
    };
    this.#options.record([{ type: 'egress', data }]);
  }
}

const DENIED_KEY = 'denied ';

function keyOf({ decision, host, port, rule, reason, method, credential }: EgressObservation): string {
  if (decision === 'denied') return `${DENIED_KEY}${host} ${reason ?? ''} ${credential ?? ''}`;
  const kind = method === 'CONNECT' ? 'CONNECT' : 'plain';
  return [decision, host, port, rule ?? '', reason ?? '', kind, credential ?? ''].join(' ');
}

/** Replaces the host: only the kind of observation is reported. */
function anyHost(seen: EgressObservation): EgressObservation {
  return { ...seen, host: '*', port: 0, method: '*', rule: null, from: null, address: null, allow: null };
}
