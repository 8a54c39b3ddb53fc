import { EventEmitter, window } from 'vscode';
import type { Disposable, Event, Memento } from 'vscode';
import { z } from 'zod';
import type { Session } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { SessionList } from './session-list.ts';
import { sessionsInWindow } from './pick-session.ts';

const KEPT = 'holdfast.seen';
/** Made where it is used: the window does not wait for it. */
const seenSchema = () => z.record(z.string(), z.number());
const MOST = 20;

/** How many turns of each session have ended since a person last looked at it. */
export class UnreadTurns implements Disposable {
  readonly #connection: Connection;
  readonly #state: Memento;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<string[]>());
  #loaded: Map<string, number> | undefined;
  readonly #counted = new Map<string, { readonly lastSeq: number; readonly turns: number }>();

  constructor(connection: Connection, sessions: SessionList, state: Memento) {
    this.#connection = connection;
    this.#state = state;
    this.#owned.add(sessions.onDidChange((all) => void this.#count(all)));
  }

  /** Ids of sessions whose count is another one. */
  get onDidChange(): Event<string[]> {
    return this.#changed.event;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  countOf(session: string): number {
    return this.#counted.get(session)?.turns ?? 0;
  }

  /** A person has looked at it, up to this event. */
  markRead({ id, lastSeq }: Pick<Session, 'id' | 'lastSeq'>): void {
    this.#seen.set(id, Math.max(lastSeq, this.#seen.get(id) ?? 0));
    this.#store();
    if (this.countOf(id) === 0) return;
    this.#counted.set(id, { lastSeq, turns: 0 });
    this.#changed.fire([id]);
  }

  get #seen(): Map<string, number> {
    this.#loaded ??= new Map(Object.entries(seenSchema().safeParse(this.#state.get(KEPT)).data ?? {}));
    return this.#loaded;
  }

  async #count(sessions: readonly Session[]): Promise<void> {
    // Without an answer there are none, which is no reason to forget.
    if (sessions.length === 0) return;
    const ids = new Set(sessions.map(({ id }) => id));
    for (const id of [...this.#seen.keys()].filter((one) => !ids.has(one))) {
      this.#seen.delete(id);
      this.#counted.delete(id);
    }
    const changed: string[] = [];
    let isNew = false;
    const looking = window.state.focused ? sessionsInWindow() : new Set();
    for (const { id, lastSeq } of sessions) {
      const seen = this.#seen.get(id);
      if (looking.has(id)) {
        // The person is in it, and sees what happens.
        if (this.countOf(id) > 0) changed.push(id);
        this.#counted.set(id, { lastSeq, turns: 0 });
        isNew ||= seen !== lastSeq;
        this.#seen.set(id, lastSeq);
      } else if (seen === undefined) {
        // What was there before the first look is old.
        this.#seen.set(id, lastSeq);
        isNew = true;
      } else if (lastSeq > seen && this.#counted.get(id)?.lastSeq !== lastSeq) {
        const turns = await this.#ended(id, seen);
        if (turns !== this.countOf(id)) changed.push(id);
        this.#counted.set(id, { lastSeq, turns });
      }
    }
    if (isNew) this.#store();
    if (changed.length > 0) this.#changed.fire(changed);
  }

  async #ended(session: string, after: number): Promise<number> {
    try {
      const { events } = await this.#connection.call('session/events', {
        session,
        after,
        type: 'turn.ended',
        limit: MOST,
      });
      return events.length;
    } catch {
      // It was deleted meanwhile, or nobody answers: counted again at the next change.
      return this.countOf(session);
    }
  }

  #store(): void {
    void this.#state.update(KEPT, Object.fromEntries(this.#seen));
  }
}
