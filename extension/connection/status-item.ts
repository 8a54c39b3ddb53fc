import { StatusBarAlignment, ThemeColor, commands, window } from 'vscode';
import type { Disposable, Event } from 'vscode';
import type { Connection } from './connection.ts';
import type { ConnectionState } from './state.ts';

interface Appearance {
  readonly text: string;
  readonly tooltip: string;
  readonly command: string;
  readonly warn?: boolean;
}

/** The session of this window as the status bar shows it. */
export interface WindowSessionStatus {
  /** `profile/name` and its state. */
  readonly text: string;
  readonly tooltip: string;
}

export interface WindowSessionSource {
  readonly current: WindowSessionStatus | undefined;
  readonly onDidChange: Event<unknown>;
}

/** The item in the status bar, and the context key `holdfast.state` for views and menus. */
export class StatusItem implements Disposable {
  readonly #item = window.createStatusBarItem('holdfast.status', StatusBarAlignment.Left, 10);
  readonly #windowSession: WindowSessionSource;
  readonly #listeners: readonly Disposable[];

  constructor(connection: Connection, windowSession: WindowSessionSource) {
    this.#item.name = 'Holdfast';
    this.#windowSession = windowSession;
    this.#listeners = [
      connection.onDidChange((state) => this.#show(state)),
      windowSession.onDidChange(() => this.#show(connection.state)),
    ];
    this.#show(connection.state);
  }

  dispose(): void {
    for (const listener of this.#listeners) listener.dispose();
    this.#item.dispose();
  }

  #show(state: ConnectionState): void {
    void commands.executeCommand('setContext', 'holdfast.state', state.kind);
    if (state.kind === 'unused') {
      this.#item.hide();
      return;
    }
    const { text, tooltip, command, warn = false } = appearance(state, this.#windowSession.current);
    this.#item.text = text;
    this.#item.tooltip = tooltip;
    this.#item.accessibilityInformation = { label: tooltip };
    this.#item.command = command;
    this.#item.backgroundColor = warn ? new ThemeColor('statusBarItem.warningBackground') : undefined;
    this.#item.show();
  }
}

function appearance(
  state: Exclude<ConnectionState, { kind: 'unused' }>,
  session: WindowSessionStatus | undefined,
): Appearance {
  switch (state.kind) {
    case 'connecting':
      return {
        text: '$(sync~spin) Holdfast',
        tooltip: 'Holdfast: connecting to the supervisor. Session files are read-only until it answers.',
        command: 'holdfast.showLog',
      };
    case 'connected':
      if (session !== undefined) {
        const { text, tooltip } = session;
        return {
          text: `$(shield) ${text}`,
          tooltip: `Holdfast: ${tooltip}`,
          command: 'holdfast.sessions.focus',
        };
      }
      return {
        text: '$(shield) Holdfast',
        tooltip: `Holdfast: connected. Engine ${state.engine.version ?? ''} at ${state.engine.endpoint}`,
        command: 'holdfast.sessions.focus',
      };
    case 'engineDown':
      return {
        text: '$(warning) Holdfast: Docker is not running',
        tooltip: `Holdfast: ${state.engine.why ?? 'the engine does not answer'}. ${state.engine.next ?? ''}`,
        command: 'holdfast.sessions.focus',
        warn: true,
      };
    case 'noSupervisor':
      return {
        text: '$(debug-disconnect) Holdfast: no supervisor',
        tooltip:
          `Holdfast: ${state.error.sentence}. ` +
          'Session files are read-only until the supervisor answers. Click to try again.',
        command: 'holdfast.connect',
        warn: true,
      };
  }
}
