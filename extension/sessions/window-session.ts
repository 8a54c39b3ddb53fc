import { EventEmitter, window, workspace } from 'vscode';
import type { Disposable, Event } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import type { WindowSessionStatus, WindowSessionSource } from '../connection/status-item.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from './session-list.ts';
import { formatStatus, sessionTitle } from './listing.ts';
import { onlySessionInWindow } from './session-window.ts';

/** Follows the session of a window that shows exactly one. */
export class WindowSession implements WindowSessionSource, Disposable {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<undefined>());

  constructor(connection: Connection, sessions: SessionList) {
    this.#connection = connection;
    this.#sessions = sessions;
    this.#owned.add(sessions.onDidChange(() => this.#changed.fire(undefined)));
    this.#owned.add(workspace.onDidChangeWorkspaceFolders(() => this.#follow()));
    this.#owned.add(window.onDidChangeWindowState(() => this.#follow()));
    this.#follow();
  }

  get onDidChange(): Event<undefined> {
    return this.#changed.event;
  }

  /** As last listed. */
  get session(): Session | undefined {
    const id = onlySessionInWindow();
    return this.#sessions.current?.find((one) => one.id === id);
  }

  /** `profile/name`, or the profile alone for a session without a name. */
  get name(): string | undefined {
    const { session } = this;
    if (session === undefined) return undefined;
    const name = session.name === session.id ? session.profile : `${session.profile}/${session.name}`;
    return sanitize(name, 40);
  }

  get current(): WindowSessionStatus | undefined {
    const { session, name } = this;
    if (session === undefined || name === undefined) return undefined;
    const prompt = session.lastPrompt === null ? '' : ` Last prompt: ${sanitize(session.lastPrompt)}`;
    return {
      text: `${name} · ${formatStatus(session)}`,
      tooltip: `this window shows the session ${sanitize(sessionTitle(session))}, ${formatStatus(session)}.${prompt}`,
    };
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #follow(): void {
    if (window.state.focused && onlySessionInWindow() !== undefined) this.#connection.ensureConnecting();
    this.#changed.fire(undefined);
  }
}
