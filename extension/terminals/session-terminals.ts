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
  type Terminal as Window,
  type TerminalOptions,
} from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Terminal } from '../../protocol/terminals.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import type { SupervisorProgram } from '../connection/supervisor-program.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { formatAge, sessionTitle } from '../sessions/listing.ts';
import { onlySessionInWindow, pickSession } from '../sessions/pick-session.ts';
import { openHostTerminal } from './host-terminal.ts';
import { TerminalIndex } from './terminal-index.ts';
import { PathLinks } from './path-links.ts';
import { cancelledTerminal, messageTerminal } from './message-terminal.ts';
import { trackWindowKind } from './window-kind.ts';

/** Until the terminal has a window, which then says its size. */
const FIRST_SIZE = { columns: 80, rows: 24 };

export interface SessionTerminalsOptions {
  readonly connection: Connection;
  readonly sessions: SessionList;
  readonly home: string;
  readonly program: () => Promise<SupervisorProgram>;
  /** Of this window's folder. */
  readonly state: Memento;
  /** An empty folder of ours: a path in a terminal must not be taken for a file of the folder that it was started in. */
  readonly nowhere: string;
}

/** How long after its start a window may still be restoring terminals. */
const RESTORING_MS = 20_000;

/**
 * Terminals of sessions in VS Code's panel. The process that VS Code runs is `terminal attach ID` of the command line, so that it outlives a reload of
 * the window; the terminal itself is in the sandbox and outlives that too. Closing it by hand ends it.
 */
export class SessionTerminals implements Disposable {
  readonly #options: SessionTerminalsOptions;
  readonly #owned = new DisposableStore();
  readonly #known: TerminalIndex;
  /** Sessions of terminals that are about to be shown. */
  readonly #opening = new Map<string, string>();
  readonly #startedAt = performance.now();
  /** What VS Code was given for terminals that it opens itself. */
  readonly #provided = new WeakSet<object>();

  constructor(options: SessionTerminalsOptions) {
    this.#options = options;
    this.#known = new TerminalIndex(options.state);
    this.#owned.add(trackWindowKind());
    this.#owned.add(
      window.registerTerminalProfileProvider('holdfast.terminal', {
        provideTerminalProfile: () => this.#profile(),
      }),
    );
    this.#owned.add(
      window.registerTerminalLinkProvider(
        new PathLinks(options.connection, async (terminal) => (await this.#known.find(terminal))?.sessionId),
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

  /** Opens a terminal, or joins one that nobody here sees; gives its id. */
  async #open(target: unknown): Promise<string | undefined> {
    const options = await this.#opened(target);
    if (options === undefined) return undefined;
    const terminal = window.createTerminal(options);
    terminal.show();
    return terminalIdOf(terminal);
  }

  /** For `+`, *Split* and *New Terminal*: always a new one, and where there is none the terminal itself says why. */
  async #profile(): Promise<TerminalProfile> {
    const { connection } = this.#options;
    try {
      if (connection.state.kind === 'noSupervisor') connection.retry();
      // Where a profile of an extension is the default, VS Code asks it anew for each terminal that it restores after a reload.
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

  /** Where VS Code runs its extensions on another machine it opens a terminal of theirs without showing it. */
  #reveal(terminal: Window): void {
    if (this.#provided.delete(identityOf(terminal.creationOptions))) terminal.show();
  }

  async #opened(target: unknown, which?: 'new' | 'restored'): Promise<TerminalOptions | undefined> {
    const wanted = target ?? onlySessionInWindow();
    const session = await pickSession(this.#options.sessions, wanted, {
      title: 'Open Terminal',
      fits: ({ status }) => status !== 'expired',
    });
    if (session === undefined) {
      // Nobody has been asked, so nobody has been told.
      if (wanted !== undefined) throw new HoldfastError('not_found', 'The session is not there any more');
      return undefined;
    }
    // A program that names its session wants a new one.
    const joined =
      which === 'restored'
        ? ((await this.#others(session))[0] ?? 'new')
        : (which ?? (typeof target === 'string' ? 'new' : await this.#pickOne(session)));
    if (joined === undefined) return undefined;
    const terminal = joined === 'new' ? await this.#new(session) : joined;
    this.#opening.set(terminal.terminalId, terminal.sessionId);
    return this.#windowOf(session, terminal);
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
          { session: session.id, ...FIRST_SIZE, opId },
          { onProgress: ({ stage }) => progress.report({ message: sanitize(stage) }) },
        ),
    );
    return terminal;
  }

  /** Running ones that this window does not show, the oldest first. */
  async #others(session: Session): Promise<Terminal[]> {
    const { terminals } = await this.#options.connection.call(
      'terminal/list',
      { session: session.id },
      { repeatable: true },
    );
    const shown = new Set(
      (await Promise.all(window.terminals.map((one) => this.#known.find(one)))).map((one) => one?.terminalId),
    );
    return terminals
      .filter(({ terminalId, status }) => {
        return status === 'running' && !shown.has(terminalId) && !this.#opening.has(terminalId);
      })
      .sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
  }

  /** Running ones that are in no window of ours can be joined. */
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
      placeHolder: 'A new one, or one that goes on already',
    });
    return picked?.choice;
  }

  async #windowOf(session: Session, { terminalId, command }: Terminal): Promise<TerminalOptions> {
    const { home, program, nowhere } = this.#options;
    const { cli, environment } = await program();
    const [shellPath = '', ...before] = cli;
    mkdirSync(nowhere, { recursive: true });
    const what = command.length === 0 ? '' : `: ${sanitize(command.join(' '), 40)}`;
    return {
      name: `${sanitize(sessionTitle(session), 40)}${what}`,
      iconPath: new ThemeIcon('vm'),
      shellPath,
      shellArgs: [
        ...before,
        'terminal',
        'attach',
        terminalId,
        '--detach-keys',
        'none',
        '--hold',
        '--home',
        home,
      ],
      cwd: nowhere,
      env: {
        ELECTRON_RUN_AS_NODE: environment['ELECTRON_RUN_AS_NODE'] ?? null,
        HOLDFAST_IDLE_SHUTDOWN_MS: environment['HOLDFAST_IDLE_SHUTDOWN_MS'] ?? null,
      },
    };
  }

  async #remember(terminal: Window): Promise<void> {
    const terminalId = terminalIdOf(terminal);
    const sessionId = terminalId === undefined ? undefined : this.#opening.get(terminalId);
    if (terminalId === undefined || sessionId === undefined) return;
    this.#opening.delete(terminalId);
    await this.#known.remember(terminal, { terminalId, sessionId });
  }

  /** Closed by hand: then it is not wanted any more. A window that goes leaves its terminals for the next one. */
  async #closed(terminal: Window): Promise<void> {
    const { exitStatus } = terminal;
    if (exitStatus?.reason === TerminalExitReason.Shutdown) return;
    const shown = await this.#known.find(terminal);
    if (shown === undefined) return;
    await this.#known.forget(shown.terminalId);
    if (exitStatus?.reason !== TerminalExitReason.User) return;
    try {
      await this.#options.connection.call(
        'terminal/close',
        { terminal: shown.terminalId },
        { repeatable: true },
      );
    } catch (error) {
      const failure = HoldfastError.from(error);
      if (failure.code === 'not_found') return;
      void window.showWarningMessage(`The terminal could not be ended: ${sanitize(failure.sentence)}`);
    }
  }
}

/** What VS Code keeps of the options that it was given. */
function identityOf(options: Readonly<TerminalOptions | ExtensionTerminalOptions>): object {
  return 'pty' in options ? options.pty : options;
}

/** The id of the terminal that one of VS Code's shows; undefined for those that are not ours. */
function terminalIdOf({ creationOptions }: Window): string | undefined {
  if (!('shellArgs' in creationOptions) || !Array.isArray(creationOptions.shellArgs)) return undefined;
  const args = creationOptions.shellArgs;
  const at = args.indexOf('attach');
  const id = args[at + 1];
  return args[at - 1] === 'terminal' && id !== undefined && /^term-[a-z2-7]{16}$/.test(id) ? id : undefined;
}
