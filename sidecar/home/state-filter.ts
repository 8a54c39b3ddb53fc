import { lstatSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { Directory, isPathError } from '../files/directory.ts';
import { grantOwnerAccessByFd } from '../files/remove-tree.ts';
import type { CachedDirectory } from '../snapshots/cached-directory.ts';
import type { TreeFilter } from '../snapshots/tree-filter.ts';
import { IN_SANDBOX } from '../wire.ts';
import { type Kept, keptNames } from './prepare.ts';

export interface StateScope {
  /** Paths below HOME that are scanned; null: all of it. */
  readonly paths: readonly string[] | null;
  /** Paths below HOME that are left out. */
  readonly except?: readonly string[] | undefined;
  /** Files with which an agent signs in, as paths below HOME. */
  readonly signIn: readonly string[];
}

/**
 * Of HOME only the agent's state, or all but some paths, and never its sign-in files. These are hidden by path, by inode (hard links), and by
 * name anywhere in the state, with suffixes that programs add while they replace a file. A copy under another name is an
 * ordinary file.
 */
export class StateFilter implements TreeFilter {
  readonly #kept: Kept | null;
  readonly #except: Kept;
  readonly #signIn: readonly string[];
  readonly #signInNames: readonly Buffer[];
  #signInInodes = new Set<bigint>();

  constructor({ paths, except = [], signIn }: StateScope) {
    this.#kept = paths === null ? null : keptNames(paths);
    this.#except = keptNames(except);
    this.#signIn = signIn;
    this.#signInNames = [...new Set(signIn.map((path) => path.slice(path.lastIndexOf('/') + 1)))].map(
      (name) => Buffer.from(name),
    );
  }

  prepare(root: number): void {
    // The agent may have removed its own rights. HOME's mode is not part of the tree.
    grantOwnerAccessByFd(root);
    this.#signInInodes = new Set();
    for (const path of this.#signIn) {
      const inode = inodeOf(root, path.split('/'));
      if (inode !== null) this.#signInInodes.add(inode);
    }
  }

  hiddenIn(directory: CachedDirectory): (name: Buffer, inode: bigint) => boolean {
    const kept = below(this.#kept, directory);
    const except = below(this.#except, directory);
    return (name, inode) => {
      const key = name.toString('latin1');
      if (kept !== null && !kept.has(key)) return true;
      if (except?.get(key) === null) return true;
      return this.#signInInodes.has(inode) || this.#signInNames.some((one) => isNamedAfter(name, one));
    };
  }

  isOnlyOnTheWay(directory: CachedDirectory): boolean {
    return below(this.#kept, directory) !== null || directory.path().length === 0;
  }
}

/** What is named in a directory; null: nothing, or all of it. */
function below(names: Kept | null, directory: CachedDirectory): Kept | null {
  let level = names;
  for (const name of directory.path()) {
    if (level === null) return null;
    level = level.get(name.toString('latin1')) ?? null;
  }
  return level;
}

/** `auth.json`, and what is written beside it while it is replaced: `auth.json.tmp`, `auth.json~`, `.auth.json.swp`. */
function isNamedAfter(name: Buffer, signIn: Buffer): boolean {
  const at = name.indexOf(signIn);
  if (at !== 0 && !(at === 1 && name[0] === DOT)) return false;
  const next = name[at + signIn.length];
  return next === undefined || next === DOT || next === TILDE || next === DASH;
}
const DOT = 0x2e;
const TILDE = 0x7e;
const DASH = 0x2d;

/** Null if there is no such file. Follows no link. */
function inodeOf(root: number, names: readonly string[]): bigint | null {
  let directory: Directory | null = null;
  try {
    for (const [index, name] of names.entries()) {
      const path = directory === null ? `/proc/self/fd/${root}/${name}` : directory.path(name);
      if (index === names.length - 1) {
        const stat = lstatSync(path, { bigint: true });
        return stat.isFile() ? stat.ino : null;
      }
      const below = Directory.open(path);
      directory?.close();
      directory = below;
    }
    return null;
  } catch (error) {
    if (isPathError(error)) return null;
    throw error;
  } finally {
    directory?.close();
  }
}

const WORKSPACE_PREFIX = /^\/workspace(?=\/|$|[ ,:])/;

/** Runs a scan or a restore of HOME, whose paths it names as if it were the workspace, and corrects what it reports. */
export async function inHome<T extends object>(act: () => Promise<T>): Promise<T> {
  try {
    const result = await act();
    if (!('missingPaths' in result) || !Array.isArray(result.missingPaths)) return result;
    return { ...result, missingPaths: result.missingPaths.map((path) => renamed(String(path))) };
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    const { code, message, why, next, details } = error;
    const text = why === undefined ? undefined : renamed(why);
    throw new HoldfastError(code, renamed(message), { why: text, next, details, cause: error });
  }
}

function renamed(text: string): string {
  return text.replace(WORKSPACE_PREFIX, IN_SANDBOX.home);
}
