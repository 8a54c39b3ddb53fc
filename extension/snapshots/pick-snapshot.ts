import { ThemeIcon, window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import { SnapshotIdSchema } from '../../protocol/ids.ts';
import { AUTHOR_NAMES } from '../../protocol/origins.ts';
import type { Snapshot } from '../../protocol/snapshots.ts';
import type { Connection } from '../connection/connection.ts';
import { formatAge, formatBytes, formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';

import { snapshotTitle } from './format.ts';

/** How many of the latest snapshots are listed. */
const MAX_SNAPSHOTS = 200;

export interface SnapshotItem extends QuickPickItem {
  /** `now`: the current files of the workspace. */
  readonly snapshot: Snapshot | 'now';
}

/** The snapshots of a session as picker entries, the newest first. */
export async function snapshotItems(connection: Connection, { id }: Session): Promise<SnapshotItem[]> {
  const { snapshots } = await connection.call('snapshot/list', { session: id, limit: MAX_SNAPSHOTS });
  const now = Date.now();
  return snapshots.map((snapshot) => ({
    label: sanitize(snapshotTitle(snapshot, now)),
    iconPath: new ThemeIcon(snapshot.label === null ? 'history' : 'bookmark'),
    description:
      `${formatAge(snapshot.createdAt, now)} · ` +
      `${formatCount(snapshot.files, 'file')}, ${formatBytes(snapshot.bytes)}` +
      (snapshot.author === null ? '' : ` · by ${AUTHOR_NAMES[snapshot.author]}`),
    snapshot,
  }));
}

/** The snapshot that a command applies to: the one that a program gives, else the one that a person picks. */
export async function pickSnapshot(
  connection: Connection,
  session: Session,
  options: { readonly title: string; readonly given?: unknown; readonly withNow?: boolean },
): Promise<Snapshot | 'now' | undefined> {
  const { given, withNow = false } = options;
  if (given === 'now' && withNow) return 'now';
  if (typeof given === 'string' && SnapshotIdSchema.safeParse(given).success) {
    const { snapshot } = await connection.call('snapshot/show', { snapshot: given, session: session.id });
    return snapshot;
  }
  const items = await snapshotItems(connection, session);
  if (items.length === 0) {
    throw new HoldfastError('not_found', 'There are no snapshots yet', {
      next: 'create one with Agent: Create Snapshot, or run a turn, which creates one before it starts',
    });
  }
  const now: SnapshotItem[] = withNow
    ? [
        {
          label: 'Now',
          iconPath: new ThemeIcon('files'),
          description: 'the current files of the workspace',
          snapshot: 'now',
        },
      ]
    : [];
  const picked = await window.showQuickPick([...now, ...items], {
    title: options.title,
    placeHolder: 'Choose a snapshot',
    matchOnDescription: true,
  });
  return picked?.snapshot;
}
