import { randomUUID } from 'node:crypto';
import { commands, window, workspace } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ChangeTotals, Snapshot } from '../../protocol/snapshots.ts';
import { notifyProgress } from '../base/progress.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { snapshotUri } from '../files/location.ts';
import { formatCount, formatProgress } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { confirmEndingWork } from '../sessions/confirm-ending-work.ts';
import { openWorkspace } from '../sessions/open-workspace.ts';
import { OPEN_PAGE, openPageIf } from '../sessions/page-offer.ts';
import { pickSession } from '../sessions/pick-session.ts';
import { compareFile, compareSides, compareTurn } from './comparison.ts';
import { deleteSnapshot, openSnapshotFile, pinSnapshot } from './snapshot-actions.ts';
import { pickSnapshot } from './pick-snapshot.ts';
import { formatTotals, snapshotTitle } from './format.ts';

const UNDO = 'Undo';
const COMPARE = 'Compare';

/** The commands that create, open, compare, restore and fork snapshots. */
export class SnapshotCommands {
  readonly #connection: Connection;
  readonly #sessions: SessionList;

  constructor(connection: Connection, sessions: SessionList) {
    this.#connection = connection;
    this.#sessions = sessions;
  }

  get handlers() {
    return {
      'holdfast.createSnapshot': (target, label) => this.#create(target, label),
      'holdfast.restoreSnapshot': (target, snapshot, seen) => this.#restore(target, snapshot, seen),
      'holdfast.forkSession': (target, snapshot, name) => this.#fork(target, snapshot, name),
      'holdfast.compareSnapshots': (target, a, b) => this.#compare(target, a, b),
      'holdfast.seeChanges': (target, turn) => this.#act(target, 'See Changes', compareTurn, turn),
      'holdfast.compareWithTurn': (file) =>
        compareFile(this.#connection, file, (id) => this.#pick(id, 'Compare')),
      'holdfast.openSnapshot': (target, snapshot) => this.#open(target, snapshot),
      'holdfast.openSnapshotFile': (target, snapshot) =>
        this.#act(target, 'Browse Snapshot Files', openSnapshotFile, snapshot),
      'holdfast.pinSnapshot': (target, snapshot, pinned) =>
        this.#act(target, 'Keep or Release Snapshot', pinSnapshot, snapshot, pinned),
      'holdfast.deleteSnapshot': (target, snapshot) =>
        this.#act(target, 'Delete Snapshot', deleteSnapshot, snapshot),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /** Returns the snapshot's id. */
  async #create(target: unknown, given: unknown): Promise<string | undefined> {
    const session = await this.#pick(target, 'Create Snapshot');
    if (session === undefined) return undefined;
    const label = typeof given === 'string' ? given : await askLabel(session);
    if (label === undefined) return undefined;
    const { id, created } = await notifyProgress(
      {
        title: `Creating a snapshot of ${sanitize(sessionTitle(session))}`,
      },
      (progress) =>
        this.#connection.call(
          'snapshot/create',
          { session: session.id, ...(label === '' ? {} : { label }), opId: randomUUID() },
          { onProgress: ({ stage }) => progress.report({ message: sanitize(stage) }) },
        ),
    );
    window.setStatusBarMessage(
      created ? 'The snapshot was created' : 'Nothing has changed since the last snapshot',
      8_000,
    );
    return id;
  }

  /**
   * Restores a snapshot after a preview of the changes, unless the person has seen one with the same totals (`seen`, in words). Returns
   * the snapshot of the files before, null without one; undefined if nothing was restored.
   */
  async #restore(target: unknown, given: unknown, seen: unknown): Promise<string | null | undefined> {
    const session = await this.#pick(target, 'Restore Snapshot');
    if (session === undefined) return undefined;
    const name = sanitize(sessionTitle(session));
    const snapshot = await pickSnapshot(this.#connection, session, { title: `Restore ${name}`, given });
    if (snapshot === undefined || snapshot === 'now') return undefined;
    const { totals } = await this.#connection.call('snapshot/preview', {
      session: session.id,
      from: `snapshot:${snapshot.id}`,
      limit: 1,
    });
    if (seen === formatTotals(totals)) return this.#restoreNow(session, snapshot.id);
    const RESTORE = 'Restore';
    const choice = await window.showWarningMessage(
      `Restore ${name} to “${sanitize(snapshotTitle(snapshot))}”?`,
      { modal: true, detail: restoreDetail(snapshot, formatTotals(totals)) },
      RESTORE,
      COMPARE,
    );
    if (choice === COMPARE) {
      await compareSides(this.#connection, session, 'now', snapshot);
      return undefined;
    }
    if (choice !== RESTORE) return undefined;
    return this.#restoreNow(session, snapshot.id);
  }

  async #restoreNow(session: Session, snapshot: string): Promise<string | null> {
    const name = sanitize(sessionTitle(session));
    const { undo } = await notifyProgress({ title: `Restoring ${name}` }, async (progress) => {
      const onProgress = ({ stage }: { stage: string }): void =>
        progress.report({ message: sanitize(stage) });
      const restore = (cancel: boolean) =>
        this.#connection.call(
          'snapshot/restore',
          { session: session.id, snapshot, cancel, opId: randomUUID() },
          { onProgress },
        );
      try {
        return await restore(false);
      } catch (error) {
        if (!(await confirmEndingWork(session, error))) throw error;
        return restore(true);
      }
    });
    void this.#sessions.refresh();
    const actions = [...(undo === null ? [] : [UNDO]), OPEN_PAGE];
    void window.showInformationMessage(`${name} was restored.`, ...actions).then((choice) => {
      if (choice === UNDO && undo !== null)
        void commands.executeCommand('holdfast.restoreSnapshot', session.id, undo);
      openPageIf(choice, session.id);
    });
    return undo;
  }

  /** Creates a session with the files of a snapshot or the current files. Returns its id. */
  async #fork(target: unknown, given: unknown, givenName: unknown): Promise<string | undefined> {
    const session = await this.#pick(target, 'Fork');
    if (session === undefined) return undefined;
    const title = `Fork ${sanitize(sessionTitle(session))}`;
    const side = await pickSnapshot(this.#connection, session, { title, given, withNow: true });
    if (side === undefined) return undefined;
    const name =
      typeof givenName === 'string'
        ? givenName
        : await window.showInputBox({ title, prompt: 'Name of the new session (optional)' });
    if (name === undefined) return undefined;
    const host = this.#connection.of(session.id);
    const snapshot =
      side === 'now'
        ? (await host.call('snapshot/create', { session: session.id, opId: randomUUID() })).id
        : side.id;
    const forked = await host.call('snapshot/fork', {
      snapshot,
      session: session.id,
      ...(name === '' ? {} : { name }),
      opId: randomUUID(),
    });
    if (!this.#connection.owns(host, forked.session.id))
      throw new HoldfastError(
        'permission_denied',
        `${host.name} says that the fork is a session of another host`,
      );
    void this.#sessions.refresh();
    if (forked.missing > 0) {
      const paths = sanitize(forked.missingPaths.slice(0, 3).join(', '), 200);
      void window.showWarningMessage(
        `The snapshot is incomplete. The fork lacks ${formatCount(forked.missing, 'file')}, for example ${paths}.`,
      );
    }
    this.#showHydration(forked.session);
    if (typeof givenName !== 'string') await openWorkspace(this.#connection, forked.session);
    return forked.session.id;
  }

  /**
   * Shows the progress while the fork's files are copied, and the reason if that fails. Opening a file waits for them.
   */
  #showHydration(session: Session): void {
    if (session.hydration === null) return;
    const name = sanitize(sessionTitle(session));
    const hydration = notifyProgress({ title: `Copying the files of ${name}` }, (progress) =>
      this.#connection.call(
        'workspace/wait',
        { session: session.id },
        {
          onProgress: ({ stage, done, of }) =>
            progress.report({
              message: sanitize(done === null ? stage : `${stage} ${formatProgress(done, of)}`),
            }),
        },
      ),
    );
    void hydration
      .then(undefined, (error: unknown) =>
        window.showWarningMessage(sanitize(HoldfastError.from(error, `${name} has no files yet`).sentence)),
      )
      .then(() => this.#sessions.refresh());
  }

  /**
   * Compares two snapshots, or a snapshot with the current files, in a multi-file diff editor. Returns how much
   * differs.
   */
  async #compare(target: unknown, first: unknown, second: unknown): Promise<ChangeTotals | undefined> {
    const session = await this.#pick(target, 'Compare');
    if (session === undefined) return undefined;
    const title = `Compare ${sanitize(sessionTitle(session))}`;
    const a = await pickSnapshot(this.#connection, session, { title: `${title}: from`, given: first });
    if (a === undefined) return undefined;
    const b = await pickSnapshot(this.#connection, session, {
      title: `${title}: to`,
      given: second,
      withNow: true,
    });
    return b === undefined ? undefined : compareSides(this.#connection, session, a, b);
  }

  /** Adds a snapshot's files to the window as a read-only folder. */
  async #open(target: unknown, given: unknown): Promise<void> {
    const session = await this.#pick(target, 'Open Snapshot');
    if (session === undefined) return;
    const title = `Open a snapshot of ${sanitize(sessionTitle(session))}`;
    const snapshot = await pickSnapshot(this.#connection, session, { title, given });
    if (snapshot === undefined || snapshot === 'now') return;
    workspace.updateWorkspaceFolders(workspace.workspaceFolders?.length ?? 0, 0, {
      uri: snapshotUri(this.#connection.of(session.id), snapshot.id, '/'),
      name: sanitize(`${sessionTitle(session)}: ${snapshotTitle(snapshot)}`),
    });
  }

  async #act<T>(
    target: unknown,
    title: string,
    act: (connection: Connection, session: Session, given: unknown, more: unknown) => Promise<T>,
    given: unknown,
    more?: unknown,
  ): Promise<T | undefined> {
    const session = await this.#pick(target, title);
    return session === undefined ? undefined : act(this.#connection, session, given, more);
  }

  #pick(target: unknown, title: string): Promise<Session | undefined> {
    return pickSession(this.#sessions, target, { title, here: true });
  }
}

function restoreDetail({ missing }: Snapshot, totals: string): string {
  const incomplete =
    missing === 0
      ? ''
      : ` The snapshot lacks ${formatCount(missing, 'file')} that could not be read; they stay unchanged.`;
  return `In the workspace: ${totals}. A snapshot is created first.${incomplete}`;
}

async function askLabel(session: Session): Promise<string | undefined> {
  return window.showInputBox({
    title: `Snapshot of ${sanitize(sessionTitle(session))}`,
    prompt: 'Label (optional)',
    validateInput: (text) => (text.length > 200 ? 'Enter at most 200 characters.' : undefined),
  });
}
