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
import { sessionsInWindow } from '../sessions/session-window.ts';

const ALLOW = 'Allow Host…';
const SHOW_HISTORY = 'Show History';
/** How long a host is not reported again. */
const REPEAT_MS = 10 * 60_000;
/** An agent may try a hundred hosts. All of them are in the list of `Agent: Allow Host…` and in the history. */
const MAX_PER_MINUTE = 3;

/**
 * Reports denied connections and offers to allow the host. Programs do not always say why they fail: git prints
 * "Everything up-to-date". Follows the sessions of this window and all that run a turn.
 */
export class DenialNotifications implements Disposable {
  readonly #events: SessionEvents;
  readonly #sessions: SessionList;
  readonly #owned = new DisposableStore();
  readonly #subscriptions = new Map<string, Disposable>();
  /** When each session and host was last reported. */
  readonly #reported = new Map<string, number>();

  constructor(connection: Connection, events: SessionEvents, sessions: SessionList) {
    this.#events = events;
    this.#sessions = sessions;
    this.#owned.add(connection.onDidConnect(() => void sessions.refresh()));
    this.#owned.add(sessions.onDidChange((all) => this.#follow(all)));
    this.#owned.add(workspace.onDidChangeWorkspaceFolders(() => this.#follow(sessions.current ?? [])));
    this.#owned.onDispose(() => {
      for (const subscription of this.#subscriptions.values()) void subscription.dispose();
    });
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #follow(sessions: readonly Session[]): void {
    const inWindow = sessionsInWindow();
    const wanted = new Map(
      sessions
        .filter(
          ({ id, runningTurn }) => inWindow.has(id) || runningTurn !== null || this.#subscriptions.has(id),
        )
        .map((session) => [session.id, session]),
    );
    for (const [id, subscription] of this.#subscriptions) {
      if (wanted.has(id)) continue;
      void subscription.dispose();
      this.#subscriptions.delete(id);
    }
    for (const [id, { lastSeq }] of wanted) {
      if (this.#subscriptions.has(id)) continue;
      this.#subscriptions.set(
        id,
        this.#events.follow(id, lastSeq, (event) => this.#onEvent(event)),
      );
    }
  }

  #onEvent(event: SessionEvent): void {
    if (event.type !== 'egress') return;
    const entry = parseEvent(event);
    if (entry?.type !== 'egress' || entry.data.decision !== 'denied') return;
    const { allow, host, port } = entry.data;
    const { sessionId } = event;
    const key = `${sessionId} ${host}:${port}`;
    const now = Date.now();
    if (now - (this.#reported.get(key) ?? 0) < REPEAT_MS) return;
    const latest = [...this.#reported.values()].filter((at) => now - at < 60_000);
    if (latest.length >= MAX_PER_MINUTE) return;
    for (const [other, at] of this.#reported) if (now - at >= REPEAT_MS) this.#reported.delete(other);
    this.#reported.set(key, now);
    const session = this.#sessions.current?.find(({ id }) => id === sessionId);
    const name = sanitize(session === undefined ? sessionId : sessionTitle(session));
    const actions = allow === null ? [SHOW_HISTORY] : [ALLOW, SHOW_HISTORY];
    void window
      .showWarningMessage(`${name} was denied access to ${sanitize(host)}:${port}.`, ...actions)
      .then((choice) => {
        if (choice === ALLOW) void commands.executeCommand('holdfast.allowHost', sessionId, allow);
        if (choice === SHOW_HISTORY) void commands.executeCommand('holdfast.showHistory', sessionId);
      });
  }
}
