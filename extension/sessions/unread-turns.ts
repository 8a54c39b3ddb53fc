import { EventEmitter, window } from 'vscode';
import type { Disposable, Event, Memento } from 'vscode';
import { z } from 'zod';
import type { Session } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { SessionList } from './session-list.ts';
import { sessionsInWindow } from './session-window.ts';

/** The last event of each session that a person has seen. */
const SEEN_KEY = 'holdfast.seen';
/** A function, because zod is in the second bundle, which must not load at activation. */
const seenSchema = () => z.record(z.string(), z.number());
const MAX_COUNT = 20;
/** How long the sessions of one host may take. The next list continues. */
const HOST_MS = 5_000;

/** A session whose turns after the event `seen` are to be counted. */
interface Due {
  readonly id: string;
  readonly lastSeq: number;
  readonly seen: number;
}

/** Counts the turns of each session that have ended since a person last opened it. */
export class UnreadTurns implements Disposable {
  readonly #connection: Connection;
  readonly #state: Memento;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<string[]>());
  #loaded: Map<string, number> | undefined;
  /** The newest list that is not counted yet. */
  #next: readonly Session[] | undefined;
  #isCounting = false;
  readonly #counted = new Map<string, { readonly lastSeq: number; readonly turns: number }>();

  constructor(connection: Connection, sessions: SessionList, state: Memento) {
    this.#connection = connection;
    this.#state = state;
    this.#owned.add(sessions.onDidChange((all) => void this.#countSoon(all)));
  }

  /** Ids of sessions whose count has changed. */
  get onDidChange(): Event<string[]> {
    return this.#changed.event;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  countOf(session: string): number {
    return this.#counted.get(session)?.turns ?? 0;
  }

  /** A person has opened the session and seen its events up to `lastSeq`. */
  markRead({ id, lastSeq }: Pick<Session, 'id' | 'lastSeq'>): void {
    this.#seen.set(id, Math.max(lastSeq, this.#seen.get(id) ?? 0));
    this.#store();
    if (this.countOf(id) === 0) return;
    this.#counted.set(id, { lastSeq, turns: 0 });
    this.#changed.fire([id]);
  }

  get #seen(): Map<string, number> {
    this.#loaded ??= new Map(Object.entries(seenSchema().safeParse(this.#state.get(SEEN_KEY)).data ?? {}));
    return this.#loaded;
  }

  /** One count at a time, so that an older one does not end last. */
  async #countSoon(sessions: readonly Session[]): Promise<void> {
    this.#next = sessions;
    if (this.#isCounting) return;
    this.#isCounting = true;
    try {
      for (let next = this.#take(); next !== undefined; next = this.#take()) await this.#count(next);
    } finally {
      this.#isCounting = false;
    }
  }

  #take(): readonly Session[] | undefined {
    const next = this.#next;
    this.#next = undefined;
    return next;
  }

  async #count(sessions: readonly Session[]): Promise<void> {
    // The list is empty where the supervisor does not answer: that is no reason to forget.
    if (sessions.length === 0) return;
    const ids = new Set(sessions.map(({ id }) => id));
    for (const id of [...this.#seen.keys()].filter((one) => !ids.has(one))) {
      this.#seen.delete(id);
      this.#counted.delete(id);
    }
    const changed: string[] = [];
    let isStale = false;
    const due = new Map<HostConnection, Due[]>();
    const watched = window.state.focused ? sessionsInWindow() : new Set();
    for (const { id, lastSeq } of sessions) {
      const seen = this.#seen.get(id);
      if (watched.has(id)) {
        // The person works in the session's window and sees what happens.
        if (this.countOf(id) > 0) changed.push(id);
        this.#counted.set(id, { lastSeq, turns: 0 });
        isStale ||= seen !== lastSeq;
        this.#seen.set(id, lastSeq);
      } else if (seen === undefined) {
        // Turns that ended before this session was first listed count as seen.
        this.#seen.set(id, lastSeq);
        isStale = true;
      } else if (lastSeq > seen && this.#counted.get(id)?.lastSeq !== lastSeq) {
        const host = this.#connection.of(id);
        due.set(host, [...(due.get(host) ?? []), { id, lastSeq, seen }]);
      }
    }
    const counted = await Promise.all([...due].map(([host, one]) => this.#countOn(host, one)));
    changed.push(...counted.flat());
    if (isStale) this.#store();
    if (changed.length > 0) this.#changed.fire(changed);
  }

  /** Returns the ids whose count has changed. One host that does not answer keeps no other one waiting. */
  async #countOn({ peer }: HostConnection, sessions: readonly Due[]): Promise<string[]> {
    const changed: string[] = [];
    const until = Date.now() + HOST_MS;
    for (const { id, lastSeq, seen } of sessions) {
      const timeoutMs = until - Date.now();
      if (peer === undefined || timeoutMs <= 0) break;
      try {
        const params = { session: id, after: seen, type: 'turn.ended', limit: MAX_COUNT } as const;
        const { events } = await peer.call('session/events', params, { timeoutMs });
        if (events.length !== this.countOf(id)) changed.push(id);
        this.#counted.set(id, { lastSeq, turns: events.length });
      } catch {
        // The session was deleted, or the connection broke. The next list counts again.
      }
    }
    return changed;
  }

  #store(): void {
    void this.#state.update(SEEN_KEY, Object.fromEntries(this.#seen));
  }
}
