import { readFileSync, readdirSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, onTestFinished, test } from 'vitest';
import { openDatabase } from '../../../supervisor/store/database.ts';
import type { Database } from '../../../supervisor/store/database.ts';
import type { Home } from '../../../supervisor/store/home.ts';
import { migrate } from '../../../supervisor/store/migrate.ts';
import { MIGRATIONS } from '../../../supervisor/store/migrations/index.ts';
import { toColumn } from '../../../supervisor/store/columns.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import {
  thrownError,
  sessionId,
  sessionRow,
  temporaryDatabase,
  temporaryHome,
} from '../../fixtures/store/temporary-home.ts';

/** A home that was used, with `sessions` rows. */
function usedHome(sessions = 50): Home {
  const home = temporaryHome();
  const database = openDatabase(home);
  const rows = new Sessions(database);
  database.transaction(() => {
    for (let n = 0; n < sessions; n += 1) rows.insert(sessionRow(n, { about: 'x'.repeat(200) }));
  });
  database.close();
  return home;
}

function bare(home: Home): DatabaseSync {
  const connection = new DatabaseSync(home.database);
  onTestFinished(() => {
    if (connection.isOpen) connection.close();
  });
  return connection;
}

const counter = (database: Database): unknown =>
  database.get("SELECT value FROM counters WHERE name = 'epoch'");

describe('opening a database', () => {
  test('counts the supervisors that have used it', () => {
    const home = temporaryHome();
    const first = openDatabase(home);
    expect([first.epoch(), first.epoch()]).toEqual([1, 1]);
    first.close();
    const second = openDatabase(home);
    expect(second.epoch()).toBe(2);
    second.close();
  });

  test('is durable and readable by its owner alone', () => {
    const home = temporaryHome();
    const database = temporaryDatabase(home);
    expect(database.get('PRAGMA journal_mode')).toEqual({ journal_mode: 'wal' });
    expect(database.get('PRAGMA synchronous')).toEqual({ synchronous: 2 });
    expect(database.get('PRAGMA foreign_keys')).toEqual({ foreign_keys: 1 });
    expect(statSync(home.root).mode & 0o077).toBe(0);
  });

  test('of a newer version is refused and stays unchanged', () => {
    const home = usedHome();
    const connection = bare(home);
    connection.exec('PRAGMA user_version = 4711');
    connection.close();
    const before = readFileSync(home.database);
    const failure = thrownError(() => openDatabase(home));
    expect(failure.code).toBe('home_newer');
    expect(failure.details).toEqual({ found: 4711, known: MIGRATIONS.at(-1)?.version });
    expect(readFileSync(home.database).equals(before)).toBe(true);
    expect(readdirSync(home.backups)).toEqual([]);
  });

  test.each([
    ['is not a database', (file: string) => writeFileSync(file, 'not a database at all'.repeat(100))],
    ['lost its end', (file: string) => truncateSync(file, statSync(file).size - 4096 * 3)],
    [
      'is overwritten in the middle',
      (file: string) => {
        const bytes = readFileSync(file);
        bytes.fill(0xa5, 4096, bytes.length - 4096);
        writeFileSync(file, bytes);
      },
    ],
  ])('that %s is refused, naming the newest backup', (_, damage) => {
    const home = usedHome();
    const backup = join(home.backups, 'holdfast-0001-20260102T030405678Z.db');
    writeFileSync(join(home.backups, 'holdfast-0002-20250102T030405678Z.db'), '');
    writeFileSync(backup, '');
    damage(home.database);
    const failure = thrownError(() => openDatabase(home));
    expect(failure.code).toBe('home_damaged');
    expect(failure.next).toContain(backup);
    expect(failure.details).toEqual({ database: home.database, backup });
  });

  test('that is damaged without a backup says so', () => {
    const home = temporaryHome();
    writeFileSync(home.database, 'not a database at all'.repeat(100));
    expect(thrownError(() => openDatabase(home)).next).toContain('a backup of your own');
  });
});

describe('a migration', () => {
  test('has a file with its number, and a place in the list', () => {
    const folder = join(import.meta.dirname, '../../../supervisor/store/migrations');
    const numbers = readdirSync(folder)
      .filter((name) => name !== 'index.ts')
      .map((name) => Number(name.slice(0, 3)));
    expect(MIGRATIONS.map(({ version }) => version)).toEqual(numbers.toSorted((a, b) => a - b));
  });

  const now = MIGRATIONS.length;
  const next = { version: now + 1, sql: 'ALTER TABLE sessions ADD COLUMN colour TEXT' };

  test('of an existing database follows a complete backup that opens', () => {
    const home = usedHome(3);
    migrate(bare(home), home, [...MIGRATIONS, next]);
    const [name, ...others] = readdirSync(home.backups);
    expect(others).toEqual([]);
    expect(name).toMatch(new RegExp(`^holdfast-${String(now).padStart(4, '0')}-\\d{8}T\\d{9}Z\\.db$`));
    const copy = new DatabaseSync(join(home.backups, name ?? ''), { readOnly: true });
    expect({ ...copy.prepare('SELECT count(*) AS many FROM sessions').get() }).toEqual({ many: 3 });
    expect({ ...copy.prepare('PRAGMA user_version').get() }).toEqual({ user_version: now });
    copy.close();
    expect({ ...bare(home).prepare('PRAGMA user_version').get() }).toEqual({ user_version: now + 1 });
  });

  test('finds in the history how each session began', () => {
    const home = temporaryHome();
    const old = bare(home);
    migrate(old, home, MIGRATIONS.slice(0, 26));
    const insert = (table: string, row: object): void => {
      const places = Object.keys(row).map(() => '?');
      old
        .prepare(`INSERT INTO ${table} (${Object.keys(row).join(', ')}) VALUES (${places.join(', ')})`)
        .run(...Object.values(row).map(toColumn));
    };
    const cases = [
      { began: 'new', origin: null, types: [] },
      { began: 'snapshot', origin: 'snp-a', types: [] },
      { began: 'fork', origin: 'snp-a', types: ['session.imported', 'session.forked'] },
      // A bundle brings along that it was a fork where it comes from.
      { began: 'import', origin: null, types: ['session.forked', 'session.imported'] },
    ];
    for (const [n, { origin, types }] of cases.entries()) {
      const { began: _, author: __, ...row } = sessionRow(n, { origin });
      insert('sessions', row);
      for (const [at, type] of types.entries())
        insert('events', { sessionId: row.id, seq: at + 1, at: 1, type, data: '{}', prevHash: '', hash: '' });
    }
    old.close();
    const sessions = new Sessions(temporaryDatabase(home));
    expect(cases.map((_, n) => sessions.get(sessionId(n)))).toMatchObject(
      cases.map(({ began }) => ({ began, author: null })),
    );
  });

  test('that fails leaves version and tables unchanged', () => {
    const home = usedHome(3);
    const broken = { version: now + 1, sql: `${next.sql}; INSERT INTO nowhere VALUES (1)` };
    expect(() => migrate(bare(home), home, [...MIGRATIONS, broken])).toThrow('nowhere');
    expect({ ...bare(home).prepare('PRAGMA user_version').get() }).toEqual({ user_version: now });
    const database = temporaryDatabase(home);
    expect(new Sessions(database).all()).toHaveLength(3);
    expect(() => database.get('SELECT colour FROM sessions')).toThrow();
  });

  test('of a new database needs no backup', () => {
    const home = temporaryHome();
    temporaryDatabase(home);
    expect(readdirSync(home.backups)).toEqual([]);
  });

  test('keeps the five newest backups', () => {
    const home = usedHome(1);
    for (let n = 1; n <= 6; n += 1)
      writeFileSync(join(home.backups, `holdfast-000${9 - n}-2025010${n}T000000000Z.db`), '');
    writeFileSync(join(home.backups, 'mine.txt'), '');
    migrate(bare(home), home, [...MIGRATIONS, next]);
    const kept = readdirSync(home.backups);
    expect(kept).toHaveLength(6);
    expect(kept).toContain('mine.txt');
    expect(kept.filter((name) => name.includes('-2025010')).sort()).toEqual(
      [3, 4, 5, 6].map((n) => `holdfast-000${9 - n}-2025010${n}T000000000Z.db`).sort(),
    );
  });

  test('steps are numbered from 1 without gaps', () => {
    expect(MIGRATIONS.map((step) => step.version)).toEqual(MIGRATIONS.map((_, index) => index + 1));
  });
});

describe('a transaction', () => {
  test('commits all or nothing, and runs callbacks only after a commit', () => {
    const database = temporaryDatabase();
    const heard: string[] = [];
    expect(() =>
      database.transaction(() => {
        database.run("UPDATE counters SET value = 7 WHERE name = 'epoch'");
        database.afterCommit(() => heard.push('committed'));
        database.afterRollback(() => heard.push('undone'));
        throw new Error('no');
      }),
    ).toThrow('no');
    expect(counter(database)).toEqual({ value: 0 });
    expect(heard).toEqual(['undone']);
  });

  test('inside another can fail alone', () => {
    const database = temporaryDatabase();
    const heard: string[] = [];
    database.transaction(() => {
      database.run("UPDATE counters SET value = 1 WHERE name = 'epoch'");
      database.afterCommit(() => heard.push('outer'));
      expect(() =>
        database.transaction(() => {
          database.run("UPDATE counters SET value = 2 WHERE name = 'epoch'");
          database.afterCommit(() => heard.push('inner'));
          throw new Error('no');
        }),
      ).toThrow('no');
      expect(heard).toEqual([]);
    });
    expect(counter(database)).toEqual({ value: 1 });
    expect(heard).toEqual(['outer']);
  });

  test('rolls back its inner transactions when it fails', () => {
    const database = temporaryDatabase();
    const heard: string[] = [];
    expect(() =>
      database.transaction(() => {
        database.transaction(() => {
          database.run("UPDATE counters SET value = 2 WHERE name = 'epoch'");
          database.afterCommit(() => heard.push('inner'));
          database.afterRollback(() => heard.push('inner undone'));
        });
        throw new Error('no');
      }),
    ).toThrow('no');
    expect(counter(database)).toEqual({ value: 0 });
    expect(heard).toEqual(['inner undone']);
  });

  test('must not wait', () => {
    const database = temporaryDatabase();
    expect(thrownError(() => database.transaction(() => Promise.resolve(1))).message).toContain(
      'must not wait',
    );
    expect(database.inTransaction).toBe(false);
  });

  test('on a full disk is rolled back, and the database stays usable', () => {
    const home = temporaryHome();
    const database = temporaryDatabase(home);
    const sessions = new Sessions(database);
    const pages = database.get('PRAGMA page_count') as { page_count: number };
    database.get(`PRAGMA max_page_count = ${pages.page_count + 2}`);
    const failure = thrownError(() =>
      database.transaction(() => {
        for (let n = 0; n < 100; n += 1) sessions.insert(sessionRow(n, { about: 'x'.repeat(1000) }));
      }),
    );
    expect(failure.code).toBe('no_space');
    expect(failure.cause).toBeInstanceOf(Error);
    expect(sessions.all()).toEqual([]);
    sessions.insert(sessionRow(0));
    expect(sessions.all()).toHaveLength(1);
  });

  test('that a disk error ended commits nothing that is written afterwards', () => {
    const database = temporaryDatabase();
    const sessions = new Sessions(database);
    sessions.insert(sessionRow(0));
    const failure = thrownError(() =>
      database.transaction(() => {
        sessions.update(sessionRow(0).id, { about: 'before' });
        // SQLite rolls back by itself on some disk errors.
        try {
          database.run('ROLLBACK');
          database.run('SELECT * FROM no_such_table');
        } catch {
          sessions.update(sessionRow(0).id, { about: 'after' });
        }
      }),
    );
    expect(failure.message).toContain('refused');
    expect(sessions.get(sessionRow(0).id)?.about).toBeNull();
    expect(database.transaction(() => 'goes on')).toBe('goes on');
  });

  test('has its callbacks in the order of commits, also when one of them commits', () => {
    const database = temporaryDatabase();
    const heard: string[] = [];
    database.transaction(() => {
      database.afterCommit(() => {
        heard.push('first');
        database.transaction(() => database.afterCommit(() => heard.push('third')));
      });
      database.afterCommit(() => heard.push('second'));
    });
    expect(heard).toEqual(['first', 'second', 'third']);
  });
});

test('an iteration that ends early blocks nothing', () => {
  const home = usedHome(50);
  const database = temporaryDatabase(home);
  for (const row of database.iterate('SELECT id FROM sessions ORDER BY id')) {
    expect(row).toHaveProperty('id');
    break;
  }
  database.transaction(() => database.run("UPDATE counters SET value = 9 WHERE name = 'epoch'"));
  expect(database.get('PRAGMA wal_checkpoint(TRUNCATE)')).toMatchObject({ busy: 0 });
});
