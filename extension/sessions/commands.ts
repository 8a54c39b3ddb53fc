import { randomUUID } from 'node:crypto';
import { ProgressLocation, QuickPickItemKind, commands, window } from 'vscode';
import type { CancellationToken, Progress as Shown, QuickPickItem } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session, SessionStatus } from '../../protocol/entities.ts';
import { SessionNameSchema } from '../../protocol/entities.ts';
import type { Params, Result } from '../../protocol/methods.ts';
import { ResumeSourceSchema } from '../../protocol/snapshots.ts';
import type { Snapshot } from '../../protocol/snapshots.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import type { HistoryDocuments } from '../history/history-documents.ts';
import { sanitize } from '../base/sanitize.ts';
import { validationMessage } from '../base/validation-message.ts';
import { confirmEndingWork } from './confirm-ending-work.ts';
import { snapshotItems } from '../snapshots/pick-snapshot.ts';
import { snapshotTitle, formatTotals } from '../snapshots/format.ts';
import type { SessionList } from './session-list.ts';
import { NO_FILTER, filterableStatuses, formatBytes, sessionTitle } from './listing.ts';
import { createSession } from './create-session.ts';
import { openWorkspace } from './open-workspace.ts';
import { pickSession, commandTargets } from './pick-session.ts';
import type { SessionsView } from './sessions-view.ts';
import { runTurn } from './turns.ts';
import type { UnreadTurns } from './unread-turns.ts';
import { describeDeletion, formatDispatch, describeDeletions } from './format.ts';

const OPEN_WORKSPACE = 'Open Workspace';
const RUN_TURN = 'Run Turn';

/** What the keybindings of the view give. */
const SELECTED = 'selected';

type ResumeWay = 'files' | 'clean' | `snapshot:${string}`;

/** What commands do with sessions. Each gives what programs may want to know of its outcome. */
export class SessionCommands {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #view: SessionsView;
  readonly #unread: UnreadTurns;
  readonly #histories: HistoryDocuments;
  readonly #example: string;

  constructor(parts: {
    readonly connection: Connection;
    readonly sessions: SessionList;
    readonly view: SessionsView;
    readonly unread: UnreadTurns;
    readonly histories: HistoryDocuments;
    /** Folder of the agent that people can try first. */
    readonly example: string;
  }) {
    this.#connection = parts.connection;
    this.#sessions = parts.sessions;
    this.#view = parts.view;
    this.#unread = parts.unread;
    this.#histories = parts.histories;
    this.#example = parts.example;
  }

  get handlers() {
    return {
      'holdfast.newSession': (profile) => this.#create(profile),
      'holdfast.openSession': (target) => this.#openSession(target),
      'holdfast.resumeSession': (target, way) => this.#resume(target, way),
      'holdfast.resetSession': (target) => this.#reset(target),
      'holdfast.runTurn': (target, input) => this.#runTurn(target, input),
      'holdfast.cancelTurn': (target) => this.#cancelTurn(target),
      'holdfast.pauseSession': (target, selection) => this.#pause(commandTargets(target, selection)),
      'holdfast.stopSession': (target, selection) => this.#stop(commandTargets(target, selection)),
      'holdfast.deleteSession': (target, selection) =>
        this.#onSelected(target, selection, (those) => this.#delete(those)),
      'holdfast.openWorkspace': (target) => this.#open(target),
      'holdfast.openWorkspaceInNewWindow': (target) => this.#open(target, 'newWindow'),
      'holdfast.addWorkspace': (target) => this.#open(target, 'add'),
      'holdfast.showHistory': (target) => this.#showHistory(target),
      'holdfast.renameSession': (target) => this.#onSelected(target, undefined, ([one]) => this.#rename(one)),
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

  /** A new session of a profile (asked for where it is not named); gives its id. */
  async #create(profile: unknown): Promise<string | undefined> {
    const session = await createSession(this.#connection, profile, this.#example);
    if (session === undefined) return undefined;
    void this.#sessions.refresh();
    void window
      .showInformationMessage(`New session of ${sanitize(session.profile)}.`, OPEN_WORKSPACE, RUN_TURN)
      .then((choice) => {
        if (choice === OPEN_WORKSPACE) void commands.executeCommand('holdfast.openWorkspace', session.id);
        if (choice === RUN_TURN) void commands.executeCommand('holdfast.runTurn', session.id);
      });
    return session.id;
  }

  /** Brings a session back and opens its workspace; gives how its sandbox came to be. */
  async #resume(target: unknown, wanted: unknown): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Resume Session' });
    if (session === undefined) return undefined;
    const way = isWay(wanted) ? wanted : await this.#pickWay(session);
    if (way === undefined) return undefined;
    const { sandbox, timings, undo } = await this.#bringBack(session, way);
    void this.#sessions.refresh();
    this.#unread.markRead(session);
    window.setStatusBarMessage(
      `${sanitize(sessionTitle(session))}: ${formatDispatch(sandbox)} (${Math.round(timings.dispatchMs)} ms)`,
      10_000,
    );
    if (undo !== null) this.#offerUndo(session, undo);
    await openWorkspace(session);
    return sandbox.case;
  }

  /** Empties the workspace, which begins with the project again; gives the snapshot that takes it back. */
  async #reset(target: unknown): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Reset' });
    if (session === undefined || !(await this.#isSure(session))) return undefined;
    const { undo } = await this.#bringBack(session, 'clean');
    void this.#sessions.refresh();
    if (undo !== null) this.#offerUndo(session, undo);
    return undo ?? undefined;
  }

  #bringBack(session: Session, from: ResumeWay): Promise<Result<'session/resume'>> {
    return this.#shown(`Resuming ${sanitize(sessionTitle(session))}`, async (_, progress) => {
      progress.report({ message: from === 'files' ? 'bringing the sandbox up' : 'taking a snapshot first' });
      const resume = (cancel: boolean) =>
        this.#connection.call(
          'session/resume',
          { session: session.id, from, cancel, opId: randomUUID() },
          { onProgress: ({ stage }) => progress.report({ message: sanitize(stage) }) },
        );
      try {
        return await resume(false);
      } catch (error) {
        if (!(await confirmEndingWork(session, error))) throw error;
        return resume(true);
      }
    });
  }

  #offerUndo(session: Session, undo: string): void {
    const UNDO = 'Undo';
    void window
      .showInformationMessage(
        `${sanitize(sessionTitle(session))} has other files now. They were kept as a snapshot.`,
        UNDO,
      )
      .then((choice) => {
        if (choice === UNDO) void commands.executeCommand('holdfast.restoreSnapshot', session.id, undo);
      });
  }

  async #isSure(session: Session): Promise<boolean> {
    const { totals } = await this.#connection.call(
      'snapshot/preview',
      { session: session.id, from: 'clean', limit: 1 },
      { repeatable: true },
    );
    if (totals.deleted + totals.directories === 0) return true;
    const CLEAN = 'Empty It';
    const sure = await window.showWarningMessage(
      `Empty the workspace of ${sanitize(sessionTitle(session))}?`,
      {
        modal: true,
        detail: `${formatTotals(totals)}. A snapshot is taken first, so that it can be undone.`,
      },
      CLEAN,
    );
    return sure === CLEAN;
  }

  async #pickWay(session: Session): Promise<ResumeWay | undefined> {
    const { files, bytes } = await this.#connection.call(
      'workspace/info',
      { session: session.id },
      { repeatable: true },
    );
    const held = files === 1 ? 'its one file' : `its ${files.toLocaleString('en-US')} files`;
    const size = formatBytes(bytes);
    const ways: (QuickPickItem & { way: ResumeWay })[] = [
      {
        label: '$(files) Same files',
        description: files === 0 ? 'the workspace is empty' : `with ${held}, ${size}`,
        detail: 'Nothing in the workspace changes.',
        way: 'files',
      },
      {
        label: '$(clear-all) Clean',
        description: files === 0 ? 'the workspace is empty already' : `removes ${held}, ${size}`,
        detail: 'The workspace is emptied and begins with the project again. The history stays.',
        way: 'clean',
      },
    ];
    const snapshots = await snapshotItems(this.#connection, session);
    const picked = await window.showQuickPick(
      [
        ...ways,
        ...(snapshots.length === 0 ? [] : [{ label: 'Snapshots', kind: QuickPickItemKind.Separator }]),
        ...snapshots,
      ],
      {
        title: `Resume ${sanitize(sessionTitle(session))}`,
        placeHolder: session.about === null ? 'How' : `About: ${sanitize(session.about, 80)}`,
        matchOnDescription: true,
      },
    );
    if (picked === undefined) return undefined;
    if ('snapshot' in picked) {
      return picked.snapshot === 'now' ? 'files' : this.#confirmed(session, picked.snapshot);
    }
    if (!('way' in picked)) return undefined;
    if (picked.way !== 'clean' || files === 0) return picked.way;
    return (await this.#isSure(session)) ? 'clean' : undefined;
  }

  /** From a snapshot, after a look at what that changes. */
  async #confirmed(session: Session, snapshot: Snapshot): Promise<ResumeWay | undefined> {
    const from = `snapshot:${snapshot.id}` as const;
    const { totals } = await this.#connection.call(
      'snapshot/preview',
      { session: session.id, from, limit: 1 },
      { repeatable: true },
    );
    const RESUME = 'Resume from It';
    const sure = await window.showWarningMessage(
      `Resume ${sanitize(sessionTitle(session))} from “${sanitize(snapshotTitle(snapshot))}”?`,
      { modal: true, detail: `In the workspace: ${formatTotals(totals)}. A snapshot is taken first.` },
      RESUME,
    );
    return sure === RESUME ? from : undefined;
  }

  async #runTurn(target: unknown, input: unknown): Promise<unknown> {
    const session = await pickSession(this.#sessions, target, { title: 'Run Turn', here: true });
    if (session === undefined) return undefined;
    const turn = await runTurn(this.#connection, this.#sessions, session, input);
    if (turn !== undefined) this.#unread.markRead(await this.#again(session));
    return turn;
  }

  async #cancelTurn(target: unknown): Promise<void> {
    const session = await pickSession(this.#sessions, target, {
      title: 'Cancel Turn',
      none: 'No turn is running.',
      fits: ({ runningTurn }) => runningTurn !== null,
    });
    if (session === undefined || session.runningTurn === null) return;
    await this.#connection.call('turn/cancel', { turn: session.runningTurn }, { repeatable: true });
    void this.#sessions.refresh();
  }

  async #pause(targets: readonly unknown[]): Promise<void> {
    const fits = ({ status }: Session): boolean => status === 'active' || status === 'idle';
    for (const session of await this.#meant(targets, { title: 'Pause', fits })) {
      await this.#connection.call('session/pause', { session: session.id }, { repeatable: true });
    }
    void this.#sessions.refresh();
  }

  async #stop(targets: readonly unknown[]): Promise<void> {
    const fits = ({ status }: Session): boolean => ['active', 'idle', 'paused'].includes(status);
    for (const session of await this.#meant(targets, { title: 'Stop', fits })) await this.#stopOne(session);
    void this.#sessions.refresh();
  }

  /** The one session that is given or picked, or those of several that the command is for. */
  async #meant(
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

  /** Ends the sandbox. A person is asked first where something is at work in it. */
  async #stopOne(session: Session): Promise<void> {
    const stop = (force: boolean): Promise<unknown> =>
      this.#connection.call('session/stop', { session: session.id, force }, { repeatable: true });
    try {
      await stop(false);
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== 'conflict') throw error;
      const STOP = 'Stop Anyway';
      const choice = await window.showWarningMessage(
        `${sanitize(sessionTitle(session))} is at work.`,
        { modal: true, detail: `${sanitize(error.why ?? error.message)}. Its files stay.` },
        STOP,
      );
      if (choice !== STOP) return;
      await stop(true);
    }
  }

  /** A key means the entries that are selected, else the one that the keyboard is on, and nothing where it is on none. */
  async #onSelected(
    target: unknown,
    selection: unknown,
    work: (targets: readonly unknown[]) => Promise<void>,
  ): Promise<void> {
    const targets =
      target === SELECTED ? await this.#view.selectedSessions() : commandTargets(target, selection);
    if (targets.length > 0) await work(targets);
  }

  async #delete(targets: readonly unknown[]): Promise<void> {
    const [session, ...more] = await this.#meant(targets, { title: 'Delete' });
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
    await window.withProgress(
      { location: ProgressLocation.Notification, title: 'Deleting sessions', cancellable: true },
      async (progress, token) => {
        for (const { id, ...session } of sessions) {
          if (token.isCancellationRequested) return;
          progress.report({
            message: sanitize(sessionTitle({ id, ...session })),
            increment: 100 / sessions.length,
          });
          await this.#connection.call('session/delete', { session: id, force: true, opId: randomUUID() });
        }
      },
    );
  }

  async #deleteOne(session: Session): Promise<void> {
    const { files, bytes } = await this.#connection.call(
      'workspace/info',
      { session: session.id },
      { repeatable: true },
    );
    const DELETE = 'Delete';
    const choice = await window.showWarningMessage(
      `Delete ${sanitize(sessionTitle(session))}?`,
      {
        modal: true,
        detail: describeDeletion(session, files, bytes),
      },
      DELETE,
    );
    if (choice !== DELETE) return;
    await this.#connection.call('session/delete', { session: session.id, force: true, opId: randomUUID() });
  }

  /** What an entry of the view shows when it is clicked or Enter is pressed: what the session did, as it happens. */
  async #openSession(target: unknown): Promise<void> {
    const session = await pickSession(this.#sessions, target, { title: 'Open Session' });
    if (session === undefined) return;
    this.#unread.markRead(session);
    // As a click in the Explorer: the keyboard stays in the view.
    await this.#histories.show(session, 'transcript', { preview: true, preserveFocus: true });
  }

  /** Gives the session's id where its workspace was opened. */
  async #open(target: unknown, place?: 'newWindow' | 'add'): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Open Workspace' });
    if (session === undefined) return undefined;
    this.#unread.markRead(session);
    return (await openWorkspace(session, place)) ? session.id : undefined;
  }

  async #showHistory(target: unknown): Promise<void> {
    const session = await pickSession(this.#sessions, target, { title: 'Show History', here: true });
    if (session === undefined) return;
    this.#unread.markRead(session);
    await this.#histories.show(session, 'history');
  }

  async #rename(target: unknown): Promise<void> {
    const session = await pickSession(this.#sessions, target, { title: 'Rename' });
    if (session === undefined) return;
    const name = await window.showInputBox({
      title: `Rename ${sanitize(sessionTitle(session))}`,
      value: session.name,
      prompt: `Unique within ${sanitize(session.profile)}`,
      validateInput: (text) => validationMessage(SessionNameSchema, text, 'a name'),
    });
    if (name !== undefined && name !== session.name) await this.#change(session, { name });
  }

  async #update(targets: readonly unknown[], title: string, patch: SessionPatch): Promise<void> {
    for (const session of await this.#meant(targets, { title })) await this.#change(session, patch);
  }

  async #change({ id }: Session, patch: SessionPatch): Promise<void> {
    await this.#connection.call('session/update', { session: id, ...patch }, { repeatable: true });
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
      ...filterableStatuses().map((status) => ({ label: status, status, picked: statuses.includes(status) })),
      { label: 'archived', description: 'show archived sessions instead', picked: archived },
    ];
    const picked = await window.showQuickPick(items, {
      title: 'Filter Sessions',
      placeHolder: 'Choose states to show',
      canPickMany: true,
    });
    if (picked === undefined) return;
    this.#view.filter = {
      ...this.#view.filter,
      statuses: picked.flatMap(({ status }) => (status === undefined ? [] : [status])),
      archived: picked.some(({ status }) => status === undefined),
    };
  }

  async #again({ id }: Session): Promise<Session> {
    const { session } = await this.#connection.call('session/show', { session: id }, { repeatable: true });
    return session;
  }

  async #shown<T>(
    title: string,
    work: (token: CancellationToken, progress: Shown<{ message: string }>) => Promise<T>,
  ): Promise<T> {
    return window.withProgress({ location: ProgressLocation.Notification, title }, (progress, token) =>
      work(token, progress),
    );
  }
}

type SessionPatch = Omit<Params<'session/update'>, 'session'>;

function isWay(wanted: unknown): wanted is ResumeWay {
  return wanted !== 'memory' && ResumeSourceSchema.safeParse(wanted).success;
}
