import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { type SnapshotReason, SnapshotReasonSchema } from '../../protocol/snapshots.ts';
import { RootHashSchema } from '../../snapshot-format/sidecar-calls.ts';
import { count, flag, json, parseRow, time, toColumn } from './columns.ts';
import type { Database } from './database.ts';

const SnapshotRowSchema = z.object({
  id: z.string(),
  sessionId: z.string(),
  /** The lineage whose store has its objects. */
  lineage: z.string(),
  createdAt: time,
  reason: SnapshotReasonSchema,
  label: z.string().nullable(),
  pinned: flag,
  base: z.string().nullable(),
  /** Hash of the root tree, hexadecimal. */
  root: RootHashSchema,
  /** Hash of the tree of the agent's state in HOME; null if the snapshot has none. */
  stateRoot: RootHashSchema.nullable(),
  files: count,
  directories: count,
  bytes: count,
  changedFiles: count,
  changedBytes: count,
  newBytes: count,
  scanMs: z.number(),
  frozenMs: z.number(),
  eventSeq: count,
  /** The turn had begun before its snapshot was complete. */
  duringTurn: flag,
  /** Number of paths that could not be read. */
  missing: count,
  /** The first of these paths. */
  missingPaths: json(z.array(z.string())),
});
export type SnapshotRow = z.output<typeof SnapshotRowSchema>;
/** Omitted fields stay as they are. */
export interface SnapshotPatch {
  readonly label?: string | null | undefined;
  readonly pinned?: boolean | undefined;
  readonly reason?: SnapshotReason | undefined;
}

export interface SnapshotFilter {
  readonly reason?: SnapshotReason | undefined;
  /** Default: 100. */
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
}

const COLUMNS = Object.keys(SnapshotRowSchema.shape) as (keyof SnapshotRow)[];
const INSERT = `INSERT INTO snapshots (${COLUMNS.join(', ')}) VALUES (${COLUMNS.map(() => '?').join(', ')})`;
const CURSOR = /^[1-9]\d{0,15}$/;

/** The rows of all snapshots. Their objects are in the store of the lineage. */
export class Snapshots {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** All objects that the root refers to must be durable in the store. */
  insert(row: SnapshotRow): void {
    this.#database.run(INSERT, ...COLUMNS.map((column) => toColumn(row[column])));
  }

  get(id: string): SnapshotRow | null {
    const row = this.#database.get('SELECT * FROM snapshots WHERE id = ?', id);
    return row === undefined ? null : parse(row);
  }

  /** Errors: `not_found`. */
  getOrThrow(id: string): SnapshotRow {
    const row = this.get(id);
    if (row === null) {
      throw new HoldfastError('not_found', `There is no snapshot ${id}`, {
        next: 'see `holdfast snapshot list SESSION`',
      });
    }
    return row;
  }

  newest(sessionId: string): SnapshotRow | null {
    const row = this.#database.get(
      'SELECT * FROM snapshots WHERE sessionId = ? ORDER BY ordinal DESC LIMIT 1',
      sessionId,
    );
    return row === undefined ? null : parse(row);
  }

  /** Newest first. Errors: `invalid_params` for an unknown cursor. */
  list(
    sessionId: string,
    filter: SnapshotFilter = {},
  ): { readonly rows: SnapshotRow[]; readonly nextCursor: string | null } {
    const { reason = null, limit = 100, cursor } = filter;
    if (cursor !== undefined && !CURSOR.test(cursor)) {
      throw new HoldfastError('invalid_params', 'The cursor is not from a list of snapshots', {
        next: 'omit it to start from the newest',
      });
    }
    const found = this.#database.all(
      `SELECT * FROM snapshots WHERE sessionId = ?1 AND ordinal < ?2 AND (?3 IS NULL OR reason = ?3)
       ORDER BY ordinal DESC LIMIT ?4`,
      sessionId,
      cursor === undefined ? Number.MAX_SAFE_INTEGER : Number(cursor),
      reason,
      limit + 1,
    );
    const page = found.slice(0, limit);
    const last = page.at(-1);
    const nextCursor =
      found.length > limit && last !== undefined
        ? String(parseRow(z.object({ ordinal: count }), 'snapshots', last).ordinal)
        : null;
    return { rows: page.map(parse), nextCursor };
  }

  /** Snapshots of a session, the oldest first. */
  listBySession(sessionId: string): SnapshotRow[] {
    return this.#database
      .all('SELECT * FROM snapshots WHERE sessionId = ? ORDER BY ordinal', sessionId)
      .map(parse);
  }

  /** Snapshots of a session and its forks, the oldest first. */
  listByLineage(lineage: string): SnapshotRow[] {
    return this.#database
      .all('SELECT * FROM snapshots WHERE lineage = ? ORDER BY ordinal', lineage)
      .map(parse);
  }

  /** Lineages that have at least one snapshot. */
  listLineages(): string[] {
    return this.#database
      .all('SELECT DISTINCT lineage FROM snapshots')
      .map((row) => parseRow(z.object({ lineage: z.string() }), 'snapshots', row).lineage);
  }

  count(sessionId: string): number {
    const row = this.#database.get('SELECT count(*) AS many FROM snapshots WHERE sessionId = ?', sessionId);
    return parseRow(z.object({ many: count }), 'snapshots', row).many;
  }

  /** Errors: `not_found`. */
  update(id: string, { label, pinned, reason }: SnapshotPatch): SnapshotRow {
    if (label !== undefined) this.#database.run('UPDATE snapshots SET label = ? WHERE id = ?', label, id);
    if (pinned !== undefined) {
      this.#database.run('UPDATE snapshots SET pinned = ? WHERE id = ?', pinned ? 1 : 0, id);
    }
    if (reason !== undefined) this.#database.run('UPDATE snapshots SET reason = ? WHERE id = ?', reason, id);
    return this.getOrThrow(id);
  }

  /** Removes the row; its objects stay until garbage collection. */
  remove(id: string): void {
    this.#database.run('DELETE FROM snapshots WHERE id = ?', id);
  }
}

function parse(row: unknown): SnapshotRow {
  return parseRow(SnapshotRowSchema, 'snapshots', row);
}
