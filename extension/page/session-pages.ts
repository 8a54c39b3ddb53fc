import { ViewColumn, window } from 'vscode';
import type { Disposable, Uri, WebviewPanel } from 'vscode';
import { SavedPageSchema } from '../../webview/messages.ts';
import type { Picker } from '../../webview/messages.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { chooseSetting } from '../sessions/agent-settings.ts';
import { pickSession } from '../sessions/pick-session.ts';
import { sessionTitle } from '../sessions/listing.ts';
import type { SessionList } from '../sessions/session-list.ts';
import type { UnreadTurns } from '../sessions/unread-turns.ts';
import { fillPanel } from './fill-panel.ts';
import { SessionPage } from './session-page.ts';

const VIEW_TYPE = 'holdfast.sessionPage';
/** The form of a session's id, which becomes part of the page's document. */
const SESSION_ID = /^ses-[a-z2-7]{16}$/;

export interface SessionPagesOptions {
  readonly connection: Connection;
  readonly sessions: SessionList;
  readonly unread: UnreadTurns;
  /** The folder of the extension. */
  readonly extension: Uri;
}

/** The open session pages of this window, one for each session at most; VS Code restores them after a reload. */
export class SessionPages implements Disposable {
  readonly #options: SessionPagesOptions;
  readonly #owned = new DisposableStore();
  readonly #pages = new Map<string, SessionPage>();

  constructor(options: SessionPagesOptions) {
    this.#options = options;
    this.#owned.add(
      window.registerWebviewPanelSerializer(VIEW_TYPE, {
        deserializeWebviewPanel: async (panel, state) => {
          const { data } = SavedPageSchema.safeParse(state);
          if (data === undefined || !SESSION_ID.test(data.session)) panel.dispose();
          else this.#fill(panel, data.session);
        },
      }),
    );
    this.#owned.onDispose(() => {
      for (const page of this.#pages.values()) page.dispose();
    });
  }

  get handlers() {
    return {
      'holdfast.openSessionPage': (target) => this.#open(target),
      'holdfast.chooseMode': (target, given) => this.#choose('mode', target, given),
      'holdfast.chooseModel': (target, given) => this.#choose('model', target, given),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /** Whether the page of a session is on the screen. */
  isVisible(session: string): boolean {
    return this.#pages.get(session)?.isVisible === true;
  }

  isOpen(session: string): boolean {
    return this.#pages.has(session);
  }

  dispose(): void {
    this.#owned.dispose();
  }

  async #open(target: unknown): Promise<void> {
    const session = await pickSession(this.#options.sessions, target, {
      title: 'Open Session Page',
      here: true,
    });
    if (session === undefined) return;
    const open = this.#pages.get(session.id);
    if (open !== undefined) {
      open.reveal();
      return;
    }
    const panel = window.createWebviewPanel(
      VIEW_TYPE,
      sanitize(sessionTitle(session), 40),
      ViewColumn.Active,
    );
    this.#fill(panel, session.id);
  }

  async #choose(what: Picker['what'], target: unknown, given: unknown): Promise<string | undefined> {
    const { connection, sessions } = this.#options;
    const title = what === 'mode' ? 'Choose Mode' : 'Choose Model';
    const session = await pickSession(sessions, target, { title, here: true });
    if (session === undefined) return undefined;
    const chosen = await chooseSetting(connection, session, what, given);
    void this.#pages.get(session.id)?.sendPickers();
    return chosen;
  }

  #fill(panel: WebviewPanel, session: string): void {
    const { connection, sessions, unread, extension } = this.#options;
    fillPanel(panel, extension, { bundle: 'session-page', title: 'Session', session });
    const page = new SessionPage({
      connection,
      sessions,
      session,
      panel,
      extension,
      onSeen: (seen) => unread.markRead(seen),
    });
    // A second tab of the same session, which VS Code may restore, replaces the first.
    this.#pages.get(session)?.dispose();
    this.#pages.set(session, page);
    panel.onDidDispose(() => {
      page.dispose();
      if (this.#pages.get(session) === page) this.#pages.delete(session);
    });
  }
}
