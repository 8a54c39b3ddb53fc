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

const MAX_LISTED = 10_000;
/** A full file system may still report a few free blocks. */
const FULL_BYTES = 64 * 1024;
const OWNER_ALL = 0o700;
const FOLDERS = ['turns', 'worker', 'terminals', 'processes', 'attachments'] as const;
type Folder = (typeof FOLDERS)[number];

/** The session's run directory and its subdirectories. The agent can write to all of it. */
export class RunDirectory implements Disposable {
  readonly root: Directory;
  readonly #folders: Record<Folder, Directory>;
  /** Removals in the background, one after the other. */
  #removals: Promise<void> = Promise.resolve();

  /** `path` is a mount point. Missing or replaced subdirectories are created again. */
  constructor(path: string) {
    this.root = openMountPoint(path);
    restoreMode(this.root);
    this.#folders = {
      turns: this.#prepare('turns'),
      worker: this.#prepare('worker'),
      terminals: this.#prepare('terminals'),
      processes: this.#prepare('processes'),
      attachments: this.#prepare('attachments'),
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

  get processes(): Directory {
    return this.#folders.processes;
  }

  /** Files that prompts bring along, in a directory for each turn. */
  get attachments(): Directory {
    return this.#folders.attachments;
  }

  /**
   * Ensures that the agent's processes find our directories under their names and can use them. A directory that was
   * removed or replaced is created again, empty.
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
      // Only after its pending removals: the descriptor number could be reused for another directory.
      this.#removals = this.#removals.then(() => open.close());
    }
  }

  /** Whether the turn's name still leads to this directory. */
  hasTurn(turnId: string, directory: Directory): boolean {
    return this.#leadsTo('turns', turnId, directory);
  }

  hasProcess(processId: string, directory: Directory): boolean {
    return this.#leadsTo('processes', processId, directory);
  }

  #leadsTo(folder: Folder, name: string, directory: Directory): boolean {
    const parent = this.#folders[folder];
    restoreMode(this.root);
    if (!isNamed(this.root, folder, parent)) return false;
    restoreMode(parent);
    if (!isNamed(parent, name, directory)) return false;
    restoreMode(directory);
    return true;
  }

  /** Whether its disk has almost no free space. */
  isFull(): boolean {
    const { bavail, bsize } = statfsSync(this.root.selfPath);
    return bavail * bsize < FULL_BYTES;
  }

  /** Ids of all turns in the run directory. */
  list(): string[] {
    this.repair();
    return names(this.turns, (name) => TurnIdSchema.safeParse(name).success);
  }

  /** Ids of turns that have attachments. */
  listAttachments(): string[] {
    return names(this.attachments, (name) => TurnIdSchema.safeParse(name).success);
  }

  /** Frees the turn's name at once, and removes its content in the background. */
  remove(turnId: string): void {
    this.#moveAside(this.turns, turnId);
  }

  removeTerminal(terminalId: string): void {
    this.#moveAside(this.terminals, terminalId);
  }

  removeProcess(processId: string): void {
    this.#moveAside(this.processes, processId);
  }

  removeAttachments(turnId: string): void {
    this.#moveAside(this.attachments, turnId);
  }

  /** Removes what an earlier sidecar had only moved aside, or had not finished creating. */
  sweep(): void {
    for (const [directory, pattern] of [
      [this.turns, /^(new|gone)-/],
      [this.terminals, /^(new|gone)-/],
      [this.processes, /^(new|gone)-/],
      [this.attachments, /^gone-/],
      [this.root, /^(?:gone-|manifest-[0-9a-f]{16}\.tmp$)/],
    ] as const) {
      for (const name of names(directory, (one) => pattern.test(one))) this.#discard(directory, name);
    }
  }

  #moveAside(directory: Directory, name: string): void {
    const aside = moveAside(directory, name);
    if (aside !== null) this.#discard(directory, aside);
  }

  /** Removes in the background, because the tree may be large. A failure is retried by the next sweep. */
  #discard(parent: Directory, name: string): void {
    this.#removals = this.#removals
      .then(() => removeTree(parent, name))
      .then(
        () => undefined,
        (error: unknown) => console.error(`The run directory could not be cleaned up: ${String(error)}`),
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
      this.#moveAside(this.root, name);
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

/** The agent may have removed our own right to open it. */
function openMountPoint(path: string): Directory {
  try {
    return Directory.open(path);
  } catch (error) {
    if (errnoOf(error) !== 'EACCES') throw error;
    chmodSync(path, OWNER_ALL);
    return Directory.open(path);
  }
}

/** Restores access for the sidecar and for the agent's processes, which have the same uid. */
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

/** Matching names in a directory, at most MAX_LISTED: the agent can create any number. */
function names(directory: Directory, fits: (name: string) => boolean): string[] {
  const found: string[] = [];
  const entries = opendirSync(directory.selfPath);
  try {
    for (let entry = entries.readSync(); entry !== null; entry = entries.readSync()) {
      if (fits(entry.name)) found.push(entry.name);
      if (found.length === MAX_LISTED) break;
    }
  } finally {
    entries.closeSync();
  }
  return found;
}

/** Frees a name. Returns the new name of a directory that was moved aside. */
function moveAside(directory: Directory, name: string): string | null {
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
