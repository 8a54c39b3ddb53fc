import { hash } from 'node:crypto';
import type { DatabaseSync, SQLOutputValue } from 'node:sqlite';
import { HoldfastError } from '../../protocol/errors.ts';
import { backUp } from './backups.ts';
import type { Home } from './home.ts';
import { MIGRATIONS } from './migrations/index.ts';
import type { Migration } from './migrations/index.ts';

/**
 * Migrates the schema to the newest version. An existing database is backed up first. Each migration and its version
 * number are one transaction, so a crash leaves a complete version. Errors: `home_newer`, before anything is written.
 */
export function migrate(
  connection: DatabaseSync,
  home: Home,
  migrations: readonly Migration[] = MIGRATIONS,
): void {
  const found = schemaVersion(connection);
  const newest = migrations.at(-1)?.version ?? 0;
  if (found > newest) {
    throw new HoldfastError('home_newer', `The home ${home.root} was created by a newer Holdfast`, {
      why: `its database has version ${found}, and this program knows ${newest}`,
      next: 'install the newer Holdfast, or set HOLDFAST_HOME to another directory',
      details: { found, known: newest },
    });
  }
  if (found === newest) return;
  if (found > 0) backUp(connection, home, found);
  connection.function('sha256', { deterministic: true }, sha256);
  for (const migration of migrations) {
    if (migration.version <= found) continue;
    connection.exec('BEGIN IMMEDIATE');
    try {
      connection.exec(migration.sql);
      connection.exec(`PRAGMA user_version = ${migration.version}`);
      connection.exec('COMMIT');
    } catch (error) {
      if (connection.isTransaction) connection.exec('ROLLBACK');
      throw error;
    }
  }
}

function sha256(value: SQLOutputValue): string {
  if (!(value instanceof Uint8Array)) throw new TypeError('only a blob has a hash');
  return hash('sha256', value);
}

function schemaVersion(connection: DatabaseSync): number {
  const row = connection.prepare('PRAGMA user_version').get();
  return Number(row?.['user_version'] ?? 0);
}
