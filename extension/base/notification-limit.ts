const MINUTE_MS = 60_000;

/** How often a person is notified: each host has its own limit, so that one with much to say does not silence the others. */
export class NotificationLimit {
  readonly #perMinute: number;
  /** When a person was notified, by host. */
  readonly #times = new Map<string, readonly number[]>();

  constructor(perMinute: number) {
    this.#perMinute = perMinute;
  }

  /** Whether a person may be notified of this host now; it counts if so. `now` in milliseconds. */
  take(host: string, now: number): boolean {
    const times = (this.#times.get(host) ?? []).filter((at) => now - at < MINUTE_MS);
    const isAllowed = times.length < this.#perMinute;
    this.#times.set(host, isAllowed ? [...times, now] : times);
    return isAllowed;
  }
}
