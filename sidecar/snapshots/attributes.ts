import { chmodSync, closeSync, constants, fchmodSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import type { DirectoryEntry, FileEntry, TreeEntry } from '../../snapshot-format/entries.ts';
import { errnoOf } from '../files/directory.ts';
import { O_PATH } from '../files/resolver.ts';
import { FINGERPRINT_WORDS, inodeOf, modeOf, writeFingerprint } from './fingerprint.ts';
import { areSameXattrs } from './compare-entries.ts';
import type { SystemCalls } from './system-calls.ts';

const OWNER_ALL = 0o700;
const OWNER_READS_AND_WRITES = 0o600;
const { O_NOFOLLOW, S_IFLNK, S_IFMT } = constants;

/**
 * Sets the mode, the extended attributes and, last, the mtime of an entry. `fd` may be O_PATH, but must not be a link.
 * `isNew`: it has no extended attributes yet. A crash in between leaves an entry that differs from the snapshot's.
 */
export function setAttributes(system: SystemCalls, fd: number, entry: TreeEntry, isNew = false): void {
  const hasNone = isNew && entry.xattrs.length === 0;
  if (!hasNone && (entry.type === 'file' || entry.type === 'directory')) dressXattrs(system, fd, entry);
  chmodSync(`/proc/self/fd/${fd}`, entry.mode);
  system.setMtime(fd, entry.mtimeNs);
}

/** The same for a file or directory that is open for reading or writing. */
export function setAttributesByFd(
  system: SystemCalls,
  fd: number,
  entry: FileEntry | DirectoryEntry,
  isNew = false,
): void {
  if (!isNew || entry.xattrs.length > 0) dressXattrs(system, fd, entry);
  fchmodSync(fd, entry.mode);
  system.setMtimeByFd(fd, entry.mtimeNs);
}

function dressXattrs(system: SystemCalls, fd: number, entry: TreeEntry): void {
  const readable = entry.type === 'directory' ? OWNER_ALL : OWNER_READS_AND_WRITES;
  system.statFd(fd);
  const fingerprint = new Uint32Array(FINGERPRINT_WORDS);
  writeFingerprint(system.stat, fingerprint, 0);
  const mode = modeOf(fingerprint) & 0o7777;
  // Reading and writing extended attributes needs the same rights as the content.
  const lend = (): void => {
    if ((mode & readable) !== readable) chmodSync(`/proc/self/fd/${fd}`, mode | readable);
  };
  lend();
  const before = system.xattrs(fd);
  if (areSameXattrs(before, entry.xattrs)) return;
  try {
    for (const { name } of before) {
      if (!entry.xattrs.some((wanted) => wanted.name.equals(name))) system.removeXattr(fd, name);
    }
    for (const { name, value } of entry.xattrs) system.setXattr(fd, name, value);
  } catch (error) {
    if (errnoOf(error) !== 'ENOTSUP') throw error;
    throw new HoldfastError('not_supported', 'Extended attributes cannot be restored here', {
      why: "the workspace's file system does not support them",
      cause: error,
    });
  }
}

/** The same by name. With `inode`, the name must have that inode. A link is not followed. */
export function setAttributesAt(
  system: SystemCalls,
  dirfd: number,
  entry: TreeEntry,
  inode: bigint | null,
): void {
  const fd = system.openAt(dirfd, system.addressOf(entry.name), O_PATH | O_NOFOLLOW);
  try {
    system.statFd(fd);
    const fingerprint = new Uint32Array(FINGERPRINT_WORDS);
    writeFingerprint(system.stat, fingerprint, 0);
    if (inode !== null && inodeOf(fingerprint) !== inode) throw changedDuringRestore();
    const isLink = (modeOf(fingerprint) & S_IFMT) === S_IFLNK;
    if (isLink !== (entry.type === 'symlink')) throw changedDuringRestore();
    // A link has no mode, and its times can be set only by name.
    if (isLink) system.setMtimeAt(dirfd, entry.name, entry.mtimeNs);
    else setAttributes(system, fd, entry);
  } finally {
    closeSync(fd);
  }
}

export function changedDuringRestore(): HoldfastError {
  return new HoldfastError('file_unavailable', 'The workspace was not restored', {
    why: 'a process keeps writing to it',
    next: 'stop the process and restore again',
  });
}
