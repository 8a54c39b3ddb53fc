import { Uri, commands, window } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Change, ChangeTotals, Snapshot } from '../../protocol/snapshots.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import { SCHEME, baseName, locate, snapshotUri, workspaceUri } from '../files/location.ts';
import type { Homes } from '../files/location.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { formatCaveats, formatTotals, snapshotTitle } from './format.ts';
import { modeUri } from './mode-documents.ts';
import { snapshotsOfTurn } from './turn-snapshots.ts';

/** How many files are compared side by side. Further changes are only counted. */
const MAX_COMPARED = 500;

/** `now`: the workspace as it is. */
export type Side = Snapshot | 'now';

/** Shows what a turn changed on disk; without an id, the last one. Returns how much that is. */
export async function compareTurn(
  connection: Connection,
  session: Session,
  turn: unknown,
): Promise<ChangeTotals> {
  const id = typeof turn === 'string' ? turn : undefined;
  const { before, after } = await snapshotsOfTurn(connection, session.id, id);
  const [a, b] = await Promise.all([
    snapshotOf(connection, session, before),
    after === null ? ('now' as const) : snapshotOf(connection, session, after),
  ]);
  return await compareSides(connection, session, a, b);
}

/** Shows a file beside what it was before the last turn. `given`: from the menu of the file, else the one in the active editor. */
export async function compareFile(
  connection: Connection,
  given: unknown,
  pick: (session: string) => Promise<Session | undefined>,
): Promise<void> {
  const uri = given instanceof Uri ? given : window.activeTextEditor?.document.uri;
  const location = uri?.scheme === SCHEME ? locate(uri) : undefined;
  if (uri === undefined || location?.kind !== 'workspace') {
    throw new HoldfastError('invalid_params', 'No file of a session is open', {
      next: 'open one, or use the menu of a file in the Explorer',
    });
  }
  const session = await pick(location.session);
  if (session === undefined) return;
  const { before } = await snapshotsOfTurn(connection, session.id);
  const sides = { session: session.id, a: before, b: 'now' as const };
  const { changes } = await connection.call('snapshot/diff', { ...sides, path: location.path, limit: 1 });
  const change = changes.find(({ path }) => absolute(path) === location.path);
  const name = sanitize(baseName(location.path));
  if (change === undefined || change.kind === 'added') {
    const why =
      change === undefined ? 'is as it was before the last turn' : 'was not there before the last turn';
    void window.showInformationMessage(`${name} ${why}.`);
    return;
  }
  const old = snapshotUri(connection.of(session.id), before, absolute(change.oldPath ?? change.path));
  await commands.executeCommand('vscode.diff', old, uri, `${name} (before the last turn ↔ now)`);
}

async function snapshotOf(connection: Connection, session: Session, id: string): Promise<Snapshot> {
  return (await connection.call('snapshot/show', { snapshot: id, session: session.id })).snapshot;
}

/**
 * Compares two snapshots, or a snapshot with the current files, in a multi-file diff editor. Returns how much differs.
 */
export async function compareSides(
  connection: Connection,
  session: Session,
  a: Side,
  b: Side,
): Promise<ChangeTotals> {
  const { changes, totals, caveats } = await connection.call('snapshot/diff', {
    a: idOf(a),
    b: idOf(b),
    session: session.id,
    limit: MAX_COMPARED,
  });
  const resources = changes.flatMap((change) => sidesOf(connection, session.id, a, b, change));
  const summary = [formatTotals(totals), formatCaveats(caveats)].filter((part) => part !== null).join('; ');
  const title = `${sanitize(sessionTitle(session))}: ${sideTitle(a)} → ${sideTitle(b)} (${summary})`;
  if (resources.length === 0) void window.showInformationMessage(`${title}.`);
  else {
    await commands.executeCommand('vscode.changes', title, resources);
    if (totalOf(totals) > changes.length) {
      window.setStatusBarMessage(
        `Showing the first ${changes.length} changes of ${formatTotals(totals)}`,
        10_000,
      );
    }
  }
  return totals;
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
 * The entries of the diff editor for one change: the URI for the label, then both sides, undefined where there is no
 * file. A change of content and a change of mode are separate entries.
 */
function sidesOf(home: Pick<Homes, 'of'>, session: string, a: Side, b: Side, change: Change): Sides[] {
  const { path, oldPath, kind, type, oldMode, newMode } = change;
  const at = (side: Side, where: string): Uri =>
    side === 'now' ? workspaceUri(home, session, where) : snapshotUri(home.of(session), side.id, where);
  const name = workspaceUri(home, session, absolute(path));
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

function absolute(path: string): string {
  return path.startsWith(WORKSPACE) ? path : `${WORKSPACE}/${path}`;
}
