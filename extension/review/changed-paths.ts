import { WORKSPACE } from '../../protocol/paths.ts';
import type { Change } from '../../protocol/snapshots.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import type { Connection } from '../connection/connection.ts';
import { snapshotsOfTurn } from '../snapshots/turn-snapshots.ts';

/** How many changes are marked. */
const MAX_MARKED = 5_000;
const PAGE = 1_000;

/**
 * What has changed in the workspace since before the last turn: each path, as the agent sees it, with the kind of its change. Of a
 * change of attributes only those of permissions count. Errors: `not_found` before the first turn.
 */
export async function changedSinceTurn(
  connection: Connection,
  session: string,
): Promise<ReadonlyMap<string, Change['kind']>> {
  const { before } = await snapshotsOfTurn(connection, session);
  const kinds = new Map<string, Change['kind']>();
  const host: HostConnection = connection.of(session);
  for (let cursor: string | null | undefined; cursor !== null && kinds.size < MAX_MARKED;) {
    const page = await host.call('snapshot/diff', {
      ...{ session, a: before, b: 'now', limit: PAGE },
      ...(cursor === undefined ? {} : { cursor }),
    });
    for (const { path, kind, type, oldMode, newMode } of page.changes) {
      if (type === 'directory' || (kind === 'mode' && oldMode === newMode)) continue;
      kinds.set(path.startsWith(WORKSPACE) ? path : `${WORKSPACE}/${path}`, kind);
    }
    cursor = page.nextCursor;
  }
  return kinds;
}
