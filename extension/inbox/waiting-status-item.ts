import { StatusBarAlignment, ThemeColor, window } from 'vscode';
import type { Disposable } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { formatWaiting, waitingSessions } from '../sessions/waiting.ts';

/** The item in the status bar that counts the sessions that wait; a click goes to the next one. Hidden where none does. */
export class WaitingStatusItem implements Disposable {
  readonly #item = window.createStatusBarItem('holdfast.waiting', StatusBarAlignment.Left, 9);
  readonly #listener: Disposable;

  constructor(sessions: SessionList) {
    this.#item.name = 'Holdfast: Waiting Sessions';
    this.#item.command = 'holdfast.nextWaiting';
    this.#item.backgroundColor = new ThemeColor('statusBarItem.warningBackground');
    this.#listener = sessions.onDidChange((all) => this.#show(all));
  }

  dispose(): void {
    this.#listener.dispose();
    this.#item.dispose();
  }

  #show(sessions: readonly Session[]): void {
    const count = waitingSessions(sessions).length;
    if (count === 0) {
      this.#item.hide();
      return;
    }
    this.#item.text = `$(bell-dot) ${count} waiting`;
    this.#item.tooltip = `${formatWaiting(count)}. Click to go to the next one.`;
    this.#item.accessibilityInformation = { label: this.#item.tooltip };
    this.#item.show();
  }
}
