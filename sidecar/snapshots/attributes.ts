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
 * Gives what `fd` names (O_PATH is enough; no link) the mode, extended attributes and, last, modification time of an entry.
 * `isNew`: it has no extended attributes yet. Whoever dies in between leaves something that looks otherwise than the entry.
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
  const facts = new Uint32Array(FINGERPRINT_WORDS);
  writeFingerprint(system.stat, facts, 0);
  const mode = modeOf(facts) & 0o7777;
  // Attributes are content: reading and writing them needs the same rights.
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
      why: "the workspace's file system has none",
      cause: error,
    });
  }
}

/** The same for a name that must be that of `inode`; null: whatever is there. Links are not followed. */
export function setAttributesAt(
  system: SystemCalls,
  directory: number,
  entry: TreeEntry,
  inode: bigint | null,
): void {
  const fd = system.openAt(directory, system.addressOf(entry.name), O_PATH | O_NOFOLLOW);
  try {
    system.statFd(fd);
    const facts = new Uint32Array(FINGERPRINT_WORDS);
    writeFingerprint(system.stat, facts, 0);
    if (inode !== null && inodeOf(facts) !== inode) throw changedDuringRestore();
    const isLink = (modeOf(facts) & S_IFMT) === S_IFLNK;
    if (isLink !== (entry.type === 'symlink')) throw changedDuringRestore();
    // A link has no mode, and its times are set by its name only.
    if (isLink) system.setMtimeAt(directory, entry.name, entry.mtimeNs);
    else setAttributes(system, fd, entry);
  } finally {
    closeSync(fd);
  }
}

export function changedDuringRestore(): HoldfastError {
  return new HoldfastError('file_unavailable', 'The workspace was not restored', {
    why: 'something else writes to it',
    next: 'stop what writes there and restore again',
  });
}
