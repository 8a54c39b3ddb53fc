import { EventEmitter, window, workspace } from 'vscode';
import type { Disposable, Event } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { SessionHere, SessionsHere } from '../connection/status-item.ts';
import { Disposal } from '../disposal.ts';
import { inert } from '../inert.ts';
import type { KnownSessions } from './known-sessions.ts';
import { statusWord, titleOf } from './listing.ts';
import { onlySessionHere } from './pick.ts';

/** Keeps the session of the window known for as long as the window shows exactly one. */
export class WindowSession implements SessionsHere, Disposable {
  readonly #sessions: KnownSessions;
  readonly #owned = new Disposal();
  readonly #changed = this.#owned.own(new EventEmitter<undefined>());
  #following: Disposable | undefined;

  constructor(sessions: KnownSessions) {
    this.#sessions = sessions;
    this.#owned.own(sessions.onDidChange(() => this.#changed.fire(undefined)));
    this.#owned.own(workspace.onDidChangeWorkspaceFolders(() => this.#follow()));
    // A window in the background needs no news, and asking for them costs.
    this.#owned.own(window.onDidChangeWindowState(() => this.#follow()));
    this.#owned.onEnd(() => void this.#following?.dispose());
    this.#follow();
  }

  get onDidChange(): Event<undefined> {
    return this.#changed.event;
  }

  /** As it was seen last. */
  get session(): Session | undefined {
    const id = onlySessionHere();
    return this.#sessions.current?.find((one) => one.id === id);
  }

  /** `profile/name`, or the profile alone for one that nobody named. */
  get name(): string | undefined {
    const { session } = this;
    if (session === undefined) return undefined;
    const name = session.name === session.id ? session.profile : `${session.profile}/${session.name}`;
    return inert(name, 40);
  }

  get current(): SessionHere | undefined {
    const { session, name } = this;
    if (session === undefined || name === undefined) return undefined;
    const prompt = session.lastPrompt === null ? '' : ` Last prompt: ${inert(session.lastPrompt)}`;
    return {
      text: `${name} · ${statusWord(session)}`,
      tooltip: `this window shows the session ${inert(titleOf(session))}, ${statusWord(session)}.${prompt}`,
    };
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #follow(): void {
    const isHere = window.state.focused && onlySessionHere() !== undefined;
    if (isHere) this.#following ??= this.#sessions.follow();
    else {
      void this.#following?.dispose();
      this.#following = undefined;
    }
    this.#changed.fire(undefined);
  }
}
