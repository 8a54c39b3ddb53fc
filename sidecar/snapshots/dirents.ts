/**
 * Records of `getdents64` (struct linux_dirent64): inode (8 bytes), offset (8), length (2), type (1), name with NUL.
 */
const LENGTH = 16;
const TYPE = 18;
export const DIRENT_NAME_OFFSET = 19;
const DOT = 0x2e;
export const TYPE_DIRECTORY = 4;
export const TYPE_UNKNOWN = 0;

export function direntLength(dirents: Buffer, at: number): number {
  return (dirents[at + LENGTH] ?? 0) | ((dirents[at + LENGTH + 1] ?? 0) << 8);
}

export function direntType(dirents: Buffer, at: number): number {
  return dirents[at + TYPE] ?? TYPE_UNKNOWN;
}

/** A record as the system returns it. Its offset field is not set. */
export function encodeDirent(inode: bigint, type: number, name: Buffer): Buffer {
  const dirent = Buffer.alloc(Math.ceil((DIRENT_NAME_OFFSET + name.length + 1) / 8) * 8);
  dirent.writeBigUInt64LE(inode, 0);
  dirent.writeUInt16LE(dirent.length, LENGTH);
  dirent[TYPE] = type;
  dirent.set(name, DIRENT_NAME_OFFSET);
  return dirent;
}

/** A view into the buffer. */
export function direntName(dirents: Buffer, at: number): Buffer {
  const from = at + DIRENT_NAME_OFFSET;
  return dirents.subarray(from, dirents.indexOf(0, from));
}

/** `.` and `..`. */
export function isDotEntry(dirents: Buffer, at: number): boolean {
  const from = at + DIRENT_NAME_OFFSET;
  if (dirents[from] !== DOT) return false;
  const second = dirents[from + 1];
  return second === 0 || (second === DOT && dirents[from + 2] === 0);
}

/** Removes the records of some names. Returns the same buffer if there are none. */
export function withoutDirents(dirents: Buffer, isOurs: (name: Buffer, at: number) => boolean): Buffer {
  const retained: Buffer[] = [];
  let from = 0;
  for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
    if (!isOurs(direntName(dirents, at), at)) continue;
    retained.push(dirents.subarray(from, at));
    from = at + direntLength(dirents, at);
  }
  return from === 0 ? dirents : Buffer.concat([...retained, dirents.subarray(from)]);
}

/** Number of names without `.` and `..`. */
export function countDirents(dirents: Buffer): number {
  let count = 0;
  for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
    if (!isDotEntry(dirents, at)) count += 1;
  }
  return count;
}

export function hasUnknownTypes(dirents: Buffer): boolean {
  for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
    if (direntType(dirents, at) === TYPE_UNKNOWN) return true;
  }
  return false;
}
