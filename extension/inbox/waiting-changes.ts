import type { Session } from '../../protocol/entities.ts';
import { NotificationLimit } from '../base/notification-limit.ts';
import { waitingSessions } from '../sessions/waiting.ts';

/** An agent may ask and take back as often as it likes. The badge and the status bar count all that wait. */
const MAX_PER_MINUTE = 3;

/** Finds the sessions that have begun to wait, each once until it waits no more. */
export class WaitingChanges {
  readonly #hostOf: (session: string) => string;
  /** Ids by host; none before the first list of a host, whose sessions the badge and the status bar show. */
  readonly #waiting = new Map<string, ReadonlySet<string>>();
  readonly #limit = new NotificationLimit(MAX_PER_MINUTE);

  constructor(hostOf: (session: string) => string) {
    this.#hostOf = hostOf;
  }

  /** The sessions to tell a person about, given the newest list and the time in milliseconds. */
  update(sessions: readonly Session[], now: number): Session[] {
    // A host that does not answer has no sessions in the list: that is no reason to forget who was told about.
    const hosts = new Set(sessions.map(({ id }) => this.#hostOf(id)));
    const waiting = waitingSessions(sessions);
    const begun: Session[] = [];
    for (const host of hosts) {
      const before = this.#waiting.get(host);
      const own = waiting.filter(({ id }) => this.#hostOf(id) === host);
      this.#waiting.set(host, new Set(own.map(({ id }) => id)));
      if (before === undefined) continue;
      begun.push(...own.filter(({ id }) => !before.has(id) && this.#limit.take(host, now)));
    }
    return begun;
  }
}
