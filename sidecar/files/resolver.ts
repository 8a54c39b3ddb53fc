import { closeSync, constants, fstatSync, openSync, readlinkSync } from 'node:fs';
import { Directory, errnoOf } from './directory.ts';
import { systemError } from './file-errors.ts';
import type { Native } from './native.ts';

const { O_DIRECTORY, O_NOFOLLOW } = constants;
/** Linux: the descriptor only names the file. Opening it reads nothing and never blocks. */
export const O_PATH = 0o10000000;
/** The kernel's own limit. */
const MAX_LINKS = 40;
/** How often a path that changes during resolution is tried again. */
const TRIES = 16;
const SLASH = 0x2f;
const DOT = Buffer.from('.');
const DOTS = Buffer.from('..');
/** Name of the workspace in the agent's root, where absolute links start. */
const WORKSPACE_NAME = Buffer.from('workspace');

/** A name in an open directory. `name` is null for the directory itself, which is then the workspace's root. */
export interface Place extends Disposable {
  readonly directory: Directory;
  readonly name: Buffer | null;
}

/**
 * Resolves paths inside one directory, whatever is moved or replaced meanwhile. Either the kernel resolves them beneath
 * the root (openat2), or each step goes through the descriptor of the last. Links are resolved as the agent sees them:
 * its root directory holds only `workspace`. Errors: those of the system; EXDEV for a path that leads out.
 */
export class Resolver {
  readonly #root: Directory;
  #native: Pick<Native, 'openBeneath'> | null;

  /** The caller owns `root`. Without `native`, every path is resolved step by step. */
  constructor(root: Directory, native: Pick<Native, 'openBeneath'> | null) {
    this.#root = root;
    this.#native = native;
  }

  /** An O_PATH descriptor of what the path leads to. The caller closes it. */
  open(path: readonly Buffer[], follow: boolean): number {
    const direct = this.#openBeneath(path, follow ? 0 : O_NOFOLLOW);
    if (direct !== null) return direct;
    return this.#retry(() => {
      using place = this.#walk(path, follow);
      const fd = openName(place);
      if (!follow || !fstatSync(fd).isSymbolicLink()) return fd;
      closeSync(fd);
      return null; // It became a link after the check.
    });
  }

  /**
   * The directory of the path's last name, which need not exist. With `follow`, a link at that name is followed first.
   */
  parent(path: readonly Buffer[], follow: boolean): Place {
    const name = path.at(-1);
    if (name !== undefined) {
      const fd = this.#openBeneath(path.slice(0, -1), O_DIRECTORY);
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

  /** Null if the kernel cannot resolve this path. */
  #openBeneath(path: readonly Buffer[], flags: number): number | null {
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
            return null; // An absolute link, or one that leaves and comes back. The walk resolves it.
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

  #retry(attempt: () => number | null): number {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const found = attempt();
      if (found !== null) return found;
    }
    throw systemError('EAGAIN', 'open');
  }

  #walk(path: readonly Buffer[], followLast: boolean): Place {
    const todo = [...path].reverse();
    /** Open directories from the root down. If empty, the walk is in the agent's root, above the workspace. */
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
          return this.#detachPlace(stack);
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
        if (isLast && !followLast) return this.#detachPlace(stack, name);
        if (!isLast) {
          const next = folder(here, name);
          if (next !== null) {
            stack.push(next);
            continue;
          }
        }
        const text = linkText(here, name);
        if (text === null) {
          if (isLast) return this.#detachPlace(stack, name);
          throw systemError('ENOTDIR', 'open');
        }
        links += 1;
        if (links > MAX_LINKS) throw systemError('ELOOP', 'open');
        if (text[0] === SLASH) while (stack.length > 0) up();
        todo.push(...splitLink(text).reverse());
      }
    } catch (error) {
      for (const open of stack) open.close();
      throw error;
    }
  }

  /** Keeps the innermost directory and closes the others. */
  #detachPlace(stack: Directory[], name: Buffer | null = null): Place {
    const last = stack.pop();
    for (const open of stack.splice(0)) open.close();
    if (last === undefined) throw systemError('EXDEV', 'open');
    return placeAt(last, name);
  }
}

/** An O_PATH descriptor of a place. A link is not followed. */
export function openName(place: Place): number {
  const { directory, name } = place;
  return openSync(name === null ? directory.selfPath : directory.pathOf(name), O_PATH | O_NOFOLLOW);
}

/** The target of a link. Null if the name is missing or not a link. */
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

/** Null if it exists but is not a directory. */
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

/** The names in a link target. A trailing slash demands a directory, and so does a final dot. */
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
