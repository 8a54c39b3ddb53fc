import { HoldfastError } from '../../protocol/errors.ts';
import { type Secret, SECRET_LIMITS } from '../../protocol/secrets.ts';
import type { Log } from '../base/log.ts';
import type { SecretRow, SecretRows } from '../store/secrets.ts';
import { createKey, readKey } from './key-file.ts';
import { seal, type SecretIdentity, unseal } from './sealed.ts';
import type { SecretFiles } from './secret-files.ts';

/** How long after a failed deletion it is tried again. */
const RETRY_MS = 60_000;
/** Longest time of a timer in Node. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** The time of the last use is written at most this often. */
const USE_RECORDED_EVERY_MS = 60_000;

export interface SecretValue {
  readonly value: Buffer;
  /** Tells this version of this secret from all others. */
  readonly identity: string;
}

export interface SecretStoreOptions {
  readonly rows: SecretRows;
  readonly files: SecretFiles;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/**
 * Secrets of this home. A row names the file with the sealed value: the file is durable before its row, and is removed
 * after it, so that a crash leaves at most a file that no row names. `start` removes those, and deletes what expires.
 */
export class SecretStore {
  readonly #options: SecretStoreOptions;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: SecretStoreOptions) {
    this.#options = options;
  }

  /** Removes what a crash left and what has expired, now and later on. Never throws. */
  start(): void {
    this.#clean();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  /** `profile`: null for all. Errors: those of `secret/set`, `home_damaged` without a usable key, `no_space`. */
  set(profile: string | null, name: string, value: Buffer, expiresAt: number | null): Secret {
    const { rows, files, now } = this.#options;
    checkValue(value);
    if (expiresAt !== null && expiresAt <= now())
      throw new HoldfastError('invalid_params', 'The secret was not set', {
        why: 'the time of its expiry is over',
      });
    const owner = profile ?? '';
    const before = rows.get(owner, name);
    const isNew = before === null || before.removed;
    if (isNew && rows.count() >= SECRET_LIMITS.count)
      throw new HoldfastError('overloaded', 'The secret was not set', {
        why: `there are ${SECRET_LIMITS.count} already`,
        next: 'remove some with `holdfast secret rm`',
      });
    if (!isNew && before.expiresAt === expiresAt && this.#open(before)?.equals(value) === true)
      return this.#describe(before);
    const identity = { profile: owner, name, version: (before?.version ?? 0) + 1 };
    const file = files.write(seal(this.#key(), identity, value));
    const row = { ...identity, file, setAt: now(), expiresAt };
    // If this fails, the next clean-up removes the file.
    rows.put(row);
    this.#clean();
    return this.#describe({ ...row, usedAt: null, removed: false });
  }

  /** False if there was none. */
  remove(profile: string | null, name: string): boolean {
    const { rows } = this.#options;
    const row = rows.get(profile ?? '', name);
    if (row === null || row.removed) return false;
    rows.forgetFile(row.profile, row.name, { removed: true });
    this.#clean();
    return true;
  }

  /** Removes the secrets of an undeployed profile. Called in a transaction: their files are removed after it. */
  forgetProfile(profile: string): void {
    const { rows } = this.#options;
    const own = rows.all().filter((row) => row.profile === profile && !row.removed);
    for (const { name } of own) rows.forgetFile(profile, name, { removed: true });
    if (own.length > 0) setImmediate(() => this.#clean());
  }

  list(): Secret[] {
    return this.#options.rows
      .all()
      .filter(({ removed }) => !removed)
      .map((row) => this.#describe(row));
  }

  /**
   * The value for a session of `profile`: the profile's own, else the one for all. Null if there is none that can be
   * used. The caller keeps it no longer than it needs it, and never writes it anywhere.
   */
  use(profile: string, name: string): SecretValue | null {
    const row = this.#find(profile, name);
    if (row === null) return null;
    const value = this.#open(row);
    if (value === null) return null;
    this.#recordUse(row);
    return { value, identity: `${row.profile}/${row.name}/${row.version}` };
  }

  /** What is known of the secret that `use` would give; null if there is none. */
  describe(profile: string, name: string): Secret | null {
    const row = this.#find(profile, name);
    return row === null ? null : this.#describe(row);
  }

  #find(profile: string, name: string): SecretRow | null {
    const { rows } = this.#options;
    const own = [rows.get(profile, name), rows.get('', name)];
    return own.find((row) => row?.removed === false) ?? null;
  }

  #describe(row: SecretRow): Secret {
    const { profile, name, version, setAt, expiresAt, usedAt } = row;
    const iso = (at: number | null): string | null => (at === null ? null : new Date(at).toISOString());
    return {
      name,
      profile: profile === '' ? null : profile,
      version,
      setAt: new Date(setAt).toISOString(),
      expiresAt: iso(expiresAt),
      lastUsedAt: iso(usedAt),
      state: this.#hasExpired(row) ? 'expired' : this.#open(row) === null ? 'unreadable' : 'usable',
    };
  }

  #hasExpired({ expiresAt }: SecretRow): boolean {
    return expiresAt !== null && expiresAt <= this.#options.now();
  }

  /** Null if it has expired, or its file or the key is missing or damaged. */
  #open(row: SecretRow): Buffer | null {
    const { files, log } = this.#options;
    if (row.file === null || this.#hasExpired(row)) return null;
    try {
      const key = readKey(files.keyFile);
      const sealed = files.read(row.file);
      return key === null || sealed === null ? null : unseal(key, identityOf(row), sealed);
    } catch (error) {
      log.warn('a secret cannot be read', { name: row.name, error });
      return null;
    }
  }

  /** A new key is created only while nothing is sealed with another one. */
  #key(): Buffer {
    const { files, rows } = this.#options;
    const key = readKey(files.keyFile);
    if (key !== null) return key;
    const sealed = rows.all().filter(({ file }) => file !== null);
    if (sealed.length > 0)
      throw new HoldfastError('home_damaged', `The key of the secrets, ${files.keyFile}, is missing`, {
        why: `${sealed.length} secrets were sealed with it`,
        next: 'restore the file from a backup, or remove the secrets with `holdfast secret rm` and set them again',
      });
    return createKey(files.keyFile);
  }

  #recordUse({ profile, name, usedAt }: SecretRow): void {
    const { rows, now, log } = this.#options;
    if (usedAt !== null && now() - usedAt < USE_RECORDED_EVERY_MS) return;
    try {
      rows.recordUse(profile, name, now());
    } catch (error) {
      // A full disk must not keep a secret from being used.
      log.warn('cannot record the use of a secret', { name, error });
    }
  }

  /** Deletes expired values and files without a row. What fails is tried again. */
  #clean(): void {
    clearTimeout(this.#timer);
    if (this.#closed) return;
    const { rows, files, log, now } = this.#options;
    let wait = Number.POSITIVE_INFINITY;
    try {
      for (const row of rows.all()) {
        if (row.file === null || row.expiresAt === null) continue;
        if (this.#hasExpired(row)) rows.forgetFile(row.profile, row.name, { removed: row.removed });
        else wait = Math.min(wait, row.expiresAt - now());
      }
      const named = new Set(rows.all().map(({ file }) => file));
      for (const file of files.list()) if (!named.has(file)) files.destroy(file);
    } catch (error) {
      log.warn('values of secrets could not be deleted; trying again', { error });
      wait = RETRY_MS;
    }
    if (wait === Number.POSITIVE_INFINITY) return;
    this.#timer = setTimeout(() => this.#clean(), Math.min(Math.max(wait, 1), LONGEST_TIMER_MS));
    this.#timer.unref();
  }
}

function identityOf({ profile, name, version }: SecretRow): SecretIdentity {
  return { profile, name, version };
}

function checkValue(value: Buffer): void {
  const refused = (why: string, next: string): HoldfastError =>
    new HoldfastError('invalid_params', 'The secret was not set', { why, next });
  if (value.length < SECRET_LIMITS.minBytes)
    throw refused(
      `it has ${value.length} bytes, and at least ${SECRET_LIMITS.minBytes} are needed to tell it from other words`,
      'use a longer secret',
    );
  if (value.length > SECRET_LIMITS.maxBytes)
    throw refused(`it has more than ${SECRET_LIMITS.maxBytes} bytes`, 'use a shorter secret');
}
