import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import {
  ProgressLocation,
  TerminalExitReason,
  TerminalProfile,
  ThemeIcon,
  commands,
  window,
  type Disposable,
  type ExtensionTerminalOptions,
  type Memento,
  type QuickPickItem,
  type Terminal as EditorTerminal,
  type TerminalOptions,
} from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Terminal } from '../../protocol/terminals.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { LOCAL } from '../connection/host-name.ts';
import type { SupervisorProgram } from '../connection/supervisor-program.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { formatAge } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { pickSession } from '../sessions/pick-session.ts';
import { onlySessionInWindow } from '../sessions/session-window.ts';
import { openHostTerminal } from './host-terminal.ts';
import { TerminalIndex } from './terminal-index.ts';
import { PathLinks } from './path-links.ts';
import { cancelledTerminal, messageTerminal } from './message-terminal.ts';
import { trackWindowKind } from './window-kind.ts';

/** The size of a terminal until VS Code shows it and reports the real one. */
const INITIAL_SIZE = { columns: 80, rows: 24 };

export interface SessionTerminalsOptions {
  readonly connection: Connection;
  readonly sessions: SessionList;
  readonly home: string;
  readonly program: () => Promise<SupervisorProgram>;
  /** The state of this workspace. */
  readonly state: Memento;
  /**
   * The working directory of terminals. It is empty, so that VS Code links no path of the output to a file of this
   * machine.
   */
  readonly emptyFolder: string;
}

/** How long after its start a window may still restore terminals. */
const RESTORING_MS = 20_000;

/**
 * Shows terminals of sessions in VS Code's panel. VS Code runs `holdfast terminal attach ID`, which survives a window
 * reload. The terminal itself is in the sandbox and survives the end of that process. Closing it by hand ends it.
 */
export class SessionTerminals implements Disposable {
  readonly #options: SessionTerminalsOptions;
  readonly #owned = new DisposableStore();
  readonly #index: TerminalIndex;
  /** The sessions of terminals that VS Code is about to show, by terminal id. */
  readonly #opening = new Map<string, string>();
  readonly #startedAt = performance.now();
  /** The options of terminals that VS Code opens through our profile. */
  readonly #provided = new WeakSet<object>();

  constructor(options: SessionTerminalsOptions) {
    this.#options = options;
    this.#index = new TerminalIndex(options.state);
    this.#owned.add(trackWindowKind());
    this.#owned.add(
      window.registerTerminalProfileProvider('holdfast.terminal', {
        provideTerminalProfile: () => this.#profile(),
      }),
    );
    this.#owned.add(
      window.registerTerminalLinkProvider(
        new PathLinks(options.connection, async (terminal) => (await this.#index.find(terminal))?.sessionId),
      ),
    );
    this.#owned.add(
      window.onDidOpenTerminal((terminal) => {
        this.#reveal(terminal);
        void this.#remember(terminal);
      }),
    );
    this.#owned.add(window.onDidCloseTerminal((terminal) => void this.#closed(terminal)));
  }

  get handlers() {
    return {
      'holdfast.openTerminal': (target) => this.#open(target),
      'holdfast.openHostTerminal': openHostTerminal,
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** Opens a new terminal, or joins a running one that this window does not show. Returns its id. */
  async #open(target: unknown): Promise<string | undefined> {
    const options = await this.#opened(target);
    if (options === undefined) return undefined;
    const terminal = window.createTerminal(options);
    terminal.show();
    return terminalIdOf(terminal);
  }

  /**
   * For `+`, *Split* and *New Terminal*: always a new terminal. If it cannot be opened, the terminal shows the reason.
   */
  async #profile(): Promise<TerminalProfile> {
    const { connection } = this.#options;
    try {
      if (connection.state.kind === 'noSupervisor') connection.retry();
      // VS Code requests the default profile also for each terminal that it restores after a window reload.
      const isRestoring = performance.now() - this.#startedAt < RESTORING_MS;
      const options = await this.#opened(undefined, isRestoring ? 'restored' : 'new');
      return options === undefined ? new TerminalProfile(cancelledTerminal()) : this.#provide(options);
    } catch (error) {
      const { message, why, next } = HoldfastError.from(error, 'The terminal could not be opened');
      const text = [message, why, next]
        .filter((part) => part !== undefined)
        .map((part) => sanitize(part, 500));
      const tryAgain = (): void =>
        void commands.executeCommand('holdfast.openTerminal', onlySessionInWindow());
      return this.#provide(messageTerminal(text.join('\r\n'), tryAgain));
    }
  }

  #provide(options: TerminalOptions | ExtensionTerminalOptions): TerminalProfile {
    this.#provided.add(identityOf(options));
    return new TerminalProfile(options);
  }

  /** With a remote extension host VS Code opens a terminal of an extension without showing it. */
  #reveal(terminal: EditorTerminal): void {
    if (this.#provided.delete(identityOf(terminal.creationOptions))) terminal.show();
  }

  async #opened(target: unknown, which?: 'new' | 'restored'): Promise<TerminalOptions | undefined> {
    const wanted = target ?? onlySessionInWindow();
    const session = await pickSession(this.#options.sessions, wanted, {
      title: 'Open Terminal',
      fits: ({ status }) => status !== 'expired',
    });
    if (session === undefined) {
      // For a given session there was no picker, so the person has seen no message yet.
      if (wanted !== undefined) throw new HoldfastError('not_found', 'The session no longer exists');
      return undefined;
    }
    // A program that gives the session's id gets a new terminal.
    const joined =
      which === 'restored'
        ? ((await this.#others(session))[0] ?? 'new')
        : (which ?? (typeof target === 'string' ? 'new' : await this.#pickOne(session)));
    if (joined === undefined) return undefined;
    const terminal = joined === 'new' ? await this.#new(session) : joined;
    this.#opening.set(terminal.terminalId, terminal.sessionId);
    return this.#optionsFor(session, terminal);
  }

  async #new(session: Session): Promise<Terminal> {
    const opId = randomUUID();
    const { terminal } = await window.withProgress(
      {
        location: ProgressLocation.Window,
        title: `Opening a terminal in ${sanitize(sessionTitle(session))}`,
      },
      (progress) =>
        this.#options.connection.call(
          'terminal/open',
          { session: session.id, ...INITIAL_SIZE, opId },
          { onProgress: ({ stage }) => progress.report({ message: sanitize(stage) }) },
        ),
    );
    return terminal;
  }

  /** The running terminals that this window does not show, the oldest first. */
  async #others(session: Session): Promise<Terminal[]> {
    const { terminals } = await this.#options.connection.call('terminal/list', { session: session.id });
    const shown = new Set(
      (await Promise.all(window.terminals.map((one) => this.#index.find(one)))).map((one) => one?.terminalId),
    );
    return terminals
      .filter(({ terminalId, status }) => {
        return status === 'running' && !shown.has(terminalId) && !this.#opening.has(terminalId);
      })
      .sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
  }

  /** Asks whether to open a new terminal or to join a running one, if there is one. */
  async #pickOne(session: Session): Promise<Terminal | 'new' | undefined> {
    const others = await this.#others(session);
    if (others.length === 0) return 'new';
    const now = Date.now();
    const items: (QuickPickItem & { choice: Terminal | 'new' })[] = [
      { label: '$(add) New Terminal', choice: 'new' },
      ...others.map((terminal) => ({
        label: `$(terminal) ${sanitize(terminal.command.join(' ') || 'shell', 60)}`,
        description: `opened ${formatAge(terminal.createdAt, now)}`,
        choice: terminal,
      })),
    ];
    const picked = await window.showQuickPick(items, {
      title: `Open Terminal in ${sanitize(sessionTitle(session))}`,
      placeHolder: 'Open a new terminal, or join a running one',
    });
    return picked?.choice;
  }

  async #optionsFor(session: Session, { terminalId, command }: Terminal): Promise<TerminalOptions> {
    const { connection, home, program, emptyFolder } = this.#options;
    const host = connection.of(session.id).name;
    const { cli, environment } = await program();
    const [shellPath = '', ...cliArgs] = cli;
    mkdirSync(emptyFolder, { recursive: true });
    const suffix = command.length === 0 ? '' : `: ${sanitize(command.join(' '), 40)}`;
    return {
      name: `${sanitize(sessionTitle(session), 40)}${suffix}`,
      iconPath: new ThemeIcon('vm'),
      shellPath,
      shellArgs: [
        ...cliArgs,
        'terminal',
        'attach',
        terminalId,
        '--detach-keys',
        'none',
        '--hold',
        '--home',
        home,
        ...(host === LOCAL ? [] : ['--host', host]),
      ],
      cwd: emptyFolder,
      env: {
        ELECTRON_RUN_AS_NODE: environment['ELECTRON_RUN_AS_NODE'] ?? null,
        HOLDFAST_IDLE_SHUTDOWN_MS: environment['HOLDFAST_IDLE_SHUTDOWN_MS'] ?? null,
        // This window connects, and asks where a person expects it.
        HOLDFAST_HOST_LOGIN: 'never',
      },
    };
  }

  async #remember(terminal: EditorTerminal): Promise<void> {
    const terminalId = terminalIdOf(terminal);
    const sessionId = terminalId === undefined ? undefined : this.#opening.get(terminalId);
    if (terminalId === undefined || sessionId === undefined) return;
    this.#opening.delete(terminalId);
    await this.#index.remember(terminal, { terminalId, sessionId });
  }

  /** Ends a terminal that a person closed. When a window closes, its terminals keep running for the next one. */
  async #closed(terminal: EditorTerminal): Promise<void> {
    const { exitStatus } = terminal;
    if (exitStatus?.reason === TerminalExitReason.Shutdown) return;
    const shown = await this.#index.find(terminal);
    if (shown === undefined) return;
    await this.#index.forget(shown.terminalId);
    if (exitStatus?.reason !== TerminalExitReason.User) return;
    try {
      const host = this.#options.connection.of(shown.sessionId);
      await host.call('terminal/close', { terminal: shown.terminalId });
    } catch (error) {
      const failure = HoldfastError.from(error);
      if (failure.code === 'not_found') return;
      void window.showWarningMessage(`The terminal could not be closed: ${sanitize(failure.sentence)}`);
    }
  }
}

/** The object by which options can be recognized: VS Code keeps the identity of `pty`, or of the options. */
function identityOf(options: Readonly<TerminalOptions | ExtensionTerminalOptions>): object {
  return 'pty' in options ? options.pty : options;
}

/** The id in the command line of one of our terminals; undefined for other terminals. */
function terminalIdOf({ creationOptions }: EditorTerminal): string | undefined {
  if (!('shellArgs' in creationOptions) || !Array.isArray(creationOptions.shellArgs)) return undefined;
  const args = creationOptions.shellArgs;
  const at = args.indexOf('attach');
  const id = args[at + 1];
  return args[at - 1] === 'terminal' && id !== undefined && /^term-[a-z2-7]{16}$/.test(id) ? id : undefined;
}
