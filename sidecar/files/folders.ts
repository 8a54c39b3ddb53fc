import {
  constants,
  chmodSync,
  lstatSync,
  mkdirSync,
  openSync,
  renameSync,
  rmdirSync,
  symlinkSync,
  unlink,
} from 'node:fs';
import { promisify } from 'node:util';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Directory } from './directory.ts';
import { errnoOf } from './directory.ts';
import { systemError } from './file-errors.ts';
import type { Native } from './native.ts';
import { OpenFile } from './open-file.ts';
import type { TemporaryEntries } from './temporary-entries.ts';
import { emptyDirectory, grantOwnerAccess, type RemovalTotals } from './remove-tree.ts';
import { O_PATH, type Place, type Resolver } from './resolver.ts';

const NEW_FOLDER = 0o755;
const TRIES = 8;
const unlinkAsync = promisify(unlink);

/** A place with a name: everything but the workspace itself. */
export interface NamedPlace extends Disposable {
  readonly directory: Directory;
  readonly name: Buffer;
}

/** The folder and last name of a path; a link there is not followed. */
export function namedPlace(resolver: Resolver, path: readonly Buffer[], text: string): NamedPlace {
  const place: Place = resolver.parent(path, false);
  const { directory, name } = place;
  if (name !== null) return { directory, name, [Symbol.dispose]: () => directory.close() };
  directory.close();
  throw new HoldfastError('permission_denied', `${text} cannot be moved or removed`, {
    why: 'it is the workspace itself',
    next: 'empty it with `holdfast workspace clean`',
  });
}

/** False when it was there already, which without `parents` is an error. */
export function makeFolder(
  resolver: Resolver,
  path: readonly Buffer[],
  text: string,
  parents: boolean,
): boolean {
  if (!parents) {
    if (path.length === 0) throw systemError('EEXIST', 'mkdir');
    using place = namedPlace(resolver, path, text);
    makeOne(place);
    return true;
  }
  let created = false;
  for (let depth = 1; depth <= path.length; depth += 1) {
    const upTo = path.slice(0, depth);
    try {
      using place = namedPlace(resolver, upTo, text);
      makeOne(place);
      created = true;
    } catch (error) {
      if (errnoOf(error) !== 'EEXIST') throw error;
      created = false;
    }
  }
  using named = new OpenFile(resolver.open(path, true));
  if (!named.stat().isDirectory()) throw systemError('EEXIST', 'mkdir');
  return created;
}

function makeOne({ directory, name }: NamedPlace): void {
  mkdirSync(directory.pathOf(name), NEW_FOLDER);
  // Our own umask lets nobody in; the agent's programs may run as another user of the group.
  using made = new OpenFile(
    openSync(directory.pathOf(name), O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW),
  );
  chmodSync(`/proc/self/fd/${made.fd}`, NEW_FOLDER);
}

/** Nothing looks at where it leads: that is decided by whoever follows it. */
export function makeLink(resolver: Resolver, path: readonly Buffer[], text: string, link: Buffer): void {
  using place = namedPlace(resolver, path, text);
  symlinkSync(link, place.directory.pathOf(place.name));
}

/** Moves a name as it stands: a link moves itself. */
export function renamePath(
  native: Native | null,
  from: NamedPlace,
  to: NamedPlace,
  overwrite: boolean,
): void {
  if (overwrite) {
    renameSync(from.directory.pathOf(from.name), to.directory.pathOf(to.name));
    return;
  }
  if (native !== null) {
    try {
      native.renameNoReplace(from.directory.fd, from.name, to.directory.fd, to.name);
      return;
    } catch (error) {
      const code = errnoOf(error);
      if (code !== 'ENOSYS' && !(code === 'EINVAL' && !isFolder(from))) throw error;
    }
  }
  // Where the system cannot refuse by itself: looked at, then renamed.
  if (isThere(to)) throw systemError('EEXIST', 'rename');
  renameSync(from.directory.pathOf(from.name), to.directory.pathOf(to.name));
}

export interface DeleteOptions {
  readonly own: TemporaryEntries;
  readonly recursive: boolean;
  readonly signal: AbortSignal;
  readonly onProgress: (removed: Readonly<RemovalTotals>) => void;
}

/** Removes one name; of a folder with `recursive`, everything below it, whatever its modes and depth. */
export async function deletePath(place: NamedPlace, options: DeleteOptions): Promise<RemovalTotals> {
  const { directory, name } = place;
  for (let tries = 0; tries < TRIES; tries += 1) {
    const stat = lstatSync(directory.pathOf(name));
    try {
      if (!stat.isDirectory()) {
        // Freeing a large file takes its time: not on the thread that answers everybody.
        await unlinkAsync(directory.pathOf(name));
        return { files: 1, bytes: stat.isFile() && stat.nlink === 1 ? stat.size : 0 };
      }
      if (!options.recursive) {
        rmdirSync(directory.pathOf(name));
        return { files: 0, bytes: 0 };
      }
      return await deleteFolder(directory, name, options);
    } catch (error) {
      const code = errnoOf(error);
      if (code !== 'EISDIR' && code !== 'ENOTDIR' && code !== 'ELOOP') throw error;
      // It became something else between the look and the deed.
    }
  }
  throw systemError('EAGAIN', 'unlink');
}

async function deleteFolder(
  parent: Directory,
  name: Buffer,
  { own, signal, onProgress }: DeleteOptions,
): Promise<RemovalTotals> {
  grantOwnerAccess(parent, name);
  let removed: RemovalTotals;
  {
    using folder = parent.openDirectory(name);
    removed = await emptyDirectory(folder, { own, signal, onProgress });
  }
  rmdirSync(parent.pathOf(name));
  return removed;
}

function isThere({ directory, name }: NamedPlace): boolean {
  try {
    lstatSync(directory.pathOf(name));
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}

function isFolder({ directory, name }: NamedPlace): boolean {
  return lstatSync(directory.pathOf(name)).isDirectory();
}
