import { z } from 'zod';
import { EVENT_TYPES } from '../../protocol/events.ts';
import { MAX_GRAPH_ENTRIES } from '../../protocol/snapshots.ts';
import type { SnapshotGraph } from '../../protocol/snapshots.ts';
import { isoTime } from '../base/iso-time.ts';
import { JsonSchema, count, json, parseRow, time } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { Snapshots } from '../store/snapshots.ts';

/** Without the name of the index SQLite would look at the whole history of a session. */
export const RESTORES = `SELECT seq, at, type, data FROM events INDEXED BY events_about_restores
  WHERE sessionId = ? AND type IN ('session.forked', 'workspace.restored') ORDER BY seq DESC LIMIT ?`;
const RestoreRowSchema = z.object({
  seq: count,
  at: time,
  type: z.string(),
  data: json(JsonSchema),
});
const RestoredSchema = EVENT_TYPES['workspace.restored'].data.pick({
  snapshotId: true,
  path: true,
  undo: true,
});
const FORKS = `SELECT sessions.id AS sessionId, sessions.name, sessions.origin AS snapshotId, sessions.createdAt AS at
  FROM sessions JOIN snapshots ON snapshots.id = sessions.origin
  WHERE snapshots.sessionId = ? AND sessions.status <> 'deleted'
  ORDER BY sessions.createdAt DESC, sessions.id DESC LIMIT ?`;
const ForkRowSchema = z.object({ sessionId: z.string(), name: z.string(), snapshotId: z.string(), at: time });

export interface SnapshotGraphOptions {
  readonly database: Pick<Database, 'all'>;
  readonly sessions: Pick<Sessions, 'get'>;
  readonly snapshots: Pick<Snapshots, 'get'>;
}

/** How the snapshots of a session follow from each other: what it began with, what was restored, and what was forked. */
export class SnapshotGraphs {
  readonly #options: SnapshotGraphOptions;

  constructor(options: SnapshotGraphOptions) {
    this.#options = options;
  }

  of(session: SessionRow): SnapshotGraph {
    return {
      origin: this.#originOf(session),
      restores: this.#restoresOf(session),
      forks: this.#forksOf(session),
    };
  }

  #originOf({ origin }: SessionRow): SnapshotGraph['origin'] {
    if (origin === null) return null;
    const { sessions, snapshots } = this.#options;
    const source = snapshots.get(origin)?.sessionId;
    const row = source === undefined ? null : sessions.get(source);
    return {
      snapshotId: origin,
      session: row?.deletedAt === null ? { id: row.id, name: row.name } : null,
    };
  }

  #restoresOf({ id }: SessionRow): SnapshotGraph['restores'] {
    const events = this.#options.database
      .all(RESTORES, id, MAX_GRAPH_ENTRIES)
      .map((row) => parseRow(RestoreRowSchema, 'events', row));
    // A fork has a copy of the history before it, whose restores are of another session's snapshots.
    const copied = events.findIndex(({ type }) => type === 'session.forked');
    return events
      .slice(0, copied === -1 ? undefined : copied)
      .map(({ seq, at, data }) => ({ seq, at: isoTime(at), ...RestoredSchema.parse(data) }));
  }

  #forksOf({ id }: SessionRow): SnapshotGraph['forks'] {
    return this.#options.database
      .all(FORKS, id, MAX_GRAPH_ENTRIES)
      .map((row) => parseRow(ForkRowSchema, 'sessions', row))
      .map(({ at, ...fork }) => ({ ...fork, at: isoTime(at) }));
  }
}
