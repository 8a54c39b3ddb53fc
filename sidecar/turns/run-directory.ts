import { randomBytes } from 'node:crypto';
import { lstatSync, mkdirSync, readdirSync, renameSync, unlinkSync } from 'node:fs';
import { TurnIdSchema } from '../../protocol/ids.ts';
import { Directory, errnoOf } from '../files/directory.ts';
import { removeTree } from '../files/remove-tree.ts';

const MOST_LISTED = 10_000;

/** The session's run directory with its folders. The agent can write to all of it. */
export class RunDirectory implements Disposable {
  readonly root: Directory;
  readonly turns: Directory;
  readonly worker: Directory;
  readonly terminals: Directory;

  /** `path` is a mount point. Folders that are missing, or were replaced by something else, are made anew. */
  constructor(path: string) {
    this.root = Directory.at(path);
    this.turns = prepared(this.root, 'turns');
    this.worker = prepared(this.root, 'worker');
    this.terminals = prepared(this.root, 'terminals');
  }

  /** Ids of the turns there are. */
  list(): string[] {
    return readdirSync(this.turns.self)
      .filter((name) => TurnIdSchema.safeParse(name).success)
      .slice(0, MOST_LISTED);
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
      for (const name of readdirSync(directory.self).filter((one) => pattern.test(one)))
        discard(directory, name);
    }
  }

  #setAside(directory: Directory, name: string): void {
    const aside = setAside(directory, name);
    if (aside !== null) discard(directory, aside);
  }

  close(): void {
    this.turns.close();
    this.worker.close();
    this.terminals.close();
    this.root.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function prepared(root: Directory, name: string): Directory {
  for (let tries = 0; ; tries += 1) {
    try {
      return root.directory(name);
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
    setAside(root, name);
    try {
      mkdirSync(root.path(name), 0o700);
    } catch (error) {
      if (errnoOf(error) !== 'EEXIST') throw error;
    }
  }
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

/** In the background: it may be large. What fails is tried again by the next sweep. */
function discard(parent: Directory, name: string): void {
  removeTree(parent, name).catch((error: unknown) => {
    console.error(`left over in the run directory: ${String(error)}`);
  });
}
