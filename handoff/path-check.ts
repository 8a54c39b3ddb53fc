import type { ProjectOrigin } from '../protocol/deploy.ts';
import { HoldfastError } from '../protocol/errors.ts';
import { PATH_LIMITS } from '../protocol/paths.ts';
import { foldName } from '../protocol/folded-name.ts';
import { fromText, type RawPath, readable, toBytes } from '../project/raw-path.ts';

/** Paths deeper than this cannot be checked out everywhere. */
const MAX_DEPTH = 200;

/**
 * Why a path must not reach a repository; null if it may. `path`: relative to the top of the repository, so that the prefix of the
 * project is checked as well.
 */
export function whyRefused(path: RawPath): string | null {
  if (path.length >= PATH_LIMITS.pathBytes) return 'its path is too long';
  const names = path.split('/');
  if (names.length > MAX_DEPTH) return 'it is too deep';
  for (const name of names) {
    if (name === '') return 'its path has an empty name';
    if (name === '.' || name === '..') return `its path contains the name ${name}`;
    if (name.includes('\0')) return 'its path contains NUL';
    if (name.length > PATH_LIMITS.nameBytes) return 'a name in its path is too long';
    if (isGitName(name)) return 'its path names a part of a git repository';
  }
  return null;
}

/**
 * What the paths of a workspace have before them in the repository: empty, or with a slash at its end. Errors: `protocol_error` for
 * a record that names what no repository may have.
 */
export function prefixOf(base: { readonly origin: ProjectOrigin | null; readonly folder: string }): RawPath {
  const prefix = fromText((base.origin?.prefix ?? '') + base.folder);
  if (prefix === '') return '';
  if (!prefix.endsWith('/') || whyRefused(prefix.slice(0, -1)) !== null) {
    throw new HoldfastError('protocol_error', 'The changes were not handed off', {
      why: `the session's record names ${JSON.stringify(readable(prefix))} as its folder in the repository`,
      next: 'hand off with --to dir',
    });
  }
  return prefix;
}

/** Every form of `.git` on any file system: by case, ignored characters, streams, trailing dots and spaces, short names. */
function isGitName(name: string): boolean {
  // A backslash separates names on some machines.
  return name.split('\\').some((part) => foldName(toBytes(part)) === '.git');
}

/** Folds to itself: most names. */
const PLAIN = /^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/;

/** One name as the most forgiving file system reads it. */
function folded(name: string): string {
  return PLAIN.test(name) ? name : foldName(toBytes(name));
}

/**
 * The added paths that some file system takes for another path of the tree, those that are a file where the tree has a folder, and
 * those below a file. `present`: every path of the tree after the handoff. What collides in the tree already is not for a handoff to
 * judge. Linear.
 */
export function findCollisions(
  present: Iterable<RawPath>,
  added: ReadonlySet<RawPath>,
): Map<RawPath, string> {
  const byFold = new Map<string, RawPath>();
  const files = new Set<RawPath>();
  const collisions = new Map<RawPath, string>();
  const note = (one: RawPath, other: RawPath): void => {
    for (const path of [one, other])
      if (added.has(path)) collisions.set(path, 'another path of the tree is the same on some file systems');
  };
  for (const path of present) {
    files.add(path);
    // Folders count too: `A/x` and `a/y` are in one folder on some file systems.
    const names = path.split('/');
    let prefix = '';
    let fold = '';
    for (const [depth, name] of names.entries()) {
      prefix = depth === 0 ? name : `${prefix}/${name}`;
      fold = depth === 0 ? folded(name) : `${fold}/${folded(name)}`;
      const known = byFold.get(fold);
      if (known === undefined) byFold.set(fold, prefix);
      else if (known !== prefix) {
        note(path, known);
        break;
      }
    }
  }
  for (const path of files) {
    const isAdded = added.has(path);
    for (let slash = path.lastIndexOf('/'); slash !== -1; slash = path.lastIndexOf('/', slash - 1)) {
      const above = path.slice(0, slash);
      if (isAdded && files.has(above)) collisions.set(path, 'a folder of its path is a file in the tree');
      if (added.has(above) && files.has(above))
        collisions.set(above, 'it replaces a folder in which other files stay');
    }
  }
  return collisions;
}
