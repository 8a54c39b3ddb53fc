import { commands, window } from 'vscode';
import type { Disposable } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { OPEN_PAGE, openPageIf } from '../sessions/page-offer.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { permissionTitle } from './permission-labels.ts';
import { WaitingChanges } from './waiting-changes.ts';

const ANSWER = 'Answer…';

export interface WaitingNotificationsOptions {
  readonly connection: Connection;
  readonly sessions: SessionList;
  /** Whether a person sees the page of a session, and so what it asks. */
  readonly isPageVisible: (session: string) => boolean;
  /** Whether this window is about a session: it shows its files, or has its page open. */
  readonly isHere: (session: string) => boolean;
}

/** Tells a person when a session begins to wait. */
export class WaitingNotifications implements Disposable {
  readonly #options: WaitingNotificationsOptions;
  readonly #changes: WaitingChanges;
  readonly #listener: Disposable;

  constructor(options: WaitingNotificationsOptions) {
    this.#options = options;
    this.#changes = new WaitingChanges((session) => options.connection.of(session).name);
    this.#listener = options.sessions.onDidChange((all) => {
      for (const session of this.#changes.update(all, Date.now())) void this.#notify(session);
    });
  }

  dispose(): void {
    this.#listener.dispose();
  }

  /** Never rejects. */
  async #notify(session: Session): Promise<void> {
    const what = await this.#asked(session);
    // Answered at once, or read by the person meanwhile.
    if (what === null || this.#options.isPageVisible(session.id)) return;
    // Each open window hears of it; a person is told by the one that they work in. The badge counts in all of them. In a
    // browser VS Code may not notice that the focus came back from a page, so what was used a moment ago counts as well.
    const { focused, active } = window.state;
    if (!focused && !active && !this.#options.isHere(session.id)) return;
    const text = `${sanitize(sessionTitle(session))} waits for you${what === undefined ? '.' : `: ${what}`}`;
    const choice = await window.showInformationMessage(text, ANSWER, OPEN_PAGE);
    if (choice === ANSWER) void commands.executeCommand('holdfast.answerPermission', session.id);
    openPageIf(choice, session.id);
  }

  /** The first permission that waits, in words; null where none does any more, undefined where this is not known. */
  async #asked({ id }: Session): Promise<string | null | undefined> {
    try {
      const list = { session: id, limit: 1 };
      const { permissions } = await this.#options.connection.call('permission/list', list);
      const first = permissions.find(({ sessionId }) => sessionId === id);
      return first === undefined ? null : permissionTitle(first);
    } catch {
      return undefined;
    }
  }
}
