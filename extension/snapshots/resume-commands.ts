import { randomUUID } from 'node:crypto';
import { QuickPickItemKind, commands, window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { Result } from '../../protocol/methods.ts';
import { ResumeSourceSchema } from '../../protocol/snapshots.ts';
import type { Snapshot } from '../../protocol/snapshots.ts';
import { formatBytes, formatCount } from '../base/format.ts';
import { notifyProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import type { PageAfterResume } from '../sessions/page-after-resume.ts';
import { confirmEndingWork } from '../sessions/confirm-ending-work.ts';
import { formatDispatch } from '../sessions/format.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { openWorkspace } from '../sessions/open-workspace.ts';
import { OPEN_PAGE, openPageIf } from '../sessions/page-offer.ts';
import { pickSession } from '../sessions/pick-session.ts';
import type { SessionList } from '../sessions/session-list.ts';
import type { UnreadTurns } from '../sessions/unread-turns.ts';
import { formatTotals, snapshotTitle } from './format.ts';
import { snapshotItems } from './pick-snapshot.ts';

const STATUS_MS = 10_000;

/** What the workspace has after a resume. */
type ResumeSource = 'files' | 'clean' | `snapshot:${string}`;

/** Commands that resume a session with its files, an empty workspace, or a snapshot. */
export class ResumeCommands {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #unread: UnreadTurns;
  readonly #page: PageAfterResume;

  constructor(connection: Connection, sessions: SessionList, unread: UnreadTurns, page: PageAfterResume) {
    this.#connection = connection;
    this.#sessions = sessions;
    this.#unread = unread;
    this.#page = page;
  }

  get handlers() {
    return {
      'holdfast.resumeSession': (target, source) => this.#resume(target, source),
      'holdfast.resetSession': (target) => this.#reset(target),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /** Resumes a session and opens its workspace. Returns how the session got its sandbox. */
  async #resume(target: unknown, given: unknown): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Resume Session' });
    if (session === undefined) return undefined;
    const source = isResumeSource(given) ? given : await this.#pickSource(session);
    if (source === undefined) return undefined;
    const { sandbox, timings, undo } = await this.#resumeFrom(session, source);
    void this.#sessions.refresh();
    this.#unread.markRead(session);
    window.setStatusBarMessage(
      `${sanitize(sessionTitle(session))}: ${formatDispatch(sandbox)} (${Math.round(timings.dispatchMs)} ms)`,
      STATUS_MS,
    );
    if (undo !== null) this.#offerUndo(session, undo);
    await this.#page.expect(session.id);
    await openWorkspace(this.#connection, session);
    await this.#page.open();
    return sandbox.case;
  }

  /** Empties the workspace and seeds it from the project again. Returns the snapshot of the files before. */
  async #reset(target: unknown): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Reset Workspace' });
    if (session === undefined || !(await this.#confirmReset(session))) return undefined;
    const { undo } = await this.#resumeFrom(session, 'clean');
    void this.#sessions.refresh();
    if (undo !== null) this.#offerUndo(session, undo);
    return undo ?? undefined;
  }

  async #resumeFrom(session: Session, from: ResumeSource): Promise<Result<'session/resume'>> {
    return notifyProgress({ title: `Resuming ${sanitize(sessionTitle(session))}` }, async (progress) => {
      progress.report({ message: from === 'files' ? 'starting the sandbox' : 'creating a snapshot first' });
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
        `The files of ${sanitize(sessionTitle(session))} were replaced. A snapshot has the previous files.`,
        UNDO,
        OPEN_PAGE,
      )
      .then((choice) => {
        if (choice === UNDO) void commands.executeCommand('holdfast.restoreSnapshot', session.id, undo);
        openPageIf(choice, session.id);
      });
  }

  async #confirmReset(session: Session): Promise<boolean> {
    const { totals } = await this.#connection.call('snapshot/preview', {
      session: session.id,
      from: 'clean',
      limit: 1,
    });
    if (totals.deleted + totals.directories === 0) return true;
    const RESET = 'Reset';
    const choice = await window.showWarningMessage(
      `Reset the workspace of ${sanitize(sessionTitle(session))}?`,
      {
        modal: true,
        detail: `In the workspace: ${formatTotals(totals)}. A snapshot is created first, so you can undo this.`,
      },
      RESET,
    );
    return choice === RESET;
  }

  async #pickSource(session: Session): Promise<ResumeSource | undefined> {
    const { files, bytes } = await this.#connection.call('workspace/info', { session: session.id });
    const size = `${formatCount(files, 'file')}, ${formatBytes(bytes)}`;
    const sources: (QuickPickItem & { source: ResumeSource })[] = [
      {
        label: '$(files) Same files',
        description: files === 0 ? 'the workspace is empty' : `keeps ${size}`,
        detail: 'Nothing in the workspace changes.',
        source: 'files',
      },
      {
        label: '$(clear-all) Clean',
        description: files === 0 ? 'the workspace is already empty' : `removes ${size}`,
        detail: 'The workspace is emptied and starts from the project again. The history stays.',
        source: 'clean',
      },
    ];
    const snapshots = await snapshotItems(this.#connection, session);
    const picked = await window.showQuickPick(
      [
        ...sources,
        ...(snapshots.length === 0 ? [] : [{ label: 'Snapshots', kind: QuickPickItemKind.Separator }]),
        ...snapshots,
      ],
      {
        title: `Resume ${sanitize(sessionTitle(session))}`,
        placeHolder: session.about === null ? 'Resume with…' : `About: ${sanitize(session.about, 80)}`,
        matchOnDescription: true,
      },
    );
    if (picked === undefined) return undefined;
    if ('snapshot' in picked) {
      return picked.snapshot === 'now' ? 'files' : this.#confirmSnapshot(session, picked.snapshot);
    }
    if (!('source' in picked)) return undefined;
    if (picked.source !== 'clean' || files === 0) return picked.source;
    return (await this.#confirmReset(session)) ? 'clean' : undefined;
  }

  /** Shows what a resume from the snapshot would change, and asks. */
  async #confirmSnapshot(session: Session, snapshot: Snapshot): Promise<ResumeSource | undefined> {
    const from = `snapshot:${snapshot.id}` as const;
    const { totals } = await this.#connection.call('snapshot/preview', {
      session: session.id,
      from,
      limit: 1,
    });
    const RESUME = 'Resume';
    const choice = await window.showWarningMessage(
      `Resume ${sanitize(sessionTitle(session))} from “${sanitize(snapshotTitle(snapshot))}”?`,
      { modal: true, detail: `In the workspace: ${formatTotals(totals)}. A snapshot is created first.` },
      RESUME,
    );
    return choice === RESUME ? from : undefined;
  }
}

function isResumeSource(given: unknown): given is ResumeSource {
  return given !== 'memory' && ResumeSourceSchema.safeParse(given).success;
}
