import { randomUUID } from 'node:crypto';
import { commands, window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session, SessionStatus } from '../../protocol/entities.ts';
import { SessionNameSchema } from '../../protocol/entities.ts';
import type { Params } from '../../protocol/methods.ts';
import { notifyProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import { validationMessage } from '../base/validation-message.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { createSession } from './create-session.ts';
import { describeDeletion, describeDeletions } from './format.ts';
import { NO_FILTER, filterableStatuses, sessionTitle } from './listing.ts';
import { OPEN_PAGE, openPageIf } from './page-offer.ts';
import { keepSession, moveToHost } from './move-session.ts';
import { exportSession, importSession } from './session-files.ts';
import { openWorkspace } from './open-workspace.ts';
import { commandTargets, pickSession } from './pick-session.ts';
import type { SessionList } from './session-list.ts';
import type { SessionsView } from './sessions-view.ts';
import { runTurn } from './turns.ts';
import type { UnreadTurns } from './unread-turns.ts';

const OPEN_WORKSPACE = 'Open Workspace';
const RUN_TURN = 'Run Turn';

/** The argument of the view's keybindings: the command applies to the selected entries. */
const SELECTED = 'selected';

/** The commands on sessions themselves. Each returns what a program that runs the command may want to know. */
export class SessionCommands {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #view: SessionsView;
  readonly #unread: UnreadTurns;
  readonly #example: string;

  constructor(options: {
    readonly connection: Connection;
    readonly sessions: SessionList;
    readonly view: SessionsView;
    readonly unread: UnreadTurns;
    /** The folder of the agent that *Try the Example* deploys. */
    readonly example: string;
  }) {
    this.#connection = options.connection;
    this.#sessions = options.sessions;
    this.#view = options.view;
    this.#unread = options.unread;
    this.#example = options.example;
  }

  get handlers() {
    return {
      'holdfast.newSession': (profile) => this.#create(profile),
      'holdfast.runTurn': (target, input) => this.#runTurn(target, input),
      'holdfast.cancelTurn': (target) => this.#cancelTurn(target),
      'holdfast.pauseSession': (target, selection) => this.#pause(commandTargets(target, selection)),
      'holdfast.stopSession': (target, selection) => this.#stop(commandTargets(target, selection)),
      'holdfast.deleteSession': (target, selection) =>
        this.#forSelection(target, selection, (targets) => this.#delete(targets)),
      'holdfast.moveSession': (target, host) => this.#move(target, host),
      'holdfast.keepSession': (target) => this.#keep(target),
      'holdfast.exportSession': (target, path) => this.#export(target, path),
      'holdfast.importSession': (path, profile, name, key) => this.#import({ path, profile, name, key }),
      'holdfast.openWorkspace': (target) => this.#openWorkspace(target),
      'holdfast.openWorkspaceInNewWindow': (target) => this.#openWorkspace(target, 'newWindow'),
      'holdfast.addWorkspace': (target) => this.#openWorkspace(target, 'add'),
      'holdfast.renameSession': (target) =>
        this.#forSelection(target, undefined, ([first]) => this.#rename(first)),
      'holdfast.pinSession': (target, selection) =>
        this.#update(commandTargets(target, selection), 'Pin', { pinned: true }),
      'holdfast.unpinSession': (target, selection) =>
        this.#update(commandTargets(target, selection), 'Unpin', { pinned: false }),
      'holdfast.archiveSession': (target, selection) =>
        this.#update(commandTargets(target, selection), 'Archive', { archived: true }),
      'holdfast.unarchiveSession': (target, selection) =>
        this.#update(commandTargets(target, selection), 'Unarchive', { archived: false }),
      'holdfast.refreshSessions': () => this.#sessions.refresh(),
      'holdfast.searchSessions': () => this.#search(),
      'holdfast.filterSessions': () => this.#filter(),
      'holdfast.clearFilter': () => {
        this.#view.filter = NO_FILTER;
      },
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /** Creates a session and returns its id. `profile`: its name; a person is asked where a program gives none. */
  async #create(profile: unknown): Promise<string | undefined> {
    const session = await createSession(this.#connection, profile, this.#example);
    if (session === undefined) return undefined;
    void this.#sessions.refresh();
    void window
      .showInformationMessage(
        `New session of ${sanitize(session.profile)}.`,
        ...[OPEN_WORKSPACE, RUN_TURN, OPEN_PAGE],
      )
      .then((choice) => {
        if (choice === OPEN_WORKSPACE) void commands.executeCommand('holdfast.openWorkspace', session.id);
        if (choice === RUN_TURN) void commands.executeCommand('holdfast.runTurn', session.id);
        openPageIf(choice, session.id);
      });
    return session.id;
  }

  async #runTurn(target: unknown, input: unknown): Promise<unknown> {
    const session = await pickSession(this.#sessions, target, { title: 'Run Turn', here: true });
    if (session === undefined) return undefined;
    const turn = await runTurn(this.#connection.of(session.id), this.#sessions, session, input);
    if (turn === undefined) return undefined;
    const { session: after } = await this.#connection.call('session/show', { session: session.id });
    this.#unread.markRead(after);
    return turn;
  }

  async #cancelTurn(target: unknown): Promise<void> {
    const session = await pickSession(this.#sessions, target, {
      title: 'Cancel Turn',
      none: 'No turn is running.',
      fits: ({ runningTurn }) => runningTurn !== null,
    });
    if (session === undefined || session.runningTurn === null) return;
    await this.#connection.of(session.id).call('turn/cancel', { turn: session.runningTurn });
    void this.#sessions.refresh();
  }

  async #pause(targets: readonly unknown[]): Promise<void> {
    const fits = ({ status }: Session): boolean => status === 'active' || status === 'idle';
    for (const session of await this.#sessionsOf(targets, { title: 'Pause', fits })) {
      await this.#connection.call('session/pause', { session: session.id });
    }
    void this.#sessions.refresh();
  }

  async #stop(targets: readonly unknown[]): Promise<void> {
    const fits = ({ status }: Session): boolean => ['active', 'idle', 'paused'].includes(status);
    for (const session of await this.#sessionsOf(targets, { title: 'Stop', fits }))
      await this.#stopOne(session);
    void this.#sessions.refresh();
  }

  /** The one session that is given or picked; of several given sessions, those that the command applies to. */
  async #sessionsOf(
    targets: readonly unknown[],
    options: { readonly title: string; readonly fits?: (session: Session) => boolean },
  ): Promise<Session[]> {
    const sessions: Session[] = [];
    for (const target of targets) {
      const session = await pickSession(this.#sessions, target, options);
      if (session === undefined) continue;
      if (targets.length === 1 || (options.fits?.(session) ?? true)) sessions.push(session);
    }
    return sessions;
  }

  /** Stops the sandbox. Asks first where work is in progress. */
  async #stopOne(session: Session): Promise<void> {
    const stop = (force: boolean): Promise<unknown> =>
      this.#connection.call('session/stop', { session: session.id, force });
    try {
      await stop(false);
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== 'conflict') throw error;
      const STOP = 'Stop Anyway';
      const choice = await window.showWarningMessage(
        `${sanitize(sessionTitle(session))} is busy.`,
        { modal: true, detail: `${sanitize(error.why ?? error.message)}. Its files stay.` },
        STOP,
      );
      if (choice !== STOP) return;
      await stop(true);
    }
  }

  /** A key applies to the selected entries, else to the focused one, and does nothing where no entry has the focus. */
  async #forSelection(
    target: unknown,
    selection: unknown,
    run: (targets: readonly unknown[]) => Promise<void>,
  ): Promise<void> {
    const targets =
      target === SELECTED ? await this.#view.selectedSessions() : commandTargets(target, selection);
    if (targets.length > 0) await run(targets);
  }

  async #delete(targets: readonly unknown[]): Promise<void> {
    const [session, ...more] = await this.#sessionsOf(targets, { title: 'Delete' });
    if (session === undefined) return;
    if (more.length > 0) await this.#deleteSeveral([session, ...more]);
    else await this.#deleteOne(session);
    void this.#sessions.refresh();
  }

  async #deleteSeveral(sessions: readonly Session[]): Promise<void> {
    const DELETE = 'Delete';
    const choice = await window.showWarningMessage(
      `Delete ${sessions.length} sessions?`,
      { modal: true, detail: describeDeletions(sessions) },
      DELETE,
    );
    if (choice !== DELETE) return;
    await notifyProgress({ title: 'Deleting sessions', cancellable: true }, async (progress, token) => {
      for (const session of sessions) {
        if (token.isCancellationRequested) return;
        progress.report({
          message: sanitize(sessionTitle(session)),
          increment: 100 / sessions.length,
        });
        await this.#deleteNow(session);
      }
    });
  }

  async #deleteOne(session: Session): Promise<void> {
    const { files, bytes } = await this.#connection.call('workspace/info', { session: session.id });
    const DELETE = 'Delete';
    const choice = await window.showWarningMessage(
      `Delete ${sanitize(sessionTitle(session))}?`,
      { modal: true, detail: describeDeletion(session, files, bytes) },
      DELETE,
    );
    if (choice === DELETE) await this.#deleteNow(session);
  }

  async #deleteNow({ id }: Session): Promise<void> {
    await this.#connection.call('session/delete', { session: id, force: true, opId: randomUUID() });
  }

  /** Returns the id of the session where it has moved to. */
  async #move(target: unknown, host: unknown): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Move Session', here: true });
    if (session === undefined) return undefined;
    try {
      return await moveToHost(this.#connection, session, host);
    } finally {
      void this.#sessions.refresh();
    }
  }

  /** Returns the path of the file. */
  async #export(target: unknown, path: unknown): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Export Session', here: true });
    return session === undefined ? undefined : await exportSession(this.#connection, session, path);
  }

  /** Returns the id of the new session. */
  async #import(given: Parameters<typeof importSession>[1]): Promise<string | undefined> {
    const session = await importSession(this.#connection, given);
    if (session === undefined) return undefined;
    void this.#sessions.refresh();
    void window
      .showInformationMessage(`${sanitize(sessionTitle(session))} was imported.`, OPEN_WORKSPACE, OPEN_PAGE)
      .then((choice) => {
        if (choice === OPEN_WORKSPACE) void commands.executeCommand('holdfast.openWorkspace', session.id);
        openPageIf(choice, session.id);
      });
    return session.id;
  }

  async #keep(target: unknown): Promise<void> {
    const session = await pickSession(this.#sessions, target, {
      title: 'Keep Session Here',
      none: 'No session is moving to another host.',
      fits: ({ move }) => move?.state === 'leaving',
    });
    if (session === undefined) return;
    await keepSession(this.#connection, session);
    void this.#sessions.refresh();
  }

  /** Returns the session's id if its workspace was opened. */
  async #openWorkspace(target: unknown, place?: 'newWindow' | 'add'): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Open Workspace' });
    if (session === undefined) return undefined;
    this.#unread.markRead(session);
    return (await openWorkspace(this.#connection, session, place)) ? session.id : undefined;
  }

  async #rename(target: unknown): Promise<void> {
    const session = await pickSession(this.#sessions, target, { title: 'Rename' });
    if (session === undefined) return;
    const name = await window.showInputBox({
      title: `Rename ${sanitize(sessionTitle(session))}`,
      value: session.name,
      prompt: `Must be unique within ${sanitize(session.profile)}`,
      validateInput: (text) => validationMessage(SessionNameSchema, text, 'a name'),
    });
    if (name !== undefined && name !== session.name) await this.#updateOne(session, { name });
  }

  async #update(targets: readonly unknown[], title: string, patch: SessionPatch): Promise<void> {
    for (const session of await this.#sessionsOf(targets, { title })) await this.#updateOne(session, patch);
  }

  async #updateOne({ id }: Session, patch: SessionPatch): Promise<void> {
    await this.#connection.call('session/update', { session: id, ...patch });
    await this.#sessions.refresh();
  }

  async #search(): Promise<void> {
    const search = await window.showInputBox({
      title: 'Search Sessions',
      value: this.#view.filter.search,
      prompt: 'Searches names, profiles, tags, and prompts',
    });
    if (search !== undefined) this.#view.filter = { ...this.#view.filter, search };
  }

  async #filter(): Promise<void> {
    const { statuses, archived } = this.#view.filter;
    const items: (QuickPickItem & { status?: SessionStatus })[] = [
      ...filterableStatuses().map((status) => ({
        label: status,
        status,
        picked: statuses.includes(status),
      })),
      { label: 'archived', description: 'show archived sessions instead', picked: archived },
    ];
    const picked = await window.showQuickPick(items, {
      title: 'Filter Sessions',
      placeHolder: 'Choose which states to show',
      canPickMany: true,
    });
    if (picked === undefined) return;
    this.#view.filter = {
      ...this.#view.filter,
      statuses: picked.flatMap(({ status }) => (status === undefined ? [] : [status])),
      archived: picked.some(({ status }) => status === undefined),
    };
  }
}

type SessionPatch = Omit<Params<'session/update'>, 'session'>;
