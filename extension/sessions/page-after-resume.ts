import { commands, window } from 'vscode';
import type { Memento } from 'vscode';
import { sessionsInWindow } from './session-window.ts';

const KEY = 'holdfast.pageAfterResume';
/** How long a window may take to open. */
const OPENING_MS = 60_000;

/** Opens the page of a session that was resumed, in the window that then shows its workspace: often a new one. */
export class PageAfterResume {
  readonly #state: Memento;

  /** `state`: of all windows. */
  constructor(state: Memento) {
    this.#state = state;
  }

  /** Called before the workspace of the session is opened. */
  async expect(session: string): Promise<void> {
    await this.#state.update(KEY, `${session} ${Date.now()}`);
  }

  /** Opens the page if this is the window, and no editor: a person who has begun to work is left alone. */
  async open(): Promise<void> {
    const [session = '', at] = this.#state.get<string>(KEY, '').split(' ');
    const isFresh = Date.now() - Number(at) < OPENING_MS;
    if (session === '' || !sessionsInWindow().has(session)) return;
    await this.#state.update(KEY, undefined);
    const hasEditor = window.tabGroups.all.some(({ tabs }) => tabs.length > 0);
    if (isFresh && !hasEditor) await commands.executeCommand('holdfast.openSessionPage', session);
  }
}
