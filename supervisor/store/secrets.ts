import { z } from 'zod';
import { count, flag, parseRow, time } from './columns.ts';
import type { Database } from './database.ts';

const SecretRowSchema = z.object({
  /** Empty: for all profiles. */
  profile: z.string(),
  name: z.string(),
  /** Of a removed secret the last one, so that a later value never has a version that was used before. */
  version: z.int().positive(),
  /** The file with the sealed value, below the home's folder of secrets; null once the value has been deleted. */
  file: z.string().nullable(),
  setAt: time,
  expiresAt: time.nullable(),
  usedAt: time.nullable(),
  removed: flag,
});
export type SecretRow = z.output<typeof SecretRowSchema>;

const COLUMNS = 'profile, name, version, file, setAt, expiresAt, usedAt, removed';

/** What is known of secrets, apart from their values. */
export class SecretRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Also a removed one. */
  get(profile: string, name: string): SecretRow | null {
    const [row] = this.#database.all(
      `SELECT ${COLUMNS} FROM secrets WHERE profile = ? AND name = ?`,
      profile,
      name,
    );
    return row === undefined ? null : parseRow(SecretRowSchema, 'secrets', row);
  }

  /** Also removed ones. */
  all(): SecretRow[] {
    return this.#database
      .all(`SELECT ${COLUMNS} FROM secrets ORDER BY name, profile`)
      .map((row) => parseRow(SecretRowSchema, 'secrets', row));
  }

  /** Number of secrets that are not removed. */
  count(): number {
    const [row] = this.#database.all('SELECT count(*) AS count FROM secrets WHERE removed = 0');
    return parseRow(z.object({ count }), 'secrets', row).count;
  }

  put(row: Omit<SecretRow, 'usedAt' | 'removed'>): void {
    this.#database.run(
      `INSERT INTO secrets (profile, name, version, file, setAt, expiresAt, usedAt, removed)
       VALUES (?, ?, ?, ?, ?, ?, NULL, 0)
       ON CONFLICT (profile, name) DO UPDATE SET version = excluded.version, file = excluded.file,
         setAt = excluded.setAt, expiresAt = excluded.expiresAt, usedAt = NULL, removed = 0`,
      row.profile,
      row.name,
      row.version,
      row.file,
      row.setAt,
      row.expiresAt,
    );
  }

  /** The value of this version is deleted, or is about to be. */
  forgetFile(profile: string, name: string, { removed }: { readonly removed: boolean }): void {
    this.#database.run(
      'UPDATE secrets SET file = NULL, removed = ? WHERE profile = ? AND name = ?',
      removed ? 1 : 0,
      profile,
      name,
    );
  }

  recordUse(profile: string, name: string, usedAt: number): void {
    this.#database.run('UPDATE secrets SET usedAt = ? WHERE profile = ? AND name = ?', usedAt, profile, name);
  }
}
