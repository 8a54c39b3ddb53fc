import { EventEmitter, workspace } from 'vscode';
import type { Disposable, Event } from 'vscode';
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
    this.#owned.onEnd(() => void this.#following?.dispose());
    this.#follow();
  }

  get onDidChange(): Event<undefined> {
    return this.#changed.event;
  }

  get current(): SessionHere | undefined {
    const id = onlySessionHere();
    const session = this.#sessions.current?.find((one) => one.id === id);
    if (session === undefined) return undefined;
    const name = session.name === session.id ? session.profile : `${session.profile}/${session.name}`;
    const prompt = session.lastPrompt === null ? '' : ` Last prompt: ${inert(session.lastPrompt)}`;
    return {
      text: `${inert(name, 40)} · ${statusWord(session)}`,
      tooltip: `this window shows the session ${inert(titleOf(session))}, ${statusWord(session)}.${prompt}`,
    };
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #follow(): void {
    const isHere = onlySessionHere() !== undefined;
    if (isHere) this.#following ??= this.#sessions.follow();
    else {
      void this.#following?.dispose();
      this.#following = undefined;
    }
    this.#changed.fire(undefined);
  }
}
