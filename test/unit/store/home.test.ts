import {
  chmodSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { homeFromEnvironment } from '../../../protocol/home.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { failureOf, temporaryDirectory } from './temporary-home.ts';

const root = (): string => join(temporaryDirectory(), 'home');
const modeOf = (path: string): number => statSync(path).mode & 0o777;

describe('a home', () => {
  test('is made for its owner alone, and opening it again changes nothing', () => {
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
      'id',
      'logs',
      'run',
      'runtime',
      'store',
      'workspaces',
    ]);
  });

  test('has another id than any other home', () => {
    expect(Home.open(root()).id).not.toBe(Home.open(root()).id);
  });

  test('may have a long path with spaces', () => {
    const path = join(temporaryDirectory(), 'a b'.padEnd(100, 'c'), 'd'.repeat(100));
    expect(Home.open(path).workspace('ses-aaaaaaaaaaaaaaaa')).toBe(
      join(path, 'workspaces', 'ses-aaaaaaaaaaaaaaaa'),
    );
  });

  test('that others could read is closed to them', () => {
    const path = root();
    mkdirSync(path, { mode: 0o755 });
    Home.open(path);
    expect(modeOf(path)).toBe(0o700);
  });

  test.each([0o770, 0o702])('that others may write to (%o) is refused, with what to do', (mode) => {
    const path = root();
    mkdirSync(path);
    chmodSync(path, mode);
    const failure = failureOf(() => Home.open(path));
    expect(failure.code).toBe('home_damaged');
    expect(failure.next).toContain('chmod 700');
    expect(readdirSync(path)).toEqual([]);
  });

  test('is never a file', () => {
    const path = root();
    writeFileSync(path, '');
    expect(failureOf(() => Home.open(path)).code).toBe('home_damaged');
    expect(failureOf(() => Home.open(join(path, 'below'))).code).toBe('home_damaged');
  });

  test('is never a folder of other things, which a purge would take along', () => {
    const path = root();
    mkdirSync(path);
    writeFileSync(join(path, 'thesis.tex'), '');
    const failure = failureOf(() => Home.open(path));
    expect(failure.code).toBe('home_damaged');
    expect(failure.why).toContain('thesis.tex');
    expect(readdirSync(path)).toEqual(['thesis.tex']);
  });

  test.runIf(process.getuid?.() === 0)('that belongs to somebody else is refused (needs root)', async () => {
    const { chownSync } = await import('node:fs');
    const path = root();
    mkdirSync(path, { mode: 0o700 });
    chownSync(path, 12345, 12345);
    expect(failureOf(() => Home.open(path)).why).toContain('user 12345');
  });

  test('with an id that is none is refused rather than given a new one', () => {
    const path = root();
    Home.open(path);
    writeFileSync(join(path, 'id'), 'half');
    expect(failureOf(() => Home.open(path)).code).toBe('home_damaged');
    expect(readFileSync(join(path, 'id'), 'utf8')).toBe('half');
  });

  test('names nothing outside itself', () => {
    const home = Home.open(root());
    for (const bad of ['..', '.', '', 'a/b', '../../etc', 'a\0b']) {
      expect(failureOf(() => home.workspace(bad)).code).toBe('internal');
      expect(failureOf(() => home.artifact('ses-aaaaaaaaaaaaaaaa', bad)).code).toBe('internal');
    }
    expect(home.run('ses-aaaaaaaaaaaaaaaa').agent).toBe(
      join(home.root, 'run', 'ses-aaaaaaaaaaaaaaaa', 'agent'),
    );
  });

  test('knows when it is gone, and when another stands in its place', () => {
    const path = root();
    const home = Home.open(path);
    expect(home.stillThere()).toBe(true);
    renameSync(path, `${path}-moved`);
    expect(home.stillThere()).toBe(false);
    Home.open(path);
    expect(home.stillThere()).toBe(false);
    rmSync(path, { recursive: true });
    renameSync(`${path}-moved`, path);
    expect(home.stillThere()).toBe(true);
    rmSync(path, { recursive: true });
    expect(home.stillThere()).toBe(false);
  });
});

test('the home is what the environment names, made absolute', () => {
  expect(homeFromEnvironment({ HOLDFAST_HOME: '/a/b' })).toBe('/a/b');
  expect(homeFromEnvironment({ HOLDFAST_HOME: 'b' })).toBe(join(process.cwd(), 'b'));
  expect(homeFromEnvironment({ HOLDFAST_HOME: '' })).toMatch(/\/\.holdfast$/);
});
