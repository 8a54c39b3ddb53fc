import { commands, window } from 'vscode';
import type { Disposable } from 'vscode';
import type { Connection } from '../connection/connection.ts';
import type { Host, Occurrence } from '../connection/host.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { NotificationLimit } from '../base/notification-limit.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { OPEN_PAGE, openPageIf } from '../sessions/page-offer.ts';

const ALLOW = 'Allow Host…';
const SHOW_HISTORY = 'Show History';
/** How long a host is not reported again. */
const REPEAT_MS = 10 * 60_000;
/** An agent may try a hundred hosts. All of them are in the list of `Agent: Allow Host…` and in the history. */
const MAX_PER_MINUTE = 3;

/**
 * Reports denied connections and offers to allow the host. Programs do not always say why they fail: git prints
 * "Everything up-to-date".
 */
export class DenialNotifications implements Disposable {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #owned = new DisposableStore();
  /** When each session and host was last reported. */
  readonly #reported = new Map<string, number>();
  readonly #limit = new NotificationLimit(MAX_PER_MINUTE);

  constructor(connection: Connection, host: Host, sessions: SessionList) {
    this.#connection = connection;
    this.#sessions = sessions;
    this.#owned.add(
      host.onDidOccur((occurrence) => {
        if (occurrence.kind === 'denial') this.#report(occurrence);
      }),
    );
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #report({ sessionId, allow, host, port }: Extract<Occurrence, { kind: 'denial' }>): void {
    const key = `${sessionId} ${host}:${port}`;
    const now = Date.now();
    if (now - (this.#reported.get(key) ?? 0) < REPEAT_MS) return;
    if (!this.#limit.take(this.#connection.of(sessionId).name, now)) return;
    for (const [other, at] of this.#reported) if (now - at >= REPEAT_MS) this.#reported.delete(other);
    this.#reported.set(key, now);
    const session = this.#sessions.current?.find(({ id }) => id === sessionId);
    const name = sanitize(session === undefined ? sessionId : sessionTitle(session));
    const actions = [...(allow === null ? [] : [ALLOW]), OPEN_PAGE, SHOW_HISTORY];
    void window
      .showWarningMessage(`${name} was denied access to ${sanitize(host)}:${port}.`, ...actions)
      .then((choice) => {
        if (choice === ALLOW) void commands.executeCommand('holdfast.allowHost', sessionId, allow);
        openPageIf(choice, sessionId);
        if (choice === SHOW_HISTORY) void commands.executeCommand('holdfast.showHistory', sessionId);
      });
  }
}
