import { z } from 'zod';
import { EnvelopeSchema } from '../../protocol/manifest.ts';
import { json, parseRow, time, toColumn } from './columns.ts';
import type { Database } from './database.ts';

/** Hashes of exports that are kept: clients that move the same session at once read one each. */
const MAX_BUNDLES = 8;

const shared = {
  id: z.string(),
  sessionId: z.string(),
  /** Of the session. */
  profile: z.string(),
  name: z.string(),
  /** The other home: its id, how the client that began the move calls it, and its public key in PEM. */
  peerHome: z.string(),
  peerName: z.string(),
  peerKey: z.string(),
  /** The session there, once it is known. */
  peerSession: z.string().nullable(),
  /** SHA-256 of the bundle: at the source of each that was read to its end, at the target of the one that arrived. */
  bundles: json(z.array(z.string())),
  offer: json(EnvelopeSchema),
  createdAt: time,
  updatedAt: time,
};
const MoveRowSchema = z.discriminatedUnion('role', [
  z.object({
    ...shared,
    role: z.literal('source'),
    state: z.enum(['leaving', 'released', 'finished', 'withdrawn']),
    /** What the session is exported from. */
    snapshotId: z.string(),
    /** The receipt or the withdrawal. */
    proof: json(EnvelopeSchema).nullable(),
  }),
  z.object({
    ...shared,
    role: z.literal('target'),
    state: z.enum(['arriving', 'active', 'discarded']),
    snapshotId: z.null(),
    /** The receipt; of a move that was given up the withdrawal, from before its session is deleted. */
    proof: json(EnvelopeSchema).nullable(),
  }),
]);
export type MoveRow = z.output<typeof MoveRowSchema>;
export type SourceMove = Extract<MoveRow, { role: 'source' }>;
export type TargetMove = Extract<MoveRow, { role: 'target' }>;

const COLUMNS = [
  ...['role', 'id', 'sessionId', 'state', 'profile', 'name', 'peerHome', 'peerName', 'peerKey'],
  ...['peerSession', 'snapshotId', 'bundles', 'offer', 'proof', 'createdAt', 'updatedAt'],
] as const;
/** In these states nothing can use the session. */
const HELD = "state IN ('leaving', 'released', 'finished', 'arriving')";

/** Moves of sessions from and to this home. Rows are never removed: their order is that in which they began, whatever the clock says. */
export class MoveRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Errors: those of the database if the move exists. */
  insert(row: MoveRow): void {
    const values: Readonly<Record<string, unknown>> = row;
    this.#database.run(
      `INSERT INTO moves (${COLUMNS.join(', ')}) VALUES (${COLUMNS.map(() => '?').join(', ')})`,
      ...COLUMNS.map((column) => toColumn(values[column])),
    );
  }

  source(id: string): SourceMove | null {
    const row = this.#one("SELECT * FROM moves WHERE role = 'source' AND id = ?", id);
    return row?.role === 'source' ? row : null;
  }

  target(id: string): TargetMove | null {
    const row = this.#one("SELECT * FROM moves WHERE role = 'target' AND id = ?", id);
    return row?.role === 'target' ? row : null;
  }

  update(
    { role, id }: Pick<MoveRow, 'role' | 'id'>,
    patch: {
      readonly state?: MoveRow['state'];
      readonly peerSession?: string;
      readonly proof?: z.input<typeof EnvelopeSchema>;
    },
    now: number,
  ): void {
    const changes = Object.entries(patch);
    this.#database.run(
      `UPDATE moves SET ${[...changes.map(([column]) => `${column} = ?`), 'updatedAt = ?'].join(', ')} WHERE role = ? AND id = ?`,
      ...changes.map(([, value]) => toColumn(value)),
      now,
      role,
      id,
    );
  }

  /** A bundle of the source was read to its end. */
  addBundle({ role, id, bundles }: SourceMove, sha256: string, now: number): void {
    const kept = [...bundles.filter((one) => one !== sha256), sha256].slice(-MAX_BUNDLES);
    this.#database.run(
      'UPDATE moves SET bundles = ?, updatedAt = ? WHERE role = ? AND id = ?',
      toColumn(kept),
      now,
      role,
      id,
    );
  }

  /** The move because of which nothing can use the session. */
  holding(sessionId: string): MoveRow | null {
    return this.#one(
      `SELECT * FROM moves WHERE sessionId = ? AND ${HELD} ORDER BY rowid DESC LIMIT 1`,
      sessionId,
    );
  }

  /** The newest move of a session away from here, whatever became of it. */
  newestFrom(sessionId: string): SourceMove | null {
    const row = this.#one(
      "SELECT * FROM moves WHERE role = 'source' AND sessionId = ? ORDER BY rowid DESC LIMIT 1",
      sessionId,
    );
    return row?.role === 'source' ? row : null;
  }

  /** The newest session that has left, by its id, its name or `profile/name`. */
  findLeft(reference: string): SourceMove | null {
    const left = "role = 'source' AND state IN ('released', 'finished')";
    const slash = reference.indexOf('/');
    const newest = 'ORDER BY rowid DESC LIMIT 1';
    const row =
      slash > 0
        ? this.#one(
            `SELECT * FROM moves WHERE ${left} AND profile = ? AND name = ? ${newest}`,
            reference.slice(0, slash),
            reference.slice(slash + 1).normalize('NFC'),
          )
        : this.#one(
            `SELECT * FROM moves WHERE ${left} AND (sessionId = ?1 OR name = ?2) ${newest}`,
            reference,
            reference.normalize('NFC'),
          );
    return row?.role === 'source' ? row : null;
  }

  /** Sessions whose deletion was asked for. */
  finished(): SourceMove[] {
    return this.#database
      .all(
        `SELECT moves.* FROM moves JOIN sessions ON sessions.id = moves.sessionId
         WHERE role = 'source' AND state = 'finished' AND sessions.status <> 'deleted'`,
      )
      .flatMap((one) => {
        const row = parseRow(MoveRowSchema, 'moves', one);
        return row.role === 'source' ? [row] : [];
      });
  }

  #one(sql: string, ...values: string[]): MoveRow | null {
    const row = this.#database.get(sql, ...values);
    return row === undefined ? null : parseRow(MoveRowSchema, 'moves', row);
  }
}
