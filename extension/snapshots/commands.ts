import { randomUUID } from 'node:crypto';
import type { Uri } from 'vscode';
import { ProgressLocation, commands, window, workspace } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Change, ChangeTotals, Snapshot } from '../../protocol/snapshots.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { snapshotUri, workspaceUri } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { confirmEndingWork } from '../sessions/confirm-ending-work.ts';
import { openWorkspace } from '../sessions/open-workspace.ts';
import { onlySessionInWindow, pickSession } from '../sessions/pick-session.ts';
import { modeUri } from './mode-documents.ts';
import { pickSnapshot } from './pick-snapshot.ts';
import { formatCaveats, formatProgress, snapshotTitle, formatTotals } from './format.ts';

/** Files that are compared side by side at most; the rest is counted. */
const MOST_COMPARED = 500;
const UNDO = 'Undo';
const COMPARE = 'Compare';

type Side = Snapshot | 'now';

/** Points in time of a workspace: taking, looking at, comparing, bringing back. */
export class SnapshotCommands {
  readonly #connection: Connection;
  readonly #sessions: SessionList;

  constructor(connection: Connection, sessions: SessionList) {
    this.#connection = connection;
    this.#sessions = sessions;
  }

  get handlers() {
    return {
      'holdfast.createSnapshot': (target, label) => this.#take(target, label),
      'holdfast.restoreSnapshot': (target, snapshot) => this.#restore(target, snapshot),
      'holdfast.forkSession': (target, snapshot, name) => this.#fork(target, snapshot, name),
      'holdfast.compareSnapshots': (target, a, b) => this.#compare(target, a, b),
      'holdfast.openSnapshot': (target, snapshot) => this.#open(target, snapshot),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /** Gives the snapshot's id. */
  async #take(target: unknown, given: unknown): Promise<string | undefined> {
    const session = await this.#pick(target, 'Take Snapshot');
    if (session === undefined) return undefined;
    const label = typeof given === 'string' ? given : await askLabel(session);
    if (label === undefined) return undefined;
    const { id, created } = await window.withProgress(
      {
        location: ProgressLocation.Notification,
        title: `Taking a snapshot of ${sanitize(sessionTitle(session))}`,
      },
      (progress) =>
        this.#connection.call(
          'snapshot/create',
          { session: session.id, ...(label === '' ? {} : { label }), opId: randomUUID() },
          { onProgress: ({ stage }) => progress.report({ message: sanitize(stage) }) },
        ),
    );
    window.setStatusBarMessage(
      created ? 'The snapshot is taken' : 'Nothing has changed since the last snapshot',
      8_000,
    );
    return id;
  }

  /** Makes the workspace what a snapshot has, after a look at what that changes. Gives the snapshot that takes it back. */
  async #restore(target: unknown, given: unknown): Promise<string | undefined> {
    const session = await this.#pick(target, 'Restore Snapshot');
    if (session === undefined) return undefined;
    const name = sanitize(sessionTitle(session));
    const snapshot = await pickSnapshot(this.#connection, session, { title: `Restore ${name}`, given });
    if (snapshot === undefined || snapshot === 'now') return undefined;
    const { totals } = await this.#connection.call(
      'snapshot/preview',
      { session: session.id, from: `snapshot:${snapshot.id}`, limit: 1 },
      { repeatable: true },
    );
    const RESTORE = 'Restore';
    const choice = await window.showWarningMessage(
      `Restore ${name} to “${sanitize(snapshotTitle(snapshot))}”?`,
      { modal: true, detail: restoreDetail(snapshot, formatTotals(totals)) },
      RESTORE,
      COMPARE,
    );
    if (choice === COMPARE) {
      await this.#compareSides(session, 'now', snapshot);
      return undefined;
    }
    if (choice !== RESTORE) return undefined;
    return this.#restoreNow(session, snapshot.id);
  }

  async #restoreNow(session: Session, snapshot: string): Promise<string | undefined> {
    const name = sanitize(sessionTitle(session));
    const { undo } = await window.withProgress(
      { location: ProgressLocation.Notification, title: `Restoring ${name}` },
      async (progress) => {
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
      },
    );
    void this.#sessions.refresh();
    const actions = undo === null ? [] : [UNDO];
    void window.showInformationMessage(`${name} is restored.`, ...actions).then((choice) => {
      if (choice === UNDO && undo !== null)
        void commands.executeCommand('holdfast.restoreSnapshot', session.id, undo);
    });
    return undo ?? undefined;
  }

  /** A session of its own with a snapshot's files, or with those of now. Gives its id. */
  async #fork(target: unknown, given: unknown, called: unknown): Promise<string | undefined> {
    const session = await this.#pick(target, 'Fork');
    if (session === undefined) return undefined;
    const title = `Fork ${sanitize(sessionTitle(session))}`;
    const side = await pickSnapshot(this.#connection, session, { title, given, withNow: true });
    if (side === undefined) return undefined;
    const name =
      typeof called === 'string'
        ? called
        : await window.showInputBox({ title, prompt: 'Name of the new session; empty: none' });
    if (name === undefined) return undefined;
    const snapshot =
      side === 'now'
        ? (await this.#connection.call('snapshot/create', { session: session.id, opId: randomUUID() })).id
        : side.id;
    const forked = await this.#connection.call('snapshot/fork', {
      snapshot,
      session: session.id,
      ...(name === '' ? {} : { name }),
      opId: randomUUID(),
    });
    void this.#sessions.refresh();
    if (forked.missing > 0) {
      const paths = sanitize(forked.missingPaths.slice(0, 3).join(', '), 200);
      void window.showWarningMessage(
        `The snapshot was incomplete: ${forked.missing.toLocaleString('en-US')} files are not in the fork, such as ${paths}.`,
      );
    }
    this.#showFilling(forked.session);
    if (typeof called !== 'string') await openWorkspace(forked.session);
    return forked.session.id;
  }

  /** Says how far its files are, and why where they cannot be brought; whoever opens one waits for them. */
  #showFilling(session: Session): void {
    if (session.hydration === null) return;
    const name = sanitize(sessionTitle(session));
    const shown = window.withProgress(
      { location: ProgressLocation.Notification, title: `Bringing the files of ${name}` },
      (progress) =>
        this.#connection.call(
          'workspace/wait',
          { session: session.id },
          {
            repeatable: true,
            onProgress: ({ stage, done, of }) =>
              progress.report({
                message: sanitize(done === null ? stage : `${stage} ${formatProgress(done, of)}`),
              }),
          },
        ),
    );
    void shown
      .then(undefined, (error: unknown) =>
        window.showWarningMessage(sanitize(HoldfastError.from(error, `${name} has no files yet`).sentence)),
      )
      .then(() => this.#sessions.refresh());
  }

  /** Two snapshots, or one and now, in VS Code's editor for many comparisons. Gives how much differs. */
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
    return b === undefined ? undefined : this.#compareSides(session, a, b);
  }

  async #compareSides(session: Session, a: Side, b: Side): Promise<ChangeTotals> {
    const { changes, totals, caveats } = await this.#connection.call(
      'snapshot/diff',
      { a: idOf(a), b: idOf(b), session: session.id, limit: MOST_COMPARED },
      { repeatable: true },
    );
    const resources = changes.flatMap((change) => sidesOf(session.id, a, b, change));
    const told = [formatTotals(totals), formatCaveats(caveats)].filter((words) => words !== null).join('; ');
    const title = `${sanitize(sessionTitle(session))}: ${sideTitle(a)} → ${sideTitle(b)} (${told})`;
    if (resources.length === 0) void window.showInformationMessage(`${title}.`);
    else {
      await commands.executeCommand('vscode.changes', title, resources);
      if (totalOf(totals) > changes.length) {
        window.setStatusBarMessage(
          `The first ${changes.length} changes are shown: ${formatTotals(totals)} in all`,
          10_000,
        );
      }
    }
    return totals;
  }

  /** Adds a snapshot's files as a folder that cannot be changed. */
  async #open(target: unknown, given: unknown): Promise<void> {
    const session = await this.#pick(target, 'Open Snapshot');
    if (session === undefined) return;
    const title = `Open a snapshot of ${sanitize(sessionTitle(session))}`;
    const snapshot = await pickSnapshot(this.#connection, session, { title, given });
    if (snapshot === undefined || snapshot === 'now') return;
    workspace.updateWorkspaceFolders(workspace.workspaceFolders?.length ?? 0, 0, {
      uri: snapshotUri(snapshot.id, '/'),
      name: sanitize(`${sessionTitle(session)}: ${snapshotTitle(snapshot)}`),
    });
  }

  #pick(target: unknown, title: string): Promise<Session | undefined> {
    return pickSession(this.#sessions, target ?? onlySessionInWindow(), { title });
  }
}

function restoreDetail({ missing }: Snapshot, totals: string): string {
  const lacking =
    missing === 0
      ? ''
      : ` The snapshot lacks ${missing.toLocaleString('en-US')} files that could not be read; those stay as they are.`;
  return `In the workspace: ${totals}. A snapshot is taken first.${lacking}`;
}

async function askLabel(session: Session): Promise<string | undefined> {
  return window.showInputBox({
    title: `Snapshot of ${sanitize(sessionTitle(session))}`,
    prompt: 'What it is for; empty: no label',
    validateInput: (text) => (text.length > 200 ? 'at most 200 characters' : undefined),
  });
}

function idOf(side: Side): string {
  return side === 'now' ? 'now' : side.id;
}

function sideTitle(side: Side): string {
  return side === 'now' ? 'now' : sanitize(snapshotTitle(side));
}

function totalOf({ bytes: _bytes, ...counts }: ChangeTotals): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

type Sides = [Uri, Uri | undefined, Uri | undefined];

/**
 * What the comparison shows of one change: what VS Code calls the entry, then both sides, undefined where there is no file. Files by
 * their content, and whatever has another mode by that.
 */
function sidesOf(session: string, a: Side, b: Side, change: Change): Sides[] {
  const { path, oldPath, kind, type, oldMode, newMode } = change;
  const at = (side: Side, where: string): Uri =>
    side === 'now' ? workspaceUri(session, where) : snapshotUri(side.id, where);
  const name = workspaceUri(session, path.startsWith(WORKSPACE) ? path : `${WORKSPACE}/${path}`);
  const sides: Sides[] = [];
  if (type === 'file' && kind !== 'mode') {
    const left = kind === 'added' ? undefined : at(a, oldPath ?? path);
    const right = kind === 'deleted' ? undefined : at(b, path);
    sides.push([name, left, right]);
  }
  if (kind !== 'typechange' && oldMode !== null && newMode !== null && oldMode !== newMode) {
    sides.push([name, modeUri(path, oldMode), modeUri(path, newMode)]);
  }
  return sides;
}
