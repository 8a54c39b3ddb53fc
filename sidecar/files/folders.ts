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

/** Any path except the workspace itself. */
export interface NamedPlace extends Disposable {
  readonly directory: Directory;
  readonly name: Buffer;
}

/** The folder and last name of a path. A link there is not followed. */
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

/** False if the folder existed, which is an error without `parents`. */
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
  // The sidecar's umask denies access to others, but the agent's programs may run as another user of the group.
  using made = new OpenFile(
    openSync(directory.pathOf(name), O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW),
  );
  chmodSync(`/proc/self/fd/${made.fd}`, NEW_FOLDER);
}

/** The target is not checked; whoever follows the link resolves it. */
export function makeLink(resolver: Resolver, path: readonly Buffer[], text: string, link: Buffer): void {
  using place = namedPlace(resolver, path, text);
  symlinkSync(link, place.directory.pathOf(place.name));
}

/** Renames an entry. A link is renamed itself. */
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
  // Without RENAME_NOREPLACE: checks, then renames.
  if (isThere(to)) throw systemError('EEXIST', 'rename');
  renameSync(from.directory.pathOf(from.name), to.directory.pathOf(to.name));
}

export interface DeleteOptions {
  readonly temporaryEntries: TemporaryEntries;
  readonly recursive: boolean;
  readonly signal: AbortSignal;
  readonly onProgress: (removed: Readonly<RemovalTotals>) => void;
}

/** Removes an entry. With `recursive`, also a folder with everything below it, whatever its modes and depth. */
export async function deletePath(place: NamedPlace, options: DeleteOptions): Promise<RemovalTotals> {
  const { directory, name } = place;
  for (let tries = 0; tries < TRIES; tries += 1) {
    const stat = lstatSync(directory.pathOf(name));
    try {
      if (!stat.isDirectory()) {
        // Freeing a large file takes time, so it is not done on the main thread.
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
      // The entry changed its type meanwhile.
    }
  }
  throw systemError('EAGAIN', 'unlink');
}

async function deleteFolder(
  parent: Directory,
  name: Buffer,
  { temporaryEntries, signal, onProgress }: DeleteOptions,
): Promise<RemovalTotals> {
  grantOwnerAccess(parent, name);
  let removed: RemovalTotals;
  {
    using folder = parent.openDirectory(name);
    removed = await emptyDirectory(folder, { temporaryEntries, signal, onProgress });
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
