import { commands, window, workspace } from 'vscode';
import type { Disposable } from 'vscode';
import type { Session, SessionEvent } from '../../protocol/entities.ts';
import { parseEvent } from '../../protocol/events.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { SessionEvents } from '../history/session-events.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { sessionsInWindow } from '../sessions/pick-session.ts';

const ALLOW = 'Allow Host…';
const SHOW_HISTORY = 'Show History';
/** The same host is told of again after this long. */
const AGAIN_MS = 10 * 60_000;
/** An agent that asks for a hundred hosts does not bury the screen: all are in the list of `Agent: Allow Host…`, and in the history. */
const MOST_A_MINUTE = 3;

/**
 * Tells a person that a session was not let out, and offers to change that: git for one says "Everything up-to-date" then. Followed are
 * the sessions of this window, and those that it knows to be running.
 */
export class DenialNotifications implements Disposable {
  readonly #events: SessionEvents;
  readonly #sessions: SessionList;
  readonly #owned = new DisposableStore();
  readonly #followed = new Map<string, Disposable>();
  readonly #told = new Map<string, number>();

  constructor(connection: Connection, events: SessionEvents, sessions: SessionList) {
    this.#events = events;
    this.#sessions = sessions;
    this.#owned.add(connection.onDidConnect(() => void sessions.refresh()));
    this.#owned.add(sessions.onDidChange((all) => this.#follow(all)));
    this.#owned.add(workspace.onDidChangeWorkspaceFolders(() => this.#follow(sessions.current ?? [])));
    this.#owned.onDispose(() => {
      for (const following of this.#followed.values()) void following.dispose();
    });
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #follow(sessions: readonly Session[]): void {
    const here = sessionsInWindow();
    const wanted = new Map(
      sessions
        .filter(({ id, runningTurn }) => here.has(id) || runningTurn !== null || this.#followed.has(id))
        .map((session) => [session.id, session]),
    );
    for (const [id, following] of this.#followed) {
      if (wanted.has(id)) continue;
      void following.dispose();
      this.#followed.delete(id);
    }
    for (const [id, { lastSeq }] of wanted) {
      if (this.#followed.has(id)) continue;
      this.#followed.set(
        id,
        this.#events.follow(id, lastSeq, (event) => this.#hear(event)),
      );
    }
  }

  #hear(event: SessionEvent): void {
    if (event.type !== 'egress') return;
    const entry = parseEvent(event);
    if (entry?.type !== 'egress' || entry.data.decision !== 'denied') return;
    const { allow, host, port } = entry.data;
    const { sessionId } = event;
    const key = `${sessionId} ${host}:${port}`;
    const now = Date.now();
    if (now - (this.#told.get(key) ?? 0) < AGAIN_MS) return;
    const latest = [...this.#told.values()].filter((at) => now - at < 60_000);
    if (latest.length >= MOST_A_MINUTE) return;
    for (const [other, at] of this.#told) if (now - at >= AGAIN_MS) this.#told.delete(other);
    this.#told.set(key, now);
    const session = this.#sessions.current?.find(({ id }) => id === sessionId);
    const name = sanitize(session === undefined ? sessionId : sessionTitle(session));
    const actions = allow === null ? [SHOW_HISTORY] : [ALLOW, SHOW_HISTORY];
    void window
      .showWarningMessage(`${name} was not let out to ${sanitize(host)}:${port}.`, ...actions)
      .then((choice) => {
        if (choice === ALLOW) void commands.executeCommand('holdfast.allowHost', sessionId, allow);
        if (choice === SHOW_HISTORY) void commands.executeCommand('holdfast.showHistory', sessionId);
      });
  }
}
