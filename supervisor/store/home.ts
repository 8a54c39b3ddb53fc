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
/** A safe path component: never empty, `.` or `..`, no slash. */
const PATH_PART = /^[A-Za-z0-9][A-Za-z0-9._-]{0,120}$/;
/** SQLite opens no file with a longer real path: 512 bytes minus the 8 of its journal suffix. */
const LONGEST_DATABASE_PATH = 504;
/** The longest database path below a home: a backup that is being written. */
const LONGEST_DATABASE_NAME = '/backups/holdfast-0000-20000101T000000000Z.db.part';
/** Maximum length of a home's real path, in bytes. Everything below the home then fits. */
export const MAX_HOME_PATH_BYTES = LONGEST_DATABASE_PATH - LONGEST_DATABASE_NAME.length;
/** Maximum length of a path component, in bytes, on all Linux file systems. */
const LONGEST_PART = 255;
/** Entries that a folder may have before it becomes a home. */
const OWN_ENTRIES =
  /^(\.|supervisor|holdfast|id$|logs$|workspaces$|homes$|run$|egress$|deploys$|runtime$|artifacts$|promoted$|store$|setups$|backups$|reserve$|secrets$|host-key$|bin$|hosts)/;

/** A session's run directory on this machine. */
export interface RunPaths {
  readonly directory: string;
  /** Mounted in both containers, writable by the agent. */
  readonly agent: string;
  /** Holds the sidecar's socket. */
  readonly control: string;
  /** passwd, group and others, read-only in the containers. */
  readonly etc: string;
}

/** Suffix of a deployed git history, after the version. */
export const GIT_HISTORY_SUFFIX = '.git';

/** Suffix of the configuration that HOME begins with, after the version. */
export const CONFIGURATION_SUFFIX = '.home';

/** Suffix of the record of where a version comes from. */
export const SOURCE_RECORD_SUFFIX = '.source.jsonl';

/** The folder of one installation; only its owner has access. */
export class Home {
  readonly root: string;
  /** 26 characters of lower-case base32; the value of the label that marks our objects on an engine. */
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
  /** The HOME of each session's agent. */
  readonly agentHomes: string;
  readonly runs: string;
  readonly deploys: string;
  /** Projects that clients are sending; on the file system of `deploys`, so that publishing is a rename. */
  readonly uploads: string;
  readonly runtimes: string;
  readonly artifacts: string;
  /** Results that people keep, whatever becomes of their sessions. */
  readonly promoted: string;
  /** Snapshot objects, one folder per lineage. */
  readonly store: string;
  /** The output of setups. */
  readonly setups: string;
  readonly backups: string;
  /** Sealed values of secrets, and their key. */
  readonly secrets: string;
  /** The key that signs manifests. */
  readonly hostKey: string;
  /** A file that reserves space for operations that must work on a full disk. */
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
    this.agentHomes = join(root, 'homes');
    this.runs = join(root, 'run');
    this.deploys = join(root, 'deploys');
    // No profile has a name with a dot at its start.
    this.uploads = join(this.deploys, '.uploads');
    this.runtimes = join(root, 'runtime');
    this.artifacts = join(root, 'artifacts');
    this.promoted = join(root, 'promoted');
    this.store = join(root, 'store');
    this.setups = join(root, 'setups');
    this.backups = join(root, 'backups');
    this.secrets = join(root, 'secrets');
    this.hostKey = join(root, 'host-key');
    this.reserve = join(root, 'reserve');
    this.id = readOrMakeId(this.idFile);
    this.#identity = identityOf(statSync(root, { bigint: true }));
  }

  /**
   * Opens the home at `root` and creates what is missing; idempotent.
   * Errors: `path_too_long` (nothing was created), `home_damaged` (not a directory, not ours, writable by others, or
   * a folder with other content), `no_space`, `permission_denied`.
   */
  static open(root: string): Home {
    const path = resolve(root);
    requireShortPath(path);
    try {
      makeFolder(path);
      checkRoot(path);
      const home = new Home(path);
      const inside = [
        home.logs,
        home.workspaces,
        home.agentHomes,
        home.runs,
        home.deploys,
        home.runtimes,
        home.artifacts,
        home.promoted,
        home.store,
        home.setups,
        home.backups,
        home.secrets,
      ];
      for (const directory of inside) mkdirSync(directory, { recursive: true, mode: 0o700 });
      return home;
    } catch (error) {
      if (hasErrorCode(error, 'EEXIST') || hasErrorCode(error, 'ENOTDIR')) {
        throw new HoldfastError('home_damaged', `The home ${path} cannot be used`, {
          why: 'it, or a part of it, is not a directory',
          next: 'set HOLDFAST_HOME to another directory',
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

  /** The git history of a version, outside the code folder that sandboxes mount. */
  deployedGitHistory(profile: string, version: number): string {
    return `${this.deploy(profile, version)}${GIT_HISTORY_SUFFIX}`;
  }

  /** What HOME begins with, outside the code folder that sandboxes mount. */
  deployedConfiguration(profile: string, version: number): string {
    return `${this.deploy(profile, version)}${CONFIGURATION_SUFFIX}`;
  }

  /** Where a version comes from, beside its code. */
  deployedSource(profile: string, version: number): string {
    return `${this.deploy(profile, version)}${SOURCE_RECORD_SUFFIX}`;
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

  promotedArtifact(id: string): string {
    return join(this.promoted, part(id));
  }

  setupLog(id: string): string {
    return join(this.setups, `${part(id)}.log`);
  }

  lineage(lineage: string): string {
    return join(this.store, part(lineage));
  }

  /**
   * False once the folder is gone or another one has its path. Unknown counts as present, because on false the
   * supervisor removes its containers.
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

/** Checked before anything is created: later opens below the home would fail one by one. */
function requireShortPath(path: string): void {
  const refused = (why: string): HoldfastError =>
    new HoldfastError('path_too_long', 'The path of the home is too long', {
      why,
      next: 'set HOLDFAST_HOME to a shorter path',
      details: { home: path, longest: MAX_HOME_PATH_BYTES },
    });
  const parts = path.split('/');
  if (parts.some((part) => Buffer.byteLength(part) > LONGEST_PART))
    throw refused(`a component of it has more than ${LONGEST_PART} bytes: ${path}`);
  for (const one of [path, realPath(path)]) {
    const bytes = Buffer.byteLength(one);
    if (bytes > MAX_HOME_PATH_BYTES)
      throw refused(
        `it has ${bytes} bytes, and a database can be opened below at most ${MAX_HOME_PATH_BYTES}: ${one}`,
      );
  }
}

/** Resolves symbolic links of the part that exists. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(realPath(parent), basename(path));
  }
}

/** Not with `recursive`, which never returns where the parent exists but refuses folders (/proc). */
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

/** Includes the birth time, because an inode number may be reused. */
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
      `it belongs to user ${stats.uid}, and this program runs as user ${uid}`,
      `run as its owner, or set HOLDFAST_HOME to a directory of your own`,
    );
  }
  if ((stats.mode & 0o022) !== 0) {
    throw damaged('its group or others can write to it', `run: chmod 700 ${shellQuoted(path)}`);
  }
  const entries = readdirSync(path);
  if (!entries.includes('id')) {
    // `purge` deletes a home as a whole, so it must never be a folder with other content.
    const foreign = entries.find((entry) => !OWN_ENTRIES.test(entry));
    if (foreign !== undefined) {
      throw damaged(
        `it already has other content, such as ${JSON.stringify(foreign)}`,
        'set HOLDFAST_HOME to an empty or new directory',
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
        next: 'restore the file from a backup; it identifies the containers of this home on the engine',
      });
    } catch (error) {
      if (!hasErrorCode(error, 'ENOENT')) throw error;
    }
    publishId(file);
  }
}

/** Two processes may get here at once: the first link wins, and both use that id. */
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

/** Makes changes to the entries of a directory durable. */
export function syncDirectory(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
