import { ThemeIcon, window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import { SnapshotIdSchema } from '../../protocol/ids.ts';
import type { Snapshot } from '../../protocol/snapshots.ts';
import type { Connection } from '../connection/connection.ts';
import { sanitize } from '../base/sanitize.ts';
import { formatAge, formatBytes } from '../sessions/listing.ts';
import { snapshotTitle } from './format.ts';

/** The latest ones are shown. */
const MOST = 200;

export interface SnapshotItem extends QuickPickItem {
  /** `now`: the workspace as it is. */
  readonly snapshot: Snapshot | 'now';
}

/** The snapshots of a session, the newest first, as entries of a list. */
export async function snapshotItems(connection: Connection, { id }: Session): Promise<SnapshotItem[]> {
  const { snapshots } = await connection.call(
    'snapshot/list',
    { session: id, limit: MOST },
    { repeatable: true },
  );
  const now = Date.now();
  return snapshots.map((snapshot) => ({
    label: sanitize(snapshotTitle(snapshot, now)),
    iconPath: new ThemeIcon(snapshot.label === null ? 'history' : 'bookmark'),
    description: `${formatAge(snapshot.createdAt, now)} · ${snapshot.files.toLocaleString('en-US')} files, ${formatBytes(snapshot.bytes)}`,
    snapshot,
  }));
}

/** The snapshot that a command is for: the one a program names, else the one that a person picks. */
export async function pickSnapshot(
  connection: Connection,
  session: Session,
  options: { readonly title: string; readonly given?: unknown; readonly withNow?: boolean },
): Promise<Snapshot | 'now' | undefined> {
  const { given, withNow = false } = options;
  if (given === 'now' && withNow) return 'now';
  if (typeof given === 'string' && SnapshotIdSchema.safeParse(given).success) {
    const { snapshot } = await connection.call(
      'snapshot/show',
      { snapshot: given, session: session.id },
      { repeatable: true },
    );
    return snapshot;
  }
  const items = await snapshotItems(connection, session);
  if (items.length === 0) {
    throw new HoldfastError('not_found', 'There are no snapshots yet', {
      next: 'take one with Agent: Take Snapshot; every turn takes one before it begins, too',
    });
  }
  const now: SnapshotItem[] = withNow
    ? [
        {
          label: 'Now',
          iconPath: new ThemeIcon('files'),
          description: 'the workspace as it is',
          snapshot: 'now',
        },
      ]
    : [];
  const picked = await window.showQuickPick([...now, ...items], {
    title: options.title,
    placeHolder: 'Snapshot',
    matchOnDescription: true,
  });
  return picked?.snapshot;
}
