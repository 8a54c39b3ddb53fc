import { changedFiles } from '../../protocol/changes.ts';
import type { Connection } from '../connection/connection.ts';
import type { RequestResult } from '../../webview/link.ts';
import type { Requests } from '../../webview/messages.ts';
import { snapshotsOfTurn, storedChanges } from '../snapshots/turn-snapshots.ts';

/** With more than this no lines are counted. */
const MAX_FILES = 500;
const MAX_BYTES = 2 ** 20;
const NEWLINE = 10;

export type TurnLines = NonNullable<RequestResult<Requests, 'turnLines'>['lines']>;

/**
 * What a turn changed on disk, through whatever program: how many files, lines added and removed. As it was stored when the
 * turn ended; otherwise from snapshots. Null where there are none, and a look at the files of now, which `mayScan` allows,
 * would say something else.
 */
export async function turnLines(
  connection: Connection,
  session: string,
  turnId: string,
  mayScan: boolean,
): Promise<TurnLines | null> {
  const stored = await storedChanges(connection, turnId);
  if (stored?.state === 'known' && stored.totals !== null) {
    const { added = null, removed = null } = stored.lines ?? {};
    return { files: changedFiles(stored.totals), added, removed };
  }
  const { before, after, isLast } = await snapshotsOfTurn(connection, session, turnId);
  if (after === null && !(isLast && mayScan)) return null;
  const sides = { session, a: before, b: after ?? 'now' };
  const { totals } = await connection.call('snapshot/diff', { ...sides, limit: 1 });
  const files = changedFiles(totals);
  if (files === 0 || files > MAX_FILES || totals.bytes > MAX_BYTES)
    return { files, added: null, removed: null };
  const patch = await connection.callWithBytes('snapshot/patch', sides);
  // What was deleted may be long: what does not fit into one answer is not counted.
  return patch.result.nextCursor === null
    ? { files, ...countLines(patch.bytes) }
    : { files, added: null, removed: null };
}

/** The lines of a unified diff that begin with + and −; those of binary files have none. */
export function countLines(patch: Buffer): { added: number; removed: number } {
  let added = 0;
  let removed = 0;
  // Lines of the hunk that are still to come, on each side: a removed line may look like a header.
  let old = 0;
  let fresh = 0;
  for (let at = 0; at < patch.length;) {
    const newline = patch.indexOf(NEWLINE, at);
    const end = newline < 0 ? patch.length : newline;
    const first = patch[at];
    if (old > 0 || fresh > 0) {
      if (first === 0x2b) {
        added += 1;
        fresh -= 1;
      } else if (first === 0x2d) {
        removed += 1;
        old -= 1;
      } else if (first !== 0x5c) {
        old -= 1;
        fresh -= 1;
      }
    } else if (first === 0x40) {
      const header = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(
        patch.toString('latin1', at, Math.min(end, at + 100)),
      );
      old = header === null ? 0 : Number(header[1] ?? 1);
      fresh = header === null ? 0 : Number(header[2] ?? 1);
    }
    at = end + 1;
  }
  return { added, removed };
}
