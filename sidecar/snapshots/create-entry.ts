import { closeSync, constants, fchmodSync, ftruncateSync, writeSync } from 'node:fs';
import { readContent, pieceCount } from '../../snapshot-format/content.ts';
import type { DirectoryEntry, FileEntry, TreeEntry } from '../../snapshot-format/entries.ts';
import { OBJECT_KINDS, type ObjectReader, SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';
import { O_PATH } from '../files/resolver.ts';
import { setAttributes, setAttributesByFd } from './attributes.ts';
import { FINGERPRINT_WORDS, modeOf, writeFingerprint } from './fingerprint.ts';
import type { RemoteObjects } from './remote-objects.ts';
import type { SystemCalls } from './system-calls.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY, S_IFIFO, S_IFSOCK } = constants;
const NEW_FILE = O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY;
const PERMISSIONS = 0o7777;
const { pieceBytes } = SNAPSHOT_LIMITS;
const NO_FILE: CreatedEntry = { bytes: 0, fingerprint: null };

export interface CreatedEntry {
  /** Bytes of content written. */
  readonly bytes: number;
  /** Fingerprint of a file. Null for any other entry. */
  readonly fingerprint: Uint32Array | null;
}

/** Creates any entry except a directory, with content and attributes. The name must be free. */
export async function createEntry(
  system: SystemCalls,
  reader: ObjectReader,
  dirfd: number,
  name: Buffer,
  entry: Exclude<TreeEntry, DirectoryEntry>,
): Promise<CreatedEntry> {
  switch (entry.type) {
    case 'file':
      return await makeFile(system, reader, dirfd, name, entry);
    case 'symlink':
      system.symlinkAt(entry.target, dirfd, name);
      system.setMtimeAt(dirfd, name, entry.mtimeNs);
      return NO_FILE;
    case 'fifo':
    case 'socket': {
      system.makeNodeAt(dirfd, name, (entry.type === 'fifo' ? S_IFIFO : S_IFSOCK) | 0o600);
      const fd = system.openAt(dirfd, system.addressOf(name), O_PATH | O_NOFOLLOW);
      try {
        setAttributes(system, fd, entry, true);
      } finally {
        closeSync(fd);
      }
      return NO_FILE;
    }
  }
}

async function makeFile(
  system: SystemCalls,
  reader: ObjectReader,
  dirfd: number,
  name: Buffer,
  entry: FileEntry,
): Promise<CreatedEntry> {
  const fd = system.openAt(dirfd, system.addressOf(name), NEW_FILE, 0o600);
  let written = 0;
  try {
    for await (const { offset, bytes } of readContent(reader, entry)) {
      write(fd, bytes, offset);
      written += bytes.length;
    }
    if (entry.sparse) ftruncateSync(fd, entry.size);
    setAttributesByFd(system, fd, entry, true);
    return { bytes: written, fingerprint: factsOf(system, fd) };
  } finally {
    closeSync(fd);
  }
}

/**
 * Creates a plain file without waiting, in as few calls as possible. Returns null and does nothing if the content is
 * not here yet or the file is not plain.
 */
export function createFileIfAvailable(
  system: SystemCalls,
  objects: RemoteObjects,
  dirfd: number,
  name: Buffer,
  entry: FileEntry,
): CreatedEntry | null {
  const { size, content } = entry;
  const isPlain = !entry.sparse && content.depth === 0 && entry.xattrs.length === 0;
  if (!isPlain || content.items.length > 1 || content.items.length !== pieceCount(size)) return null;
  const [piece] = content.items;
  const body = piece === undefined ? null : objects.readIfAvailable(piece.hash, OBJECT_KINDS.blob);
  if (piece !== undefined && (piece.index !== 0 || size > pieceBytes || body?.length !== size)) return null;
  const fd = system.openAt(dirfd, system.addressOf(name), NEW_FILE, entry.mode & 0o777);
  try {
    if (body !== null) write(fd, body, 0);
    system.setMtimeByFd(fd, entry.mtimeNs);
    const fingerprint = factsOf(system, fd);
    // The umask or the directory may alter a new file's mode, and so may writing.
    if ((modeOf(fingerprint) & PERMISSIONS) === entry.mode) return { bytes: size, fingerprint };
    fchmodSync(fd, entry.mode);
    return { bytes: size, fingerprint: factsOf(system, fd) };
  } finally {
    closeSync(fd);
  }
}

function factsOf(system: SystemCalls, fd: number): Uint32Array {
  const fingerprint = new Uint32Array(FINGERPRINT_WORDS);
  system.statFd(fd);
  writeFingerprint(system.stat, fingerprint, 0);
  return fingerprint;
}

function write(fd: number, bytes: Buffer, offset: number): void {
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at, bytes.length - at, offset + at);
}
