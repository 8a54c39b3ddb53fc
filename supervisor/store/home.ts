import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import type { BigIntStats } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { homePaths } from '../../protocol/home.ts';
import { hasErrorCode, storageError } from './storage-error.ts';

const ID = /^[a-z2-7]{26}$/;
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';
/** Becomes one part of a path: never empty, never `.` or `..`, no slash. */
const PATH_PART = /^[A-Za-z0-9][A-Za-z0-9._-]{0,120}$/;
/** SQLite opens no file whose real path is longer: 512 bytes with the 8 that it adds for its journal. */
const LONGEST_DATABASE_PATH = 504;
/** The longest path of a database below a home: a backup that is being written. */
const LONGEST_DATABASE_NAME = '/backups/holdfast-0000-20000101T000000000Z.db.part';
/** Bytes of a home's path, links resolved. Everything else below it has room. */
export const MAX_HOME_PATH_BYTES = LONGEST_DATABASE_PATH - LONGEST_DATABASE_NAME.length;
/** Bytes of one part of a path, on every file system that Linux knows. */
const LONGEST_PART = 255;
/** What may lie in a folder that is about to become a home. */
const OURS =
  /^(\.|supervisor|holdfast|id$|logs$|workspaces$|run$|deploys$|runtime$|artifacts$|store$|backups$|reserve$)/;

/** A session's run directory on this machine, by part. */
export interface RunPaths {
  readonly directory: string;
  /** Shared by both containers, writable by the agent. */
  readonly agent: string;
  /** The sidecar's socket. */
  readonly control: string;
  /** passwd, group and the like, read-only in the containers. */
  readonly etc: string;
}

/** What the name of a deployed history ends with, behind the version. */
export const GIT_HISTORY_SUFFIX = '.git';

/** The folder of one installation. Everything in it is the owner's alone. */
export class Home {
  readonly root: string;
  /** 26 characters of lower-case base32; the value of the label that marks what is ours on an engine. */
  readonly id: string;
  readonly idFile: string;
  readonly database: string;
  readonly lock: string;
  readonly holder: string;
  readonly socket: string;
  readonly socketDirectory: string;
  readonly logs: string;
  readonly logFile: string;
  readonly workspaces: string;
  readonly runs: string;
  readonly deploys: string;
  readonly runtimes: string;
  readonly artifacts: string;
  /** What snapshots are made of, a folder for each lineage. */
  readonly store: string;
  readonly backups: string;
  /** Space kept for what must work on a full disk. */
  readonly reserve: string;
  readonly #identity: string;

  private constructor(root: string) {
    const visible = homePaths(root);
    this.root = root;
    this.idFile = visible.id;
    this.lock = visible.lock;
    this.holder = visible.holder;
    this.socket = visible.socket;
    this.socketDirectory = root;
    this.logs = visible.logs;
    this.logFile = visible.log;
    this.database = join(root, 'holdfast.db');
    this.workspaces = join(root, 'workspaces');
    this.runs = join(root, 'run');
    this.deploys = join(root, 'deploys');
    this.runtimes = join(root, 'runtime');
    this.artifacts = join(root, 'artifacts');
    this.store = join(root, 'store');
    this.backups = join(root, 'backups');
    this.reserve = join(root, 'reserve');
    this.id = readOrMakeId(this.idFile);
    this.#identity = identityOf(statSync(root, { bigint: true }));
  }

  /**
   * Opens the home at `root`, making what is missing; doing so twice changes nothing.
   * Errors: `path_too_long` (nothing was made), `home_damaged` (not a directory, not ours, writable by others, or a folder of
   * something else), `no_space`, `permission_denied`.
   */
  static open(root: string): Home {
    const path = resolve(root);
    requireRoom(path);
    try {
      makeFolder(path);
      checkRoot(path);
      const home = new Home(path);
      const inside = [
        home.logs,
        home.workspaces,
        home.runs,
        home.deploys,
        home.runtimes,
        home.artifacts,
        home.store,
        home.backups,
      ];
      for (const directory of inside) mkdirSync(directory, { recursive: true, mode: 0o700 });
      return home;
    } catch (error) {
      if (hasErrorCode(error, 'EEXIST') || hasErrorCode(error, 'ENOTDIR')) {
        throw new HoldfastError('home_damaged', `The home ${path} cannot be used`, {
          why: 'it, or a part of it, is not a directory',
          next: 'name another directory in HOLDFAST_HOME',
          cause: error,
        });
      }
      throw storageError(error, `The home ${path} could not be opened`);
    }
  }

  workspace(sessionId: string): string {
    return join(this.workspaces, part(sessionId));
  }

  run(sessionId: string): RunPaths {
    const directory = join(this.runs, part(sessionId));
    return {
      directory,
      agent: join(directory, 'agent'),
      control: join(directory, 'control'),
      etc: join(directory, 'etc'),
    };
  }

  deploy(profile: string, version: number): string {
    return join(this.deploys, part(profile), part(String(version)));
  }

  /** Git history of the version, beside its code: sandboxes mount the code. */
  deployedGitHistory(profile: string, version: number): string {
    return `${this.deploy(profile, version)}${GIT_HISTORY_SUFFIX}`;
  }

  runtime(hash: string): string {
    return join(this.runtimes, part(hash));
  }

  artifactsDirectory(sessionId: string): string {
    return join(this.artifacts, part(sessionId));
  }

  artifact(sessionId: string, name: string): string {
    return join(this.artifactsDirectory(sessionId), part(name));
  }

  lineage(lineage: string): string {
    return join(this.store, part(lineage));
  }

  /**
   * False once the folder is gone or another one stands in its place. What cannot be told counts as still there:
   * the answer false makes the supervisor take its containers away.
   */
  isPresent(): boolean {
    try {
      if (identityOf(statSync(this.root, { bigint: true })) !== this.#identity) return false;
      return readFileSync(this.idFile, 'utf8').trim() === this.id;
    } catch (error) {
      return !(hasErrorCode(error, 'ENOENT') || hasErrorCode(error, 'ENOTDIR'));
    }
  }
}

/** Before anything is made: what has to be opened below it later would fail one by one. */
function requireRoom(path: string): void {
  const refused = (why: string): HoldfastError =>
    new HoldfastError('path_too_long', 'The path of the home is too long', {
      why,
      next: 'name a shorter one in HOLDFAST_HOME',
      details: { home: path, longest: MAX_HOME_PATH_BYTES },
    });
  const parts = path.split('/');
  if (parts.some((part) => Buffer.byteLength(part) > LONGEST_PART))
    throw refused(`one part of it has more than ${LONGEST_PART} bytes: ${path}`);
  for (const one of [path, realPath(path)]) {
    const bytes = Buffer.byteLength(one);
    if (bytes > MAX_HOME_PATH_BYTES)
      throw refused(
        `it has ${bytes} bytes, and ${MAX_HOME_PATH_BYTES} are the most that a database can be below: ${one}`,
      );
  }
}

/** With links resolved as far as there is something. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(realPath(parent), basename(path));
  }
}

/** Not by `recursive`, which never returns where a parent is there and takes no folders (/proc). */
function makeFolder(path: string): void {
  if (existsSync(path)) return;
  const parent = dirname(path);
  if (parent !== path) makeFolder(parent);
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if (!hasErrorCode(error, 'EEXIST')) throw error;
  }
}

function part(text: string): string {
  if (!PATH_PART.test(text)) {
    throw new HoldfastError('internal', `${JSON.stringify(text)} cannot be part of a path in the home`);
  }
  return text;
}

/** An inode number alone may be given to the next folder, hence the time of birth. */
function identityOf(stats: BigIntStats): string {
  return `${stats.dev}:${stats.ino}:${stats.birthtimeNs}`;
}

function checkRoot(path: string): void {
  const damaged = (why: string, next: string): HoldfastError =>
    new HoldfastError('home_damaged', `The home ${path} cannot be used`, { why, next });
  const stats = statSync(path);
  const uid = process.getuid?.();
  if (uid !== undefined && stats.uid !== uid) {
    throw damaged(
      `it belongs to user ${stats.uid} and this program runs as user ${uid}`,
      `run as its owner, or name a directory of your own in HOLDFAST_HOME`,
    );
  }
  if ((stats.mode & 0o022) !== 0) {
    throw damaged('its group or others may write to it', `run: chmod 700 ${shellQuoted(path)}`);
  }
  const entries = readdirSync(path);
  if (!entries.includes('id')) {
    // A home is removed as a whole one day, so it must never be somebody's folder of other things.
    const foreign = entries.find((entry) => !OURS.test(entry));
    if (foreign !== undefined) {
      throw damaged(
        `it holds other things already, such as ${JSON.stringify(foreign)}`,
        'name an empty or a new directory in HOLDFAST_HOME',
      );
    }
  }
  if ((stats.mode & 0o077) !== 0) chmodSync(path, 0o700);
}

function shellQuoted(path: string): string {
  return `'${path.replaceAll("'", "'\\''")}'`;
}

function readOrMakeId(file: string): string {
  for (;;) {
    try {
      const id = readFileSync(file, 'utf8').trim();
      if (ID.test(id)) return id;
      throw new HoldfastError('home_damaged', `The id of this home cannot be read from ${file}`, {
        why: 'it is not 26 characters of lower-case base32',
        next: 'put back the file from a backup; what runs on the engine is found by it',
      });
    } catch (error) {
      if (!hasErrorCode(error, 'ENOENT')) throw error;
    }
    publishId(file);
  }
}

/** Two programs may get here at once: the first link wins, and both go on with that one. */
function publishId(file: string): void {
  const temporary = join(file, '..', `.${basename(file)}.${process.pid}.${randomBytes(4).toString('hex')}`);
  const letters = Array.from(randomBytes(26), (byte) => ALPHABET.charAt(byte & 31));
  const descriptor = openSync(temporary, 'wx', 0o600);
  try {
    writeSync(descriptor, `${letters.join('')}\n`);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  try {
    linkSync(temporary, file);
  } catch (error) {
    if (hasErrorCode(error, 'EEXIST')) return;
    // Some file systems have no hard links.
    renameSync(temporary, file);
  } finally {
    rmSync(temporary, { force: true });
  }
  syncDirectory(join(file, '..'));
}

/** Makes names that were added to or removed from a directory durable. */
export function syncDirectory(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
