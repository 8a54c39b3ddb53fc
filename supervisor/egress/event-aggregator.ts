import type { EgressEvent } from '../../protocol/egress.ts';
import type { EventEntry } from '../../protocol/events.ts';

/** Repeats of one thing are told together: first after this long, then after twice as long, up to the longest. */
const FIRST_WINDOW_MS = 5000;
const LONGEST_WINDOW_MS = 10 * 60_000;
/** A denied host is reported once for each turn, however often the program tries; a longer turn hears of it again after this long. */
const DENIED_WINDOW_MS = LONGEST_WINDOW_MS;
/** Different things of one session that are told one by one at a time; beyond it, those of one kind go together. */
const MOST_KINDS = 256;
/** A program that tries host after host is told of one by one so often, and then once in a while. */
const BURST = 200;
const REFILL_MS = 5000;

export type EgressObservation = Omit<EgressEvent, 'count' | 'firstAt' | 'lastAt'>;

interface Window {
  /** What has not been told yet; null when nothing. */
  waiting: {
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
 * Turns the decisions of one session into events: the first of its kind at once, repeats together and ever more rarely, so that a
 * program that tries for ever fills no history.
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

  /** `count`: how often it has happened, where somebody has counted already. */
  add(seen: EgressObservation, count = 1): void {
    if (this.#closed) return;
    const now = this.#options.now();
    const own = keyOf(seen);
    const alone = this.#windows.has(own) || (this.#windows.size < MOST_KINDS && this.#mayTell(now));
    const told = alone ? seen : anyHost(seen);
    const key = alone ? own : keyOf(told);
    const window = this.#windows.get(key);
    if (window === undefined) {
      this.#tell(told, count, now, now, seen.bytesIn, seen.bytesOut);
      const isDeniedHost = told.decision === 'denied' && told.host !== '' && told.host !== '*';
      const first = isDeniedHost ? DENIED_WINDOW_MS : FIRST_WINDOW_MS;
      this.#windows.set(key, this.#open(key, this.#options.firstWindowMs ?? first));
      return;
    }
    const { waiting } = window;
    if (waiting === null) {
      window.waiting = {
        seen: told,
        count,
        firstAt: now,
        lastAt: now,
        bytesIn: seen.bytesIn,
        bytesOut: seen.bytesOut,
      };
      return;
    }
    waiting.count += count;
    waiting.lastAt = now;
    waiting.bytesIn += seen.bytesIn;
    waiting.bytesOut += seen.bytesOut;
  }

  /** What was denied before is reported with its count, and is reported anew when it happens again. */
  beginTurn(): void {
    for (const [key, { waiting, timer }] of this.#windows) {
      if (!key.startsWith(DENIED_KEY)) continue;
      clearTimeout(timer);
      this.#windows.delete(key);
      if (waiting !== null) this.#tellWaiting(waiting);
    }
  }

  /** Tells what waits. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const { waiting, timer } of this.#windows.values()) {
      clearTimeout(timer);
      if (waiting !== null) this.#tellWaiting(waiting);
    }
    this.#windows.clear();
  }

  #mayTell(now: number): boolean {
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
    return { waiting: null, lengthMs, timer };
  }

  #due(key: string): void {
    const window = this.#windows.get(key);
    if (window === undefined) return;
    if (window.waiting === null) {
      this.#windows.delete(key);
      return;
    }
    this.#windows.set(key, this.#open(key, Math.min(window.lengthMs * 2, LONGEST_WINDOW_MS)));
    this.#tellWaiting(window.waiting);
  }

  #tellWaiting({ seen, count, firstAt, lastAt, bytesIn, bytesOut }: NonNullable<Window['waiting']>): void {
    this.#tell(seen, count, firstAt, lastAt, bytesIn, bytesOut);
  }

  #tell(
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

function keyOf({ decision, host, port, rule, reason, method }: EgressObservation): string {
  if (decision === 'denied') return `${DENIED_KEY}${host} ${reason ?? ''}`;
  const kind = method === 'CONNECT' ? 'CONNECT' : 'plain';
  return [decision, host, port, rule ?? '', reason ?? '', kind].join(' ');
}

/** One of many: what is told is their kind. */
function anyHost(seen: EgressObservation): EgressObservation {
  return { ...seen, host: '*', port: 0, method: '*', rule: null, from: null, address: null, allow: null };
}
