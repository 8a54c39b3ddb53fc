import { EventEmitter, FileDecoration, ThemeColor, workspace } from 'vscode';
import type { Disposable, FileDecorationProvider, Uri } from 'vscode';
import type { SessionEvent } from '../../protocol/entities.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { Connection } from '../connection/connection.ts';
import type { ChangeTimes } from '../files/change-times.ts';
import { SCHEME, locate } from '../files/location.ts';
import { sessionsInWindow } from '../sessions/session-window.ts';
import type { SessionEvents } from './session-events.ts';

/** Marks the files of this window's sessions that have changed since the last turn started. */
export class TurnChanges implements FileDecorationProvider, Disposable {
  readonly #connection: Connection;
  readonly #events: SessionEvents;
  readonly #times: ChangeTimes;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri[] | undefined>());
  readonly onDidChangeFileDecorations = this.#changed.event;
  /** When the last turn of each session started. */
  readonly #turnStarts = new Map<string, number>();
  readonly #subscriptions = new Map<string, Disposable>();

  constructor(connection: Connection, events: SessionEvents, times: ChangeTimes) {
    this.#connection = connection;
    this.#events = events;
    this.#times = times;
    this.#owned.add(times.onDidChange((uris) => this.#changed.fire(uris)));
    this.#owned.add(connection.onDidConnect(() => void this.#subscribe()));
    this.#owned.add(workspace.onDidChangeWorkspaceFolders(() => void this.#subscribe()));
    this.#owned.onDispose(() => {
      for (const subscription of this.#subscriptions.values()) void subscription.dispose();
    });
    if (connection.connected.length > 0) void this.#subscribe();
  }

  dispose(): void {
    this.#owned.dispose();
  }

  provideFileDecoration(uri: Uri): FileDecoration | undefined {
    if (uri.scheme !== SCHEME) return undefined;
    const location = locate(uri);
    if (location.kind !== 'workspace') return undefined;
    const turnStart = this.#turnStarts.get(location.session);
    if (turnStart === undefined || this.#times.lastChangeOf(uri) < turnStart) return undefined;
    const decoration = new FileDecoration(
      'M',
      'Changed since the last turn started',
      new ThemeColor('gitDecoration.modifiedResourceForeground'),
    );
    decoration.propagate = true;
    return decoration;
  }

  async #subscribe(): Promise<void> {
    for (const session of sessionsInWindow()) {
      if (this.#subscriptions.has(session)) continue;
      try {
        const [{ turns }, shown] = await Promise.all([
          this.#connection.call('turn/list', { session, limit: 1 }),
          this.#connection.call('session/show', { session }),
        ]);
        const [last] = turns;
        if (last !== undefined) this.#turnStarts.set(session, Date.parse(last.startedAt ?? last.createdAt));
        if (this.#subscriptions.has(session) || this.#owned.isDisposed) continue;
        this.#subscriptions.set(
          session,
          this.#events.follow(session, shown.session.lastSeq, (event) => this.#onEvent(event)),
        );
        this.#changed.fire(undefined);
      } catch {
        // The session was deleted, or the connection broke: the next connection subscribes again.
      }
    }
  }

  #onEvent({ type, sessionId, at }: SessionEvent): void {
    if (type !== 'turn.started') return;
    this.#turnStarts.set(sessionId, Date.parse(at));
    this.#changed.fire(undefined);
  }
}
