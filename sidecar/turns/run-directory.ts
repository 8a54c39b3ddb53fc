import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  fchmodSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  opendirSync,
  renameSync,
  statfsSync,
  unlinkSync,
} from 'node:fs';
import { TurnIdSchema } from '../../protocol/ids.ts';
import { Directory, errnoOf, isPathError } from '../files/directory.ts';
import { removeTree } from '../files/remove-tree.ts';

const MOST_LISTED = 10_000;
/** A file system that is full may still claim a few blocks. */
const FULL_BYTES = 64 * 1024;
const OWNER_ALL = 0o700;
const FOLDERS = ['turns', 'worker', 'terminals'] as const;
type Folder = (typeof FOLDERS)[number];

/** The session's run directory with its folders. The agent can write to all of it. */
export class RunDirectory implements Disposable {
  readonly root: Directory;
  readonly #folders: Record<Folder, Directory>;
  /** What is being removed, one after the other. */
  #removals: Promise<void> = Promise.resolve();

  /** `path` is a mount point. Folders that are missing, or were replaced by something else, are made anew. */
  constructor(path: string) {
    this.root = openMountPoint(path);
    restoreMode(this.root);
    this.#folders = {
      turns: this.#prepare('turns'),
      worker: this.#prepare('worker'),
      terminals: this.#prepare('terminals'),
    };
  }

  get turns(): Directory {
    return this.#folders.turns;
  }

  get worker(): Directory {
    return this.#folders.worker;
  }

  get terminals(): Directory {
    return this.#folders.terminals;
  }

  /**
   * Makes sure that the agent's processes find our folders under their names and can use them: what was removed or replaced
   * is made anew, empty.
   */
  repair(): void {
    restoreMode(this.root);
    for (const name of FOLDERS) {
      const open = this.#folders[name];
      if (isNamed(this.root, name, open)) {
        restoreMode(open);
        continue;
      }
      this.#folders[name] = this.#prepare(name);
      // Not before what is removed in there is gone: its descriptor could come to name another folder.
      this.#removals = this.#removals.then(() => open.close());
    }
  }

  /** Whether the agent's processes find this directory as the one of the turn. */
  hasTurn(turnId: string, directory: Directory): boolean {
    restoreMode(this.root);
    if (!isNamed(this.root, 'turns', this.turns)) return false;
    restoreMode(this.turns);
    if (!isNamed(this.turns, turnId, directory)) return false;
    restoreMode(directory);
    return true;
  }

  /** Whether its disk has next to no room. */
  isFull(): boolean {
    const { bavail, bsize } = statfsSync(this.root.selfPath);
    return bavail * bsize < FULL_BYTES;
  }

  /** Ids of the turns there are. */
  list(): string[] {
    this.repair();
    return names(this.turns, (name) => TurnIdSchema.safeParse(name).success);
  }

  /** Takes a turn's directory away: at once under its name, its content in the background. */
  remove(turnId: string): void {
    this.#setAside(this.turns, turnId);
  }

  removeTerminal(terminalId: string): void {
    this.#setAside(this.terminals, terminalId);
  }

  /** Removes what an earlier sidecar had only set aside, or had not finished making. */
  sweep(): void {
    for (const [directory, pattern] of [
      [this.turns, /^(new|gone)-/],
      [this.terminals, /^(new|gone)-/],
      [this.root, /^gone-/],
    ] as const) {
      for (const name of names(directory, (one) => pattern.test(one))) this.#discard(directory, name);
    }
  }

  #setAside(directory: Directory, name: string): void {
    const aside = setAside(directory, name);
    if (aside !== null) this.#discard(directory, aside);
  }

  /** In the background: it may be large. What fails is tried again by the next sweep. */
  #discard(parent: Directory, name: string): void {
    this.#removals = this.#removals
      .then(() => removeTree(parent, name))
      .then(
        () => undefined,
        (error: unknown) => console.error(`left over in the run directory: ${String(error)}`),
      );
  }

  #prepare(name: Folder): Directory {
    for (let tries = 0; ; tries += 1) {
      try {
        const directory = this.root.openDirectory(name);
        restoreMode(directory);
        return directory;
      } catch (error) {
        if (tries === 5) throw error;
        switch (errnoOf(error)) {
          case 'ENOENT':
          case 'ENOTDIR':
          case 'ELOOP':
          case 'EACCES':
            break;
          case undefined:
          default:
            throw error;
        }
      }
      this.#setAside(this.root, name);
      try {
        mkdirSync(this.root.path(name), OWNER_ALL);
      } catch (error) {
        if (errnoOf(error) !== 'EEXIST') throw error;
      }
    }
  }

  close(): void {
    for (const name of FOLDERS) this.#folders[name].close();
    this.root.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** The agent may have taken our own right to open it. */
function openMountPoint(path: string): Directory {
  try {
    return Directory.open(path);
  } catch (error) {
    if (errnoOf(error) !== 'EACCES') throw error;
    chmodSync(path, OWNER_ALL);
    return Directory.open(path);
  }
}

/** Gives us and the agent's processes, which are of our uid, the use of a folder again. */
function restoreMode(directory: Directory): void {
  if ((fstatSync(directory.fd).mode & OWNER_ALL) !== OWNER_ALL) fchmodSync(directory.fd, OWNER_ALL);
}

function isNamed(parent: Directory, name: string, directory: Directory): boolean {
  try {
    const named = lstatSync(parent.path(name), { bigint: true });
    const ours = fstatSync(directory.fd, { bigint: true });
    return named.ino === ours.ino && named.dev === ours.dev;
  } catch (error) {
    if (isPathError(error)) return false;
    throw error;
  }
}

/** Names in a folder, of which the agent can make any number. */
function names(directory: Directory, fits: (name: string) => boolean): string[] {
  const found: string[] = [];
  const entries = opendirSync(directory.selfPath);
  try {
    for (let entry = entries.readSync(); entry !== null; entry = entries.readSync()) {
      if (fits(entry.name)) found.push(entry.name);
      if (found.length === MOST_LISTED) break;
    }
  } finally {
    entries.closeSync();
  }
  return found;
}

/** Frees a name. Returns the new name of a folder that has something in it. */
function setAside(directory: Directory, name: string): string | null {
  try {
    if (!lstatSync(directory.path(name)).isDirectory()) {
      unlinkSync(directory.path(name));
      return null;
    }
    const aside = `gone-${randomBytes(8).toString('hex')}`;
    renameSync(directory.path(name), directory.path(aside));
    return aside;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null;
    throw error;
  }
}
