import type { Session } from '../../protocol/entities.ts';
import { waitingSessions } from '../sessions/waiting.ts';

const MINUTE_MS = 60_000;
/** An agent may ask and take back as often as it likes. The badge and the status bar count all that wait. */
const MAX_PER_MINUTE = 3;

/** Finds the sessions that have begun to wait, each once until it waits no more. */
export class WaitingChanges {
  /** Ids; undefined before the first list, whose sessions the badge and the status bar show. */
  #waiting: ReadonlySet<string> | undefined;
  /** When a person was told. */
  #told: number[] = [];

  /** The sessions to tell a person about, given the newest list and the time in milliseconds. */
  update(sessions: readonly Session[], now: number): Session[] {
    // The list is empty where no supervisor answers: that is no reason to forget who was told about.
    if (sessions.length === 0) return [];
    const before = this.#waiting;
    const waiting = waitingSessions(sessions);
    this.#waiting = new Set(waiting.map(({ id }) => id));
    if (before === undefined) return [];
    this.#told = this.#told.filter((at) => now - at < MINUTE_MS);
    const begun = waiting.filter(({ id }) => !before.has(id)).slice(0, MAX_PER_MINUTE - this.#told.length);
    this.#told.push(...begun.map(() => now));
    return begun;
  }
}
