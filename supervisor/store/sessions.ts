import { z } from 'zod';
import {
  SESSION_ORIGINS,
  SESSION_STATUSES,
  SessionIdSchema,
  SessionStatusSchema,
} from '../../protocol/entities.ts';
import type { SessionStatus } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { Emitter } from '../base/emitter.ts';
import { count, flag, json, parseRow, time, toColumn } from './columns.ts';
import type { Database } from './database.ts';

export const SessionRowSchema = z.object({
  id: z.string(),
  name: z.string(),
  profile: z.string(),
  status: SessionStatusSchema,
  persistent: flag,
  /** Deleted after its turn. */
  throwaway: flag,
  backing: z.enum(['directory', 'volume']),
  uid: z.int(),
  gid: z.int(),
  /** The generation of its sandbox; 0 before the first. */
  generation: count,
  /** The generation of the sandbox that its HOME was prepared for; 0 before the first. */
  homeGeneration: count,
  /** The version of the code in the current sandbox. */
  codeVersion: z.int().nullable(),
  /** The image that the current sandbox was started from; null without one, or if an earlier version started it. */
  image: z.string().nullable(),
  createdAt: time,
  lastActiveAt: time,
  statusSince: time,
  expiresAt: time.nullable(),
  deletedAt: time.nullable(),
  pinned: flag,
  starred: flag,
  archived: flag,
  tags: json(z.array(z.string())),
  model: z.string().nullable(),
  /** The first request, shortened. */
  about: z.string().nullable(),
  workspaceBytes: count.nullable(),
  /** The id of the first session of its lineage: a session and its forks share one snapshot store. */
  lineage: z.string(),
  /** The snapshot that it was created from. */
  origin: z.string().nullable(),
  began: z.enum(SESSION_ORIGINS),
  /** The account that created it; null in sessions of earlier versions. */
  author: z.string().nullable(),
});
export type SessionRow = z.output<typeof SessionRowSchema>;
export type SessionPatch = Partial<Omit<SessionRow, 'id'>>;

export interface SessionFilter {
  /** Default: all but the deleted ones. */
  readonly status?: SessionStatus | undefined;
  /** Part of the name or of the first request; ASCII letters match in any case. */
  readonly search?: string | undefined;
  readonly profile?: string | undefined;
  readonly pinned?: boolean | undefined;
  readonly archived?: boolean | undefined;
  readonly tag?: string | undefined;
  /** Default: 100. */
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
}

export interface SessionPage {
  readonly rows: SessionRow[];
  readonly nextCursor: string | null;
}

/** The first uid for sessions, if each has its own. */
export const FIRST_SESSION_UID = 200_000;
/** The kind of the intent of what is made ahead for the next session; its data has the `uid`. */
export const SPARE = 'session.spare';

const COLUMNS = Object.keys(SessionRowSchema.shape) as (keyof SessionRow)[];
const PATCHABLE = COLUMNS.filter((column) => column !== 'id');
const INSERT = `INSERT INTO sessions (${COLUMNS.join(', ')}) VALUES (${COLUMNS.map(() => '?').join(', ')})`;
const CursorSchema = z.tuple([flag, z.int(), z.string()]);

export class Sessions {
  /** The id of a session whose row was added, changed or removed; after the commit. */
  readonly changed = new Emitter<string>();
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Errors: `already_exists` if the profile has a session of that name. */
  insert(row: SessionRow): void {
    this.#guardName(row.profile, row.name, row.id);
    this.#database.run(INSERT, ...COLUMNS.map((column) => toColumn(row[column])));
    this.#reportChange(row.id);
  }

  /** Includes deleted sessions until they are purged. */
  get(id: string): SessionRow | null {
    return this.#one('SELECT * FROM sessions WHERE id = ?', id);
  }

  /** Among sessions not deleted; names are compared in Unicode NFC. */
  getByName(profile: string, name: string): SessionRow | null {
    const sql = "SELECT * FROM sessions WHERE profile = ? AND name = ? AND status <> 'deleted'";
    const wanted = name.normalize('NFC');
    const row = this.#one(sql, profile, wanted);
    if (row !== null || isAscii(wanted)) return row;
    return this.#decomposed(wanted).find((one) => one.profile === profile) ?? null;
  }

  /** Finds a session by id, name or `profile/name`. Errors: `not_found`, `ambiguous_name` (names the candidates). */
  find(ref: string): SessionRow {
    const missing = (why?: string): HoldfastError =>
      new HoldfastError('not_found', `There is no session ${JSON.stringify(ref)}`, {
        why,
        next: 'see `holdfast session list`',
      });
    if (SessionIdSchema.safeParse(ref).success) {
      const row = this.get(ref);
      if (row === null) throw missing();
      if (row.status === 'deleted') throw missing('it was deleted');
      return row;
    }
    const slash = ref.indexOf('/');
    if (slash > 0) {
      const row = this.getByName(ref.slice(0, slash), ref.slice(slash + 1));
      if (row === null) throw missing();
      return row;
    }
    const wanted = ref.normalize('NFC');
    const rows = [
      ...this.#many("SELECT * FROM sessions WHERE name = ? AND status <> 'deleted' ORDER BY profile", wanted),
      ...(isAscii(wanted) ? [] : this.#decomposed(wanted)),
    ];
    const [first, second] = rows;
    if (first === undefined) throw missing();
    if (second === undefined) return first;
    const candidates = rows.map((row) => `${row.profile}/${row.name}`);
    throw new HoldfastError('ambiguous_name', `More than one session is named ${JSON.stringify(ref)}`, {
      why: 'names are unique only within a profile',
      next: `name one of: ${candidates.slice(0, 10).join(', ')}`,
      details: { candidates },
    });
  }

  /** Applies a patch and returns the updated row. Errors: `not_found`, `already_exists`. */
  update(id: string, patch: SessionPatch): SessionRow {
    if (patch.name !== undefined || patch.profile !== undefined || patch.status !== undefined) {
      const row = this.#existing(id);
      const next = { ...row, ...patch };
      if (next.status !== 'deleted') this.#guardName(next.profile, next.name, id);
    }
    const columns = PATCHABLE.filter((column) => Object.hasOwn(patch, column));
    if (columns.length > 0) {
      this.#database.run(
        `UPDATE sessions SET ${columns.map((column) => `${column} = ?`).join(', ')} WHERE id = ?`,
        ...columns.map((column) => toColumn(patch[column])),
        id,
      );
      this.#reportChange(id);
    }
    return this.#existing(id);
  }

  /** Pinned sessions first, then by last activity. Errors: `invalid_params` for an unknown cursor. */
  list(filter: SessionFilter = {}): SessionPage {
    const limit = filter.limit ?? 100;
    const conditions: string[] = [];
    const values: (string | number)[] = [];
    const where = (condition: string, ...of: (string | number)[]): void => {
      conditions.push(condition);
      values.push(...of);
    };
    if (filter.status === undefined) where("status <> 'deleted'");
    else where('status = ?', filter.status);
    if (filter.profile !== undefined) where('profile = ?', filter.profile);
    if (filter.pinned !== undefined) where('pinned = ?', filter.pinned ? 1 : 0);
    if (filter.archived !== undefined) where('archived = ?', filter.archived ? 1 : 0);
    if (filter.tag !== undefined) where('EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)', filter.tag);
    if (filter.search !== undefined && filter.search !== '') {
      const pattern = `%${filter.search.replaceAll(/[\\%_]/g, '\\$&')}%`;
      where("(name LIKE ? ESCAPE '\\' OR about LIKE ? ESCAPE '\\')", pattern, pattern);
    }
    if (filter.cursor !== undefined) {
      const [pinned, lastActiveAt, id] = readCursor(filter.cursor);
      where('(-pinned, -lastActiveAt, id) > (?, ?, ?)', pinned ? -1 : 0, -lastActiveAt, id);
    }
    const rows = this.#many(
      `SELECT * FROM sessions WHERE ${conditions.join(' AND ')} ORDER BY pinned DESC, lastActiveAt DESC, id LIMIT ?`,
      ...values,
      limit + 1,
    );
    const page = rows.slice(0, limit);
    const last = page.at(-1);
    const more = rows.length > limit && last !== undefined;
    return { rows: page, nextCursor: more ? writeCursor(last) : null };
  }

  /** All sessions in one of the statuses; default: all sessions, the deleted ones included. */
  all(statuses: readonly SessionStatus[] = SESSION_STATUSES): SessionRow[] {
    return this.#many(
      `SELECT * FROM sessions WHERE status IN (${statuses.map(() => '?').join(', ')}) ORDER BY createdAt, id`,
      ...statuses,
    );
  }

  /** Sessions not deleted of one lineage. */
  listByLineage(lineage: string): SessionRow[] {
    return this.#many(
      "SELECT * FROM sessions WHERE lineage = ? AND status <> 'deleted' ORDER BY createdAt, id",
      lineage,
    );
  }

  /** Sessions not deleted that were created from this snapshot. */
  listByOrigin(snapshotId: string): SessionRow[] {
    return this.#many(
      "SELECT * FROM sessions WHERE origin = ? AND status <> 'deleted' ORDER BY createdAt, id",
      snapshotId,
    );
  }

  /**
   * The smallest uid from 200,000 that no row has, deleted sessions included, and neither a setup that runs nor a spare. Insert in the
   * same transaction.
   */
  allocateUid(): number {
    const row = this.#database.get(
      `WITH used(uid) AS (
         SELECT uid FROM sessions
         UNION ALL SELECT uid FROM setups WHERE state = 'running'
         UNION ALL SELECT json_extract(data, '$.uid') FROM operations WHERE kind = ?2 AND state = 'pending'
       )
       SELECT min(candidate) AS uid FROM (
         SELECT ?1 AS candidate
         UNION ALL SELECT uid + 1 FROM used WHERE uid >= ?1
       ) WHERE candidate NOT IN (SELECT uid FROM used)`,
      FIRST_SESSION_UID,
      SPARE,
    );
    return parseRow(z.object({ uid: z.int() }), 'sessions', row).uid;
  }

  countByStatus(): Record<SessionStatus, number> {
    const counts: Record<SessionStatus, number> = {
      created: 0,
      active: 0,
      idle: 0,
      paused: 0,
      resumable: 0,
      expired: 0,
      deleted: 0,
    };
    const schema = z.object({ status: SessionStatusSchema, many: count });
    for (const row of this.#database.all('SELECT status, count(*) AS many FROM sessions GROUP BY status')) {
      const { status, many } = parseRow(schema, 'sessions', row);
      counts[status] = many;
    }
    return counts;
  }

  /** Removes the row and its turns. Its events stay until the history removes them. */
  remove(id: string): void {
    this.#database.run('DELETE FROM sessions WHERE id = ?', id);
    this.#reportChange(id);
  }

  #reportChange(id: string): void {
    this.#database.afterCommit(() => this.changed.emit(id));
  }

  #guardName(profile: string, name: string, id: string): void {
    const other = this.getByName(profile, name);
    if (other === null || other.id === id) return;
    throw new HoldfastError(
      'already_exists',
      `The profile ${profile} already has a session named ${JSON.stringify(name)}`,
      {
        why: `it is ${other.id}`,
        next: 'choose another name, or use that session',
        details: { session: other.id },
      },
    );
  }

  /** Sessions of earlier versions whose names have another Unicode form. */
  #decomposed(wanted: string): SessionRow[] {
    return this.all().filter(
      ({ name, status }) => status !== 'deleted' && name !== wanted && name.normalize('NFC') === wanted,
    );
  }

  #existing(id: string): SessionRow {
    const row = this.get(id);
    if (row === null) throw new HoldfastError('not_found', `There is no session ${id}`);
    return row;
  }

  #one(sql: string, ...values: (string | number)[]): SessionRow | null {
    const row = this.#database.get(sql, ...values);
    return row === undefined ? null : parseRow(SessionRowSchema, 'sessions', row);
  }

  #many(sql: string, ...values: (string | number)[]): SessionRow[] {
    return this.#database.all(sql, ...values).map((row) => parseRow(SessionRowSchema, 'sessions', row));
  }
}

/** ASCII names have one Unicode form only. */
function isAscii(text: string): boolean {
  return /^[\0-\x7f]*$/.test(text);
}

function writeCursor({ pinned, lastActiveAt, id }: SessionRow): string {
  return Buffer.from(JSON.stringify([pinned ? 1 : 0, lastActiveAt, id])).toString('base64url');
}

function readCursor(cursor: string): z.output<typeof CursorSchema> {
  try {
    return CursorSchema.parse(JSON.parse(Buffer.from(cursor, 'base64url').toString()));
  } catch (error) {
    throw new HoldfastError('invalid_params', 'The cursor is not from a list of sessions', {
      next: 'omit it to start from the beginning',
      cause: error,
    });
  }
}
