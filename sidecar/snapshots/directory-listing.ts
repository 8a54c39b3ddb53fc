import { mayContainTemporaryNames, type TemporaryEntries } from '../files/temporary-entries.ts';
import { type CachedDirectory, detachedCopy, nameKey } from './cached-directory.ts';
import {
  countDirents,
  DIRENT_NAME_OFFSET,
  direntLength,
  direntName,
  hasUnknownTypes,
  isDotEntry,
  withoutDirents,
} from './dirents.ts';
import { FINGERPRINT_WORDS } from './fingerprint.ts';
import type { SystemCalls } from './system-calls.ts';
import type { TreeFilter } from './tree-filter.ts';

const NO_DIRENTS = Buffer.alloc(0);

/** Where a name was in the last scan, and its cached directory if it was one. */
interface CachedName {
  readonly index: number;
  readonly directory: CachedDirectory | undefined;
}

/**
 * The names of an open directory and what a walk learns about them. `dirents` and `fingerprints` run in parallel: every
 * name except `.` and `..` has one of each.
 */
export interface DirectoryListing {
  readonly directory: CachedDirectory;
  readonly fd: number;
  readonly dirents: Buffer;
  /** `dirents` equals the system's dirent buffer, so its names have addresses there. */
  readonly isInBuffer: boolean;
  /** The names of the last scan. Null if they are the same, so that `fingerprints` and `children` are the cached ones. */
  readonly cachedNames: ReadonlyMap<string, CachedName> | null;
  readonly fingerprints: Uint32Array<ArrayBuffer>;
  readonly children: CachedDirectory[];
  /** Names that disappeared during the walk. */
  readonly vanished: Buffer[];
}

/** Lists an open directory without our temporary entries and what the filter hides. */
export function readListing(
  system: SystemCalls,
  temporaryEntries: TemporaryEntries,
  fd: number,
  directory: CachedDirectory,
  filter: TreeFilter | null = null,
): DirectoryListing {
  const hides = filter?.hiddenIn(directory) ?? null;
  const { dirents, isInBuffer } = readNames(system, temporaryEntries, fd, directory.dirents, hides);
  const areNamesCached = dirents === directory.dirents && directory.hasKnownTypes;
  return {
    directory,
    fd,
    dirents,
    isInBuffer,
    cachedNames: areNamesCached ? null : cachedNamesOf(directory),
    fingerprints: areNamesCached
      ? directory.fingerprints
      : new Uint32Array(countDirents(dirents) * FINGERPRINT_WORDS),
    children: areNamesCached ? directory.children : [],
    vanished: [],
  };
}

/**
 * What to add to the offset of a dirent for the address of its name. Null if the names are not in the system's dirent buffer
 * and must be copied.
 */
export function addressOfNames(system: SystemCalls, { isInBuffer }: DirectoryListing): number | null {
  return isInBuffer ? system.direntBufferAddress + DIRENT_NAME_OFFSET : null;
}

/** Takes the fingerprint of the last scan over for the name at an offset, if it had one. */
export function useCachedFingerprint(listing: DirectoryListing, at: number, index: number): void {
  const { directory, dirents, cachedNames, fingerprints } = listing;
  const cached = cachedNames?.get(nameKey(direntName(dirents, at)))?.index;
  if (cached === undefined) return;
  fingerprints.set(directory.fingerprints.subarray(cached, cached + FINGERPRINT_WORDS), index);
}

/** Makes the listing the cached state of its directory. */
export function storeListing({
  directory,
  dirents,
  cachedNames,
  fingerprints,
  children,
}: DirectoryListing): void {
  if (cachedNames === null) return;
  directory.dirents = dirents;
  directory.fingerprints = fingerprints;
  directory.children = children;
  directory.hasKnownTypes = !hasUnknownTypes(dirents);
  directory.isDirty = true;
  directory.haveNamesChanged = true;
}

/** All names without our temporary entries. Returns the cached buffer itself if the names are the same. */
function readNames(
  system: SystemCalls,
  temporaryEntries: TemporaryEntries,
  fd: number,
  cached: Buffer,
  hides: ((name: Buffer, inode: bigint) => boolean) | null,
): Pick<DirectoryListing, 'dirents' | 'isInBuffer'> {
  const buffer = system.direntBuffer;
  const first = system.readDirents(fd);
  if (first === 0) return { dirents: cached.length === 0 ? cached : NO_DIRENTS, isInBuffer: false };
  const isCached = first === cached.length && buffer.compare(cached, 0, first, 0, first) === 0;
  const parts = [isCached ? cached : detachedCopy(buffer.subarray(0, first))];
  for (let more = system.readDirents(fd); more > 0; more = system.readDirents(fd)) {
    parts.push(detachedCopy(buffer.subarray(0, more)));
  }
  const listed = parts.length === 1 ? (parts[0] ?? NO_DIRENTS) : Buffer.concat(parts);
  // Temporary entries of running operations are not part of the workspace. The cached names have none.
  const isTemporary = (name: Buffer): boolean => temporaryEntries.isTemporary(fd, name);
  const ours =
    listed !== cached && mayContainTemporaryNames(listed) ? withoutDirents(listed, isTemporary) : listed;
  const dirents = hides === null ? ours : withoutHidden(ours, hides);
  const isInBuffer = parts.length === 1 && dirents === listed;
  return { dirents: dirents !== cached && dirents.equals(cached) ? cached : dirents, isInBuffer };
}

function withoutHidden(dirents: Buffer, hides: (name: Buffer, inode: bigint) => boolean): Buffer {
  return withoutDirents(
    dirents,
    (name, at) => !isDotEntry(dirents, at) && hides(name, dirents.readBigUInt64LE(at)),
  );
}

function cachedNamesOf(directory: CachedDirectory): ReadonlyMap<string, CachedName> {
  const cached = new Map<string, CachedName>();
  const children = new Map(directory.children.map((child) => [nameKey(child.name), child]));
  let index = 0;
  for (let at = 0; at < directory.dirents.length; at += direntLength(directory.dirents, at)) {
    if (isDotEntry(directory.dirents, at)) continue;
    const key = nameKey(direntName(directory.dirents, at));
    cached.set(key, { index, directory: children.get(key) });
    index += FINGERPRINT_WORDS;
  }
  return cached;
}
