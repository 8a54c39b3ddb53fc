import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, test } from 'vitest';
import { homeFromEnvironment } from '../../../protocol/home.ts';
import { backUp } from '../../../supervisor/store/backups.ts';
import { openDatabase } from '../../../supervisor/store/database.ts';
import { Home, MAX_HOME_PATH_BYTES } from '../../../supervisor/store/home.ts';
import { HomeLock } from '../../../supervisor/store/lock.ts';
import { thrownError, temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

const root = (): string => join(temporaryDirectory(), 'home');
const modeOf = (path: string): number => statSync(path).mode & 0o777;

describe('a home', () => {
  test('is created for its owner alone, and opening it again changes nothing', () => {
    const path = root();
    const first = Home.open(path);
    const second = Home.open(path);
    expect(first.id).toMatch(/^[a-z2-7]{26}$/);
    expect(second.id).toBe(first.id);
    expect(modeOf(path)).toBe(0o700);
    for (const name of readdirSync(path)) expect([name, modeOf(join(path, name)) & 0o077]).toEqual([name, 0]);
    expect(readdirSync(path).sort()).toEqual([
      'artifacts',
      'backups',
      'deploys',
      'homes',
      'id',
      'logs',
      'promoted',
      'run',
      'runtime',
      'secrets',
      'setups',
      'store',
      'workspaces',
    ]);
  });

  test('has a unique id', () => {
    expect(Home.open(root()).id).not.toBe(Home.open(root()).id);
  });

  test('may have a long path with spaces', () => {
    const path = join(temporaryDirectory(), 'a b'.padEnd(100, 'c'), 'd'.repeat(100));
    expect(Home.open(path).workspace('ses-aaaaaaaaaaaaaaaa')).toBe(
      join(path, 'workspaces', 'ses-aaaaaaaaaaaaaaaa'),
    );
  });

  /** A path of exactly `bytes` bytes below `under`. */
  const pathOf = (under: string, bytes: number): string => {
    let path = under;
    while (path.length < bytes) {
      const left = bytes - path.length - 1;
      path = join(path, 'x'.repeat(left > 202 ? 200 : left > 200 ? 198 : left));
    }
    return path;
  };

  test('may have a path as long as SQLite allows, also during an upgrade', () => {
    const path = pathOf(temporaryDirectory(), MAX_HOME_PATH_BYTES);
    expect(Buffer.byteLength(path)).toBe(MAX_HOME_PATH_BYTES);
    const home = Home.open(path);
    const lock = HomeLock.acquire(home, { waitMs: 0 });
    openDatabase(home).close();
    const connection = new DatabaseSync(home.database);
    expect(existsSync(backUp(connection, home, 9999))).toBe(true);
    connection.close();
    lock.release();
  });

  test.each([
    ['one byte longer', (under: string) => pathOf(under, MAX_HOME_PATH_BYTES + 1)],
    ['501 bytes', (under: string) => pathOf(under, 501)],
    ['5000 bytes', (under: string) => pathOf(under, 5000)],
    ['characters of several bytes', (under: string) => join(under, '語'.repeat(80), '語'.repeat(80))],
    ['a part that no file system takes', (under: string) => join(under, 'deep', 'x'.repeat(256))],
  ])('with a path too long (%s) is refused before anything is created', (_, pathBelow) => {
    const under = temporaryDirectory();
    const failure = thrownError(() => Home.open(pathBelow(under)));
    expect(failure.code).toBe('path_too_long');
    expect(failure.next).toContain('HOLDFAST_HOME');
    expect(readdirSync(under)).toEqual([]);
  });

  test('is measured by its real path', () => {
    const under = temporaryDirectory();
    const target = pathOf(under, MAX_HOME_PATH_BYTES - 5);
    mkdirSync(target, { recursive: true });
    const link = join(temporaryDirectory(), 'link');
    symlinkSync(target, link);
    expect(thrownError(() => Home.open(join(link, 'long-home'))).code).toBe('path_too_long');
    expect(readdirSync(target)).toEqual([]);
  });

  test('that others can read is closed to them', () => {
    const path = root();
    mkdirSync(path, { mode: 0o755 });
    Home.open(path);
    expect(modeOf(path)).toBe(0o700);
  });

  test.each([0o770, 0o702])('that others can write to (%o) is refused with a next step', (mode) => {
    const path = root();
    mkdirSync(path);
    chmodSync(path, mode);
    const failure = thrownError(() => Home.open(path));
    expect(failure.code).toBe('home_damaged');
    expect(failure.next).toContain('chmod 700');
    expect(readdirSync(path)).toEqual([]);
  });

  test('is never a file', () => {
    const path = root();
    writeFileSync(path, '');
    expect(thrownError(() => Home.open(path)).code).toBe('home_damaged');
    expect(thrownError(() => Home.open(join(path, 'below'))).code).toBe('home_damaged');
  });

  test('is never a folder with other content, which a purge would delete', () => {
    const path = root();
    mkdirSync(path);
    writeFileSync(join(path, 'thesis.tex'), '');
    const failure = thrownError(() => Home.open(path));
    expect(failure.code).toBe('home_damaged');
    expect(failure.why).toContain('thesis.tex');
    expect(readdirSync(path)).toEqual(['thesis.tex']);
  });

  test.runIf(process.getuid?.() === 0)('that belongs to somebody else is refused (needs root)', async () => {
    const { chownSync } = await import('node:fs');
    const path = root();
    mkdirSync(path, { mode: 0o700 });
    chownSync(path, 12345, 12345);
    expect(thrownError(() => Home.open(path)).why).toContain('user 12345');
  });

  test('with an invalid id is refused, not given a new one', () => {
    const path = root();
    Home.open(path);
    writeFileSync(join(path, 'id'), 'half');
    expect(thrownError(() => Home.open(path)).code).toBe('home_damaged');
    expect(readFileSync(join(path, 'id'), 'utf8')).toBe('half');
  });

  test('has no paths outside itself', () => {
    const home = Home.open(root());
    for (const bad of ['..', '.', '', 'a/b', '../../etc', 'a\0b']) {
      expect(thrownError(() => home.workspace(bad)).code).toBe('internal');
      expect(thrownError(() => home.artifact('ses-aaaaaaaaaaaaaaaa', bad)).code).toBe('internal');
    }
    expect(home.run('ses-aaaaaaaaaaaaaaaa').agent).toBe(
      join(home.root, 'run', 'ses-aaaaaaaaaaaaaaaa', 'agent'),
    );
  });

  test('notices when it is removed or replaced', () => {
    const path = root();
    const home = Home.open(path);
    expect(home.isPresent()).toBe(true);
    renameSync(path, `${path}-moved`);
    expect(home.isPresent()).toBe(false);
    Home.open(path);
    expect(home.isPresent()).toBe(false);
    rmSync(path, { recursive: true });
    renameSync(`${path}-moved`, path);
    expect(home.isPresent()).toBe(true);
    rmSync(path, { recursive: true });
    expect(home.isPresent()).toBe(false);
  });
});

test('the home is the absolute path of HOLDFAST_HOME', () => {
  expect(homeFromEnvironment({ HOLDFAST_HOME: '/a/b' })).toBe('/a/b');
  expect(homeFromEnvironment({ HOLDFAST_HOME: 'b' })).toBe(join(process.cwd(), 'b'));
  expect(homeFromEnvironment({ HOLDFAST_HOME: '' })).toMatch(/\/\.holdfast$/);
});
