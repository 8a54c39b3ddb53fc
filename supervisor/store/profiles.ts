import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Profile } from '../../protocol/profile.ts';
import { Emitter } from '../base/emitter.ts';
import { count, json, parseRow, time } from './columns.ts';
import type { Database } from './database.ts';
import { StoredProfileSchema } from './profile-config.ts';

const ProfileRowSchema = z.object({
  name: z.string(),
  /**
   * Identifies this deployment of the name: a profile that is deployed again after an undeploy gets another. Never
   * reused.
   */
  incarnation: z.int().nonnegative(),
  /** The current version of the code. Never reused, even after an undeploy. */
  version: z.int().positive(),
  deployedAt: time,
  /** The folder it was deployed from. */
  source: z.string(),
  config: json(StoredProfileSchema),
  sourceHash: z.string(),
  files: count,
  bytes: count,
  image: z.string(),
});
export interface ProfileRow extends z.output<typeof ProfileRowSchema> {
  readonly config: Profile;
}

/** A profile as a deploy writes it; the store adds the incarnation. */
export type NewProfileRow = Omit<ProfileRow, 'incarnation'>;

export interface VersionRow {
  readonly profile: string;
  readonly version: number;
  readonly deployedAt: number;
}

export class Profiles {
  /** The name of a profile that was deployed or removed; after the commit. */
  readonly changed = new Emitter<string>();
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  get(name: string): ProfileRow | null {
    const row = this.#database.get('SELECT * FROM profiles WHERE name = ?', name);
    return row === undefined ? null : parseRow(ProfileRowSchema, 'profiles', row);
  }

  /** Errors: `not_found`. */
  getOrThrow(name: string): ProfileRow {
    const profile = this.get(name);
    if (profile !== null) return profile;
    const names = this.list().map((one) => one.name);
    throw new HoldfastError('not_found', `There is no profile ${name}`, {
      why:
        names.length === 0
          ? 'no profile is deployed yet'
          : `deployed profiles: ${names.slice(0, 20).join(', ')}`,
      next: 'deploy it with `holdfast deploy DIR`',
    });
  }

  /** By name. */
  list(): ProfileRow[] {
    return this.#database
      .all('SELECT * FROM profiles ORDER BY name')
      .map((row) => parseRow(ProfileRowSchema, 'profiles', row));
  }

  /** The version number of the next deploy. */
  nextVersion(name: string): number {
    const row = this.#database.get(
      'SELECT coalesce(max(version), 0) + 1 AS next FROM profile_versions WHERE profile = ?',
      name,
    );
    return parseRow(z.object({ next: z.int() }), 'profile_versions', row).next;
  }

  /** Reserves the next version for a deploy: no other deploy gets the number until it is released or recorded. */
  reserveVersion(name: string, at: number): number {
    return this.#database.transaction(() => {
      const version = this.nextVersion(name);
      this.#database.run(
        'INSERT INTO profile_versions (profile, version, deployedAt, removed) VALUES (?, ?, ?, 1)',
        name,
        version,
        at,
      );
      return version;
    });
  }

  /** Releases a reserved version whose deploy left nothing behind. */
  releaseVersion(name: string, version: number): void {
    this.#database.run(
      'DELETE FROM profile_versions WHERE profile = ? AND version = ? AND removed = 1',
      name,
      version,
    );
  }

  /** Whether the version was deployed and its code still exists. */
  hasVersion(name: string, version: number): boolean {
    const sql = 'SELECT 1 FROM profile_versions WHERE profile = ? AND version = ? AND removed = 0';
    return this.#database.get(sql, name, version) !== undefined;
  }

  /**
   * Makes `row.version` current. The same version again only updates its row. A profile keeps its incarnation until
   * it is removed.
   */
  upsert(row: NewProfileRow): void {
    this.#database.transaction(() => {
      const incarnation = this.get(row.name)?.incarnation ?? this.#nextIncarnation();
      this.#database.run(
        `INSERT OR REPLACE INTO profiles
           (name, incarnation, version, deployedAt, source, config, sourceHash, files, bytes, image)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        row.name,
        incarnation,
        row.version,
        row.deployedAt,
        row.source,
        JSON.stringify(row.config),
        row.sourceHash,
        row.files,
        row.bytes,
        row.image,
      );
      this.#database.run(
        `INSERT INTO profile_versions (profile, version, deployedAt, removed) VALUES (?, ?, ?, 0)
         ON CONFLICT (profile, version) DO UPDATE SET removed = 0`,
        row.name,
        row.version,
        row.deployedAt,
      );
      this.#reportChange(row.name);
    });
  }

  /** Versions that are current or that a session's sandbox or unfinished turn uses. */
  versionsInUse(profile: string): number[] {
    const rows = this.#database.all(
      `SELECT version FROM profiles WHERE name = ?1
       UNION SELECT codeVersion FROM sessions WHERE profile = ?1 AND codeVersion IS NOT NULL AND status <> 'deleted'
       UNION SELECT turns.codeVersion FROM turns JOIN sessions ON sessions.id = turns.sessionId
         WHERE sessions.profile = ?1 AND turns.codeVersion IS NOT NULL AND turns.status IN ('queued', 'running')
       ORDER BY 1`,
      profile,
    );
    return rows.map((row) => parseRow(z.object({ version: z.int() }), 'profile_versions', row).version);
  }

  /** Versions with code on disk, of all profiles, the undeployed ones included. */
  listVersions(): VersionRow[] {
    return this.#database
      .all(
        'SELECT profile, version, deployedAt FROM profile_versions WHERE removed = 0 ORDER BY profile, version',
      )
      .map((row) =>
        parseRow(
          z.object({ profile: z.string(), version: z.int(), deployedAt: time }),
          'profile_versions',
          row,
        ),
      );
  }

  /** Records that the code of a version is gone. */
  markVersionRemoved(profile: string, version: number): void {
    this.#database.run(
      'UPDATE profile_versions SET removed = 1 WHERE profile = ? AND version = ?',
      profile,
      version,
    );
  }

  /** Removes the profile; its versions stay recorded until their code is removed. */
  remove(name: string): void {
    this.#database.run('DELETE FROM profiles WHERE name = ?', name);
    this.#reportChange(name);
  }

  #reportChange(name: string): void {
    this.#database.afterCommit(() => this.changed.emit(name));
  }

  #nextIncarnation(): number {
    const row = this.#database.get(
      "UPDATE counters SET value = value + 1 WHERE name = 'incarnation' RETURNING value",
    );
    return parseRow(z.object({ value: z.int() }), 'counters', row).value;
  }
}
