import { readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { syncDirectory } from './home.ts';
import type { Home } from './home.ts';

const KEPT = 5;
const NAME = /^holdfast-\d{4}-\d{8}T\d{9}Z\.db$/;

/** Writes a consistent copy of the database to `backups/`, named by schema version and time. Returns its path. */
export function backUp(connection: DatabaseSync, home: Home, version: number): string {
  const stamp = new Date().toISOString().replaceAll(/[-:.]/g, '');
  const file = join(home.backups, `holdfast-${String(version).padStart(4, '0')}-${stamp}.db`);
  const partial = `${file}.part`;
  // A backup that was killed, or met a full disk, has another time in its name.
  for (const name of readdirSync(home.backups).filter((one) => one.endsWith('.db.part')))
    rmSync(join(home.backups, name), { force: true });
  connection.prepare('VACUUM INTO ?').run(partial);
  renameSync(partial, file);
  syncDirectory(home.backups);
  for (const old of backups(home).slice(0, -KEPT)) rmSync(join(home.backups, old), { force: true });
  return file;
}

export function newestBackup(home: Home): string | null {
  const newest = backups(home).at(-1);
  return newest === undefined ? null : join(home.backups, newest);
}

/** Sorted by the time in the name, oldest first. */
function backups(home: Home): string[] {
  const time = (name: string): string => name.slice(-'00000000T000000000Z.db'.length);
  return readdirSync(home.backups)
    .filter((name) => NAME.test(name))
    .sort((a, b) => (time(a) < time(b) ? -1 : 1));
}
