import { describe, expect, test } from 'vitest';
import { ProfileSchema } from '../../../protocol/profile.ts';
import { Profiles } from '../../../supervisor/store/profiles.ts';
import type { NewProfileRow } from '../../../supervisor/store/profiles.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import {
  newTurn,
  sessionId,
  sessionRow,
  temporaryDatabase,
  turnId,
} from '../../fixtures/store/temporary-home.ts';

const full = ProfileSchema.parse({
  name: 'counter',
  image: 'debian:12',
  agent: { protocol: 'handler', entry: 'agent.py', timeout: '90s' },
  persistence: 'persistent',
  workspace: { scope: 'session', backing: 'volume', limit: '5GiB', seed: 'seed', ignore: ['*.o'] },
  setup: { run: 'make', secrets: ['TOKEN'], timeout: '5m', egress: [{ host: 'example.org' }] },
  egress: [{ host: 'example.org', methods: ['GET'], path: '/x' }],
  env: { LANG: 'C' },
  limits: { memory: '512MiB', cpus: 1.5, pids: 100, output: '1GB' },
  idle: { pause: '5m', stop: '1h', expire: '30d' },
  retention: { snapshots: '7d', events: '8d', artifacts: '9d', memory: '10d' },
  checks: { test: 'npm test' },
});

const row = (version: number, changes: Partial<NewProfileRow> = {}): NewProfileRow => ({
  name: 'counter',
  version,
  deployedAt: 1000 + version,
  source: '/home/me/counter',
  config: full,
  sourceHash: 'abc',
  files: 2,
  bytes: 345,
  image: 'debian:12',
  ...changes,
});

describe('profiles', () => {
  test.each([
    ['every field there is', full],
    [
      'the smallest config',
      ProfileSchema.parse({ name: 'a', agent: { protocol: 'command', command: ['cat'] } }),
    ],
    [
      'another protocol',
      ProfileSchema.parse({ name: 'a', agent: { protocol: 'acp', command: ['x'], timeout: '1s' } }),
    ],
  ])('are read as they were parsed, with %s', (_, config) => {
    const profiles = new Profiles(temporaryDatabase());
    profiles.upsert(row(1, { config }));
    expect(profiles.get('counter')).toEqual({ ...row(1, { config }), incarnation: 1 });
    expect(profiles.get('other')).toBeNull();
  });

  test('never give a version number to other code, even after they were removed', () => {
    const profiles = new Profiles(temporaryDatabase());
    expect(profiles.nextVersion('counter')).toBe(1);
    profiles.upsert(row(1));
    profiles.upsert(row(2));
    profiles.remove('counter');
    profiles.markVersionRemoved('counter', 1);
    profiles.markVersionRemoved('counter', 2);
    expect(profiles.list()).toEqual([]);
    expect(profiles.nextVersion('counter')).toBe(3);
    expect(profiles.listVersions()).toEqual([]);
  });

  test('keep their incarnation while they are deployed, and get another one after an undeploy', () => {
    const profiles = new Profiles(temporaryDatabase());
    profiles.upsert(row(1));
    profiles.upsert(row(1, { name: 'other' }));
    profiles.upsert(row(2));
    expect([profiles.get('counter')?.incarnation, profiles.get('other')?.incarnation]).toEqual([1, 2]);
    profiles.remove('other');
    profiles.remove('counter');
    profiles.upsert(row(3));
    expect(profiles.get('counter')?.incarnation).toBe(3);
  });

  test('keep a reserved version until it is released', () => {
    const profiles = new Profiles(temporaryDatabase());
    profiles.upsert(row(1));
    expect(profiles.reserveVersion('counter', 5)).toBe(2);
    expect(profiles.reserveVersion('counter', 5)).toBe(3);
    expect(profiles.listVersions().map(({ version }) => version)).toEqual([1]);
    profiles.releaseVersion('counter', 3);
    profiles.releaseVersion('counter', 1);
    expect(profiles.reserveVersion('counter', 5)).toBe(3);
    expect([profiles.hasVersion('counter', 1), profiles.hasVersion('counter', 2)]).toEqual([true, false]);
    profiles.upsert(row(2));
    expect(profiles.hasVersion('counter', 2)).toBe(true);
  });

  test('list the versions in use', () => {
    const database = temporaryDatabase();
    const profiles = new Profiles(database);
    const sessions = new Sessions(database);
    const turns = new Turns(database);
    for (const version of [1, 2, 3, 4, 5]) profiles.upsert(row(version));
    sessions.insert(sessionRow(0, { codeVersion: 2 }));
    sessions.insert(sessionRow(1, { codeVersion: 1, status: 'deleted' }));
    sessions.insert(sessionRow(2, { codeVersion: 4, profile: 'other' }));
    turns.insert(newTurn(1, { status: 'running', codeVersion: 3 }));
    turns.insert(newTurn(2, { status: 'succeeded', codeVersion: 1 }));
    expect(profiles.versionsInUse('counter')).toEqual([2, 3, 5]);
    turns.update(turnId(1), { status: 'failed' });
    sessions.update(sessionId(0), { codeVersion: null });
    profiles.remove('counter');
    expect(profiles.versionsInUse('counter')).toEqual([]);
    expect(profiles.listVersions().map((one) => one.version)).toEqual([1, 2, 3, 4, 5]);
  });

  test('update the row of a version without a new number', () => {
    const profiles = new Profiles(temporaryDatabase());
    profiles.upsert(row(1));
    profiles.upsert(row(1, { source: '/elsewhere' }));
    expect(profiles.list()).toEqual([{ ...row(1, { source: '/elsewhere' }), incarnation: 1 }]);
    expect(profiles.nextVersion('counter')).toBe(2);
  });
});
