import { commands, env } from 'vscode';
import { ATTACHMENT_LIMITS } from '../../protocol/attachment-names.ts';
import { CONTENT_READ_BYTES } from '../../protocol/contents.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Result } from '../../protocol/methods.ts';
import { imageFacts } from '../../protocol/image-type.ts';
import type { SnapshotGraph } from '../../protocol/snapshots.ts';
import { CHANGE_PAGE, MAX_MANIFESTS, SEARCH_PAGE, SNAPSHOT_PAGE } from '../../webview/late-messages.ts';
import type { FoundItem, LateRequestHandlers } from '../../webview/late-messages.ts';
import type { Connection } from '../connection/connection.ts';
import { snapshotUri, workspaceUri } from '../files/location.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { formatCaveats, formatTotals } from '../snapshots/format.ts';
import { readManifest, readRecord, readVerified } from './session-record.ts';

/** How often a search goes on where it has found nothing yet. */
const MAX_REQUESTS = 50;

/** Answers what the late views of a session's page ask. */
export function lateHandlers(connection: Connection, session: string): LateRequestHandlers {
  /** Runs a command on this session. The command reports its own errors. */
  const run = (command: string, ...args: readonly unknown[]): Thenable<unknown> =>
    commands.executeCommand(`holdfast.${command}`, session, ...args);
  const at = (side: string, path: string) =>
    side === 'now'
      ? workspaceUri(connection, session, path)
      : snapshotUri(connection.of(session), side, path);
  return {
    record: () => readRecord(connection, session),
    upload: async ({ bytes, ...part }) =>
      connection.call('attachment/upload', { session, ...part }, { bytes: Buffer.from(bytes, 'base64') }),
    picture: async ({ sha256 }) => {
      const parts: Buffer[] = [];
      for (let offset = 0; ;) {
        const params = { session, id: sha256, offset, limit: CONTENT_READ_BYTES };
        const { result, bytes } = await connection.callWithBytes('content/read', params);
        parts.push(bytes);
        offset += bytes.length;
        if (result.total > ATTACHMENT_LIMITS.bytes) break;
        if (bytes.length === 0 || offset >= result.total) {
          const whole = Buffer.concat(parts);
          const facts = imageFacts(whole);
          if (facts === null) break;
          return { ...facts, bytes: whole.toString('base64') };
        }
      }
      throw new HoldfastError('not_supported', 'This is not a picture that can be drawn');
    },
    copyManifest: async () => {
      await env.clipboard.writeText(JSON.stringify(await readManifest(connection, session)));
      return {};
    },
    manifests: async () => {
      const { manifests } = await connection.of(session).call('manifest/list', { session });
      return {
        manifests: manifests
          .slice(0, MAX_MANIFESTS)
          .map(({ id, madeAt, reason }) => ({ id, madeAt, reason: reason.replaceAll('-', ' ') })),
      };
    },
    manifest: ({ id }) => readVerified(connection, session, id),
    search: async ({ text, cursor }) => {
      const results: FoundItem[] = [];
      let next: string | null = cursor ?? null;
      let complete = true;
      // One request may find nothing; the page waits for a match or the end, as long as it is not too long.
      for (let requests = 0; requests < MAX_REQUESTS; requests += 1) {
        const page: Result<'session/search'> = await connection.call('session/search', {
          ...{ text, session, limit: SEARCH_PAGE - results.length },
          ...(next === null ? {} : { cursor: next }),
        });
        for (const { item: id, cursor: place, time, excerpt } of page.results)
          results.push({ id, at: Number(place.split('.')[0]), time, excerpt });
        ({ cursor: next, complete } = page);
        if (next === null || results.length >= SEARCH_PAGE) break;
      }
      return { results, next, complete };
    },
    snapshots: async ({ cursor }) => {
      const host = connection.of(session);
      const [{ snapshots, nextCursor, usage }, graph] = await Promise.all([
        host.call('snapshot/list', {
          session,
          limit: SNAPSHOT_PAGE,
          ...(cursor === undefined ? {} : { cursor }),
        }),
        readGraph(host, session),
      ]);
      return { snapshots, next: nextCursor, usage, graph };
    },
    changes: async ({ from, to, cursor }) => {
      const { changes, totals, caveats, nextCursor } = await connection.call('snapshot/diff', {
        ...{ a: from, b: to, session, limit: CHANGE_PAGE },
        ...(cursor === undefined ? {} : { cursor }),
      });
      return { changes, totals: formatTotals(totals), caveat: formatCaveats(caveats), nextCursor };
    },
    openChange: async ({ from, to, path, oldPath, kind }) => {
      const [left, right] = [at(from, oldPath ?? path), at(to, path)];
      // VS Code shows an error where one side of a difference is missing.
      if (kind === 'added') await commands.executeCommand('vscode.open', right);
      else if (kind === 'deleted') await commands.executeCommand('vscode.open', left);
      else await commands.executeCommand('vscode.diff', left, right);
      return {};
    },
    openSnapshotFile: async ({ snapshot, path }) => {
      await commands.executeCommand('vscode.open', at(snapshot, path));
      return {};
    },
    pickSnapshotFile: async ({ snapshot }) => {
      await run('openSnapshotFile', snapshot);
      return {};
    },
    pinSnapshot: async ({ snapshot, pinned }) => {
      await run('pinSnapshot', snapshot, pinned);
      return {};
    },
    restoreSnapshot: async ({ snapshot, seen }) => ({
      // Null: without a snapshot of the files before.
      restored: (await run('restoreSnapshot', snapshot, seen)) !== undefined,
    }),
    deleteSnapshot: async ({ snapshot }) => ({ deleted: (await run('deleteSnapshot', snapshot)) === true }),
    openSession: async ({ session: other }) => {
      await commands.executeCommand('holdfast.openSessionPage', other);
      return {};
    },
  };
}

/** A supervisor of an earlier version on another machine has no graph: its snapshots are one line. */
async function readGraph(host: HostConnection, session: string): Promise<SnapshotGraph> {
  try {
    return await host.call('snapshot/graph', { session });
  } catch (error) {
    if (HoldfastError.from(error).code !== 'method_not_found') throw error;
    return { origin: null, restores: [], forks: [] };
  }
}
