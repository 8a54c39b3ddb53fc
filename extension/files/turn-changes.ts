import { EventEmitter, FileDecoration, ThemeColor, workspace } from 'vscode';
import type { Disposable, FileDecorationProvider, Uri } from 'vscode';
import type { SessionEvent } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { SessionEvents } from '../history/session-events.ts';
import { sessionsInWindow } from '../sessions/pick-session.ts';
import { SCHEME, locate } from './location.ts';

const MOST = 20_000;

/** When files were changed last, as far as VS Code was shown them. */
export class ChangeTimes {
  readonly #times = new Map<string, number>();
  readonly #changed = new EventEmitter<Uri[]>();
  readonly onDidChange = this.#changed.event;

  /** From a listing: nothing has happened, so nobody is told. */
  recordListed(uri: Uri, mtimeMs: number): void {
    this.#set(uri.toString(), mtimeMs);
  }

  recordChanged(uris: readonly Uri[]): void {
    const now = Date.now();
    for (const uri of uris) this.#set(uri.toString(), now);
    this.#changed.fire([...uris]);
  }

  lastChangeOf(uri: Uri): number {
    return this.#times.get(uri.toString()) ?? 0;
  }

  #set(key: string, time: number): void {
    this.#times.delete(key);
    this.#times.set(key, time);
    if (this.#times.size <= MOST) return;
    const [oldest] = this.#times.keys();
    if (oldest !== undefined) this.#times.delete(oldest);
  }
}

/** Marks files of this window's sessions that have changed since the last turn began. */
export class TurnChanges implements FileDecorationProvider, Disposable {
  readonly #connection: Connection;
  readonly #events: SessionEvents;
  readonly #times: ChangeTimes;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri[] | undefined>());
  readonly onDidChangeFileDecorations = this.#changed.event;
  readonly #began = new Map<string, number>();
  readonly #followed = new Map<string, Disposable>();

  constructor(connection: Connection, events: SessionEvents, times: ChangeTimes) {
    this.#connection = connection;
    this.#events = events;
    this.#times = times;
    this.#owned.add(times.onDidChange((uris) => this.#changed.fire(uris)));
    this.#owned.add(connection.onDidConnect(() => void this.#follow()));
    this.#owned.add(workspace.onDidChangeWorkspaceFolders(() => void this.#follow()));
    this.#owned.onDispose(() => {
      for (const following of this.#followed.values()) void following.dispose();
    });
    if (connection.peer !== undefined) void this.#follow();
  }

  dispose(): void {
    this.#owned.dispose();
  }

  provideFileDecoration(uri: Uri): FileDecoration | undefined {
    if (uri.scheme !== SCHEME) return undefined;
    const location = locate(uri);
    if (location.kind !== 'workspace') return undefined;
    const began = this.#began.get(location.session);
    if (began === undefined || this.#times.lastChangeOf(uri) < began) return undefined;
    const decoration = new FileDecoration(
      'M',
      'Changed since the last turn began',
      new ThemeColor('gitDecoration.modifiedResourceForeground'),
    );
    decoration.propagate = true;
    return decoration;
  }

  async #follow(): Promise<void> {
    for (const session of sessionsInWindow()) {
      if (this.#followed.has(session)) continue;
      try {
        const [{ turns }, shown] = await Promise.all([
          this.#connection.call('turn/list', { session, limit: 1 }, { repeatable: true }),
          this.#connection.call('session/show', { session }, { repeatable: true }),
        ]);
        const [last] = turns;
        if (last !== undefined) this.#began.set(session, Date.parse(last.startedAt ?? last.createdAt));
        if (this.#followed.has(session) || this.#owned.isDisposed) continue;
        this.#followed.set(
          session,
          this.#events.follow(session, shown.session.lastSeq, (event) => this.#hear(event)),
        );
        this.#changed.fire(undefined);
      } catch {
        // The session is gone, or nobody answers: then there is a next connection.
      }
    }
  }

  #hear({ type, sessionId, at }: SessionEvent): void {
    if (type !== 'turn.started') return;
    this.#began.set(sessionId, Date.parse(at));
    this.#changed.fire(undefined);
  }
}
