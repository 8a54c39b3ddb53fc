import { chmodSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { Log } from '../../../supervisor/base/log.ts';
import { secretChecks } from '../../../supervisor/doctor/secret-checks.ts';
import { seal, unseal } from '../../../supervisor/secrets/sealed.ts';
import { SecretFiles } from '../../../supervisor/secrets/secret-files.ts';
import { SecretStore } from '../../../supervisor/secrets/secret-store.ts';
import type { Home } from '../../../supervisor/store/home.ts';
import type { Database } from '../../../supervisor/store/database.ts';
import { SecretRows } from '../../../supervisor/store/secrets.ts';
import { temporaryDatabase, temporaryHome } from '../../fixtures/store/temporary-home.ts';

const silent: Log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {}, child: () => silent };
const VALUE = Buffer.from('sk-a-value-that-nobody-may-read');
const START = 1_000_000;

let home: Home;
let database: Database;
let store: SecretStore;

/** The store of the next supervisor. */
function open(files = new SecretFiles(home.secrets)): SecretStore {
  store = new SecretStore({ rows: new SecretRows(database), files, log: silent, now: () => Date.now() });
  return store;
}

const sealedFiles = (): string[] => readdirSync(home.secrets).filter((name) => name !== 'key');

beforeEach(() => {
  vi.useFakeTimers({ now: START });
  home = temporaryHome();
  database = temporaryDatabase(home);
  open().start();
});
afterEach(() => {
  store.close();
  vi.useRealTimers();
});

describe('a secret', () => {
  test('is given to sessions of its profile; the profile its own precedes the one for all', () => {
    store.set(null, 'TOKEN', VALUE, null);
    store.set('coder', 'TOKEN', Buffer.from('the own one of coder'), null);
    expect(store.use('reviewer', 'TOKEN')?.value.toString()).toBe(VALUE.toString());
    expect(store.use('coder', 'TOKEN')?.value.toString()).toBe('the own one of coder');
    expect(store.use('coder', 'OTHER')).toBeNull();
    expect(store.list().map(({ name, profile }) => [name, profile])).toEqual([
      ['TOKEN', null],
      ['TOKEN', 'coder'],
    ]);
  });

  test('is in no file of the home in clear, and all files are for the owner alone', () => {
    store.set(null, 'TOKEN', VALUE, null);
    for (const name of readdirSync(home.root, { recursive: true, encoding: 'utf8' })) {
      const path = join(home.root, name);
      if (!statSync(path).isFile()) continue;
      const bytes = readFileSync(path);
      expect(bytes.includes(VALUE), name).toBe(false);
      expect(bytes.includes(VALUE.toString('base64').slice(0, 20)), name).toBe(false);
      if (name.startsWith('secrets/')) expect(statSync(path).mode & 0o777, name).toBe(0o600);
    }
    expect(JSON.stringify(store.list())).not.toContain('nobody');
  });

  test('survives the supervisor, and keeps its version when the same value is set again', () => {
    expect(store.set(null, 'TOKEN', VALUE, null).version).toBe(1);
    store.close();
    open().start();
    expect(store.use('any', 'TOKEN')?.value.equals(VALUE)).toBe(true);
    expect(store.set(null, 'TOKEN', VALUE, null).version).toBe(1);
    expect(store.set(null, 'TOKEN', Buffer.from('another value'), null).version).toBe(2);
    expect(sealedFiles()).toHaveLength(1);
  });

  test('never has a version twice, not even after it was removed', () => {
    store.set(null, 'TOKEN', VALUE, null);
    expect(store.remove(null, 'TOKEN')).toBe(true);
    expect(store.remove(null, 'TOKEN')).toBe(false);
    expect(store.list()).toEqual([]);
    expect(sealedFiles()).toEqual([]);
    expect(store.set(null, 'TOKEN', VALUE, null).version).toBe(2);
  });

  test.each([
    [Buffer.from('short'), 'invalid_params'],
    [Buffer.alloc(64 * 1024 + 1, 'x'), 'invalid_params'],
  ])('%# of a wrong length is refused', (value, code) => {
    expect(() => store.set(null, 'TOKEN', value, null)).toThrow(expect.objectContaining({ code }));
    expect(store.list()).toEqual([]);
  });

  test('has the time of its last use, and not at every use', () => {
    store.set(null, 'TOKEN', VALUE, null);
    expect(store.describe('any', 'TOKEN')?.lastUsedAt).toBeNull();
    store.use('any', 'TOKEN');
    vi.setSystemTime(START + 1000);
    store.use('any', 'TOKEN');
    expect(store.describe('any', 'TOKEN')?.lastUsedAt).toBe(new Date(START).toISOString());
  });

  test('goes with its profile, after the transaction that ends the profile', () => {
    store.set('coder', 'TOKEN', VALUE, null);
    store.set(null, 'TOKEN', VALUE, null);
    expect(() =>
      database.transaction(() => {
        store.forgetProfile('coder');
        throw new Error('rolled back');
      }),
    ).toThrow('rolled back');
    vi.runAllTimers();
    expect(store.use('coder', 'TOKEN')).not.toBeNull();
    expect(store.list()).toHaveLength(2);
    database.transaction(() => store.forgetProfile('coder'));
    vi.runAllTimers();
    expect(store.list().map(({ profile }) => profile)).toEqual([null]);
    expect(sealedFiles()).toHaveLength(1);
  });
});

describe('expiry', () => {
  test('deletes the value in time, and says so', () => {
    store.set(null, 'TOKEN', VALUE, START + 60_000);
    vi.advanceTimersByTime(59_000);
    expect(store.use('any', 'TOKEN')).not.toBeNull();
    vi.advanceTimersByTime(2000);
    expect(store.use('any', 'TOKEN')).toBeNull();
    expect(sealedFiles()).toEqual([]);
    expect(store.list()[0]?.state).toBe('expired');
    expect(secretChecks(store.list())).toMatchObject([{ status: 'warning' }]);
  });

  test('that passed while no supervisor ran deletes the value at the next start', () => {
    store.set(null, 'TOKEN', VALUE, START + 60_000);
    store.close();
    vi.setSystemTime(START + 90_000);
    open();
    expect(store.use('any', 'TOKEN')).toBeNull();
    store.start();
    expect(sealedFiles()).toEqual([]);
  });

  test('is tried again if the deletion fails, and the value is not used meanwhile', () => {
    let failures = 2;
    const files = new SecretFiles(home.secrets);
    const destroy = files.destroy.bind(files);
    files.destroy = (name) => {
      failures -= 1;
      if (failures >= 0) throw new HoldfastError('no_space', 'no');
      destroy(name);
    };
    store.close();
    open(files);
    store.set(null, 'TOKEN', VALUE, START + 10_000);
    vi.advanceTimersByTime(11_000);
    expect(store.use('any', 'TOKEN')).toBeNull();
    expect(sealedFiles()).toHaveLength(1);
    vi.advanceTimersByTime(180_000);
    expect(sealedFiles()).toEqual([]);
  });

  test('longer than a timer of Node can wait is not at once', () => {
    store.set(null, 'TOKEN', VALUE, START + 60 * 86_400_000);
    vi.advanceTimersByTime(59 * 86_400_000);
    expect(store.use('any', 'TOKEN')).not.toBeNull();
    vi.advanceTimersByTime(2 * 86_400_000);
    expect(sealedFiles()).toEqual([]);
  });
});

describe('after a crash', () => {
  test('a value without its row is removed, and one with a row is not', () => {
    store.set(null, 'TOKEN', VALUE, null);
    new SecretFiles(home.secrets).write(Buffer.from('sealed, but its row was not written'));
    writeFileSync(join(home.secrets, `.${'0'.repeat(32)}`), 'half');
    open().start();
    expect(sealedFiles()).toHaveLength(1);
    expect(store.use('any', 'TOKEN')).not.toBeNull();
  });

  test('while the key was created, a key without its name is no key', () => {
    writeFileSync(join(home.secrets, '.key.1.aaaaaaaa'), Buffer.alloc(7));
    expect(store.set(null, 'TOKEN', VALUE, null).state).toBe('usable');
    expect(statSync(join(home.secrets, 'key')).size).toBe(32);
  });
});

describe('the key', () => {
  test('is never replaced while secrets are sealed with another', () => {
    store.set(null, 'TOKEN', VALUE, null);
    const key = readFileSync(join(home.secrets, 'key'));
    rmSync(join(home.secrets, 'key'));
    expect(store.list()[0]?.state).toBe('unreadable');
    expect(secretChecks(store.list())).toMatchObject([{ status: 'problem' }]);
    expect(() => store.set(null, 'OTHER', VALUE, null)).toThrow(
      expect.objectContaining({ code: 'home_damaged' }),
    );
    writeFileSync(join(home.secrets, 'key'), key, { mode: 0o600 });
    expect(store.use('any', 'TOKEN')?.value.equals(VALUE)).toBe(true);
    rmSync(join(home.secrets, 'key'));
    store.remove(null, 'TOKEN');
    expect(store.set(null, 'OTHER', VALUE, null).state).toBe('usable');
  });

  test('that others can read is not used', () => {
    store.set(null, 'TOKEN', VALUE, null);
    chmodSync(join(home.secrets, 'key'), 0o644);
    expect(store.use('any', 'TOKEN')).toBeNull();
    expect(store.list()[0]?.state).toBe('unreadable');
  });

  test('opens a value in its own place only, and unchanged', () => {
    const key = Buffer.alloc(32, 7);
    const identity = { profile: 'coder', name: 'TOKEN', version: 3 };
    const sealed = seal(key, identity, VALUE);
    expect(unseal(key, identity, sealed)?.equals(VALUE)).toBe(true);
    for (const other of [{ profile: '' }, { name: 'TOKE' }, { version: 4 }])
      expect(unseal(key, { ...identity, ...other }, sealed)).toBeNull();
    expect(unseal(Buffer.alloc(32, 8), identity, sealed)).toBeNull();
    for (let at = 0; at < sealed.length; at += 1) {
      const changed = Buffer.from(sealed);
      changed[at] = (changed[at] ?? 0) ^ 1;
      expect(unseal(key, identity, changed), String(at)).toBeNull();
    }
    expect(unseal(key, identity, Buffer.alloc(0))).toBeNull();
    expect(seal(key, identity, VALUE).equals(sealed)).toBe(false);
  });
});
