import { closeSync, constants, fstatSync, openSync, readlinkSync } from 'node:fs';
import { Directory, errnoOf } from './directory.ts';
import { systemError } from './file-errors.ts';
import type { Native } from './native.ts';

const { O_DIRECTORY, O_NOFOLLOW } = constants;
/** Linux: a descriptor that only names a file; nothing is opened for reading, and nobody is waited for. */
export const O_PATH = 0o10000000;
/** As many links as the kernel follows. */
const MOST_LINKS = 40;
/** How often a path that is moved about while we look is looked at again. */
const TRIES = 16;
const SLASH = 0x2f;
const DOT = Buffer.from('.');
const DOTS = Buffer.from('..');
/** The workspace's name in the agent's root, where absolute links begin. */
const WORKSPACE_NAME = Buffer.from('workspace');

/** A name in an open folder. `name` is null for the folder itself, which is then the root of the workspace. */
export interface Place extends Disposable {
  readonly directory: Directory;
  readonly name: Buffer | null;
}

/**
 * Finds what paths mean, inside one directory only and whatever is moved or replaced meanwhile: either the kernel
 * resolves beneath the root (openat2), or every step is taken through the descriptor of the step before. Links mean what they mean
 * to the agent, for whom the root of everything holds nothing but `workspace`. Throws the system's errors; a path that leads out is EXDEV.
 */
export class Resolver {
  readonly #root: Directory;
  #native: Pick<Native, 'openBeneath'> | null;

  /** `root` stays the caller's. Without `native`, every path is walked. */
  constructor(root: Directory, native: Pick<Native, 'openBeneath'> | null) {
    this.#root = root;
    this.#native = native;
  }

  /** A descriptor that only names what the path leads to (O_PATH); the caller closes it. */
  open(path: readonly Buffer[], follow: boolean): number {
    const direct = this.#direct(path, follow ? 0 : O_NOFOLLOW);
    if (direct !== null) return direct;
    return this.#retried(() => {
      using place = this.#walk(path, follow);
      const fd = openName(place);
      if (!follow || !fstatSync(fd).isSymbolicLink()) return fd;
      closeSync(fd);
      return null; // a link came after we had looked
    });
  }

  /** The folder that holds the last name of the path, which need not exist. With `follow`, a link there is followed first. */
  parent(path: readonly Buffer[], follow: boolean): Place {
    const name = path.at(-1);
    if (name !== undefined) {
      const fd = this.#direct(path.slice(0, -1), O_DIRECTORY);
      if (fd !== null) {
        const directory = Directory.fromFd(fd);
        try {
          if (!follow || linkText(directory, name) === null) return placeAt(directory, name);
        } catch (error) {
          directory.close();
          throw error;
        }
        directory.close();
      }
    }
    return this.#walk(path, follow);
  }

  /** Null: the kernel cannot do it, or not for this path. */
  #direct(path: readonly Buffer[], flags: number): number | null {
    if (this.#native === null) return null;
    const joined = path.length === 0 ? DOT : joinNames(path);
    for (let tries = 0; tries < TRIES; tries += 1) {
      try {
        return this.#native.openBeneath(this.#root.fd, joined, O_PATH | flags);
      } catch (error) {
        switch (errnoOf(error)) {
          case 'EAGAIN':
            continue;
          case 'EXDEV':
            return null; // an absolute link, or one that goes up and comes back: we know what it means
          case 'ENOSYS':
          case 'E2BIG':
            this.#native = null;
            return null;
          case undefined:
          default:
            throw error;
        }
      }
    }
    return null;
  }

  #retried(look: () => number | null): number {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const found = look();
      if (found !== null) return found;
    }
    throw systemError('EAGAIN', 'open');
  }

  #walk(path: readonly Buffer[], followLast: boolean): Place {
    const todo = [...path].reverse();
    /** Folders on the way from the root, each opened through the one before; empty: in the agent's root, above the workspace. */
    let stack = [Directory.fromFd(openSync(this.#root.selfPath, O_PATH | O_DIRECTORY))];
    let links = 0;
    const up = (): void => {
      stack.pop()?.close();
    };
    try {
      for (;;) {
        const name = todo.pop();
        const here = stack.at(-1);
        if (name === undefined) {
          if (here === undefined) throw systemError('EXDEV', 'open');
          return this.#taken(stack);
        }
        if (name.equals(DOT)) continue;
        if (name.equals(DOTS)) {
          up();
          continue;
        }
        if (here === undefined) {
          if (!name.equals(WORKSPACE_NAME)) throw systemError('EXDEV', 'open');
          stack = [Directory.fromFd(openSync(this.#root.selfPath, O_PATH | O_DIRECTORY))];
          continue;
        }
        const isLast = todo.length === 0;
        if (isLast && !followLast) return this.#taken(stack, name);
        if (!isLast) {
          const next = folder(here, name);
          if (next !== null) {
            stack.push(next);
            continue;
          }
        }
        const text = linkText(here, name);
        if (text === null) {
          if (isLast) return this.#taken(stack, name);
          throw systemError('ENOTDIR', 'open');
        }
        links += 1;
        if (links > MOST_LINKS) throw systemError('ELOOP', 'open');
        if (text[0] === SLASH) while (stack.length > 0) up();
        todo.push(...splitLink(text).reverse());
      }
    } catch (error) {
      for (const open of stack) open.close();
      throw error;
    }
  }

  /** The innermost folder leaves the stack, the others are closed. */
  #taken(stack: Directory[], name: Buffer | null = null): Place {
    const last = stack.pop();
    for (const open of stack.splice(0)) open.close();
    if (last === undefined) throw systemError('EXDEV', 'open');
    return placeAt(last, name);
  }
}

/** What a place names, as a descriptor that only names it; links are not followed. */
export function openName(place: Place): number {
  const { directory, name } = place;
  return openSync(name === null ? directory.selfPath : directory.pathOf(name), O_PATH | O_NOFOLLOW);
}

/** Text of a link; null for what is no link or is not there. */
export function linkText(directory: Directory, name: Buffer): Buffer | null {
  try {
    return readlinkSync(directory.pathOf(name), { encoding: 'buffer' });
  } catch (error) {
    switch (errnoOf(error)) {
      case 'EINVAL':
      case 'ENOENT':
        return null;
      case undefined:
      default:
        throw error;
    }
  }
}

export function placeAt(directory: Directory, name: Buffer | null): Place {
  return { directory, name, [Symbol.dispose]: () => directory.close() };
}

export function joinNames(names: readonly Buffer[]): Buffer {
  const parts = names.flatMap((name, index) => (index === 0 ? [name] : [Buffer.from([SLASH]), name]));
  return Buffer.concat(parts);
}

/** Null when it is there but no folder. */
function folder(directory: Directory, name: Buffer): Directory | null {
  try {
    return Directory.fromFd(openSync(directory.pathOf(name), O_PATH | O_DIRECTORY | O_NOFOLLOW));
  } catch (error) {
    switch (errnoOf(error)) {
      case 'ENOTDIR':
      case 'ELOOP':
        return null;
      case undefined:
      default:
        throw error;
    }
  }
}

/** Names of a link's text. A slash at the end demands a folder, which the dot does as well. */
function splitLink(text: Buffer): Buffer[] {
  const names: Buffer[] = [];
  for (let from = 0; from <= text.length;) {
    const slash = text.indexOf(SLASH, from);
    const end = slash === -1 ? text.length : slash;
    if (end > from) names.push(text.subarray(from, end));
    from = end + 1;
  }
  if (text.at(-1) === SLASH) names.push(DOT);
  return names;
}
