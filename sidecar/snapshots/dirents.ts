/** Records of `getdents64`: inode (8 bytes), place (8), length (2), type (1), name with NUL. */
const LENGTH = 16;
const TYPE = 18;
export const DIRENT_NAME_OFFSET = 19;
const DOT = 0x2e;
export const TYPE_DIRECTORY = 4;
export const TYPE_UNKNOWN = 0;

export function direntLength(records: Buffer, at: number): number {
  return (records[at + LENGTH] ?? 0) | ((records[at + LENGTH + 1] ?? 0) << 8);
}

export function direntType(records: Buffer, at: number): number {
  return records[at + TYPE] ?? TYPE_UNKNOWN;
}

/** As the system would list it, in no certain place. */
export function encodeDirent(inode: bigint, type: number, name: Buffer): Buffer {
  const record = Buffer.alloc(Math.ceil((DIRENT_NAME_OFFSET + name.length + 1) / 8) * 8);
  record.writeBigUInt64LE(inode, 0);
  record.writeUInt16LE(record.length, LENGTH);
  record[TYPE] = type;
  record.set(name, DIRENT_NAME_OFFSET);
  return record;
}

/** A view. */
export function direntName(records: Buffer, at: number): Buffer {
  const from = at + DIRENT_NAME_OFFSET;
  return records.subarray(from, records.indexOf(0, from));
}

/** `.` and `..`. */
export function isDotEntry(records: Buffer, at: number): boolean {
  const from = at + DIRENT_NAME_OFFSET;
  if (records[from] !== DOT) return false;
  const second = records[from + 1];
  return second === 0 || (second === DOT && records[from + 2] === 0);
}

/** Without the names that `isOurs` says. The very buffer where there is none. */
export function withoutDirents(records: Buffer, isOurs: (name: Buffer) => boolean): Buffer {
  const kept: Buffer[] = [];
  let from = 0;
  for (let at = 0; at < records.length; at += direntLength(records, at)) {
    if (!isOurs(direntName(records, at))) continue;
    kept.push(records.subarray(from, at));
    from = at + direntLength(records, at);
  }
  return from === 0 ? records : Buffer.concat([...kept, records.subarray(from)]);
}

/** Without those that are left out. */
export function countDirents(records: Buffer): number {
  let count = 0;
  for (let at = 0; at < records.length; at += direntLength(records, at)) {
    if (!isDotEntry(records, at)) count += 1;
  }
  return count;
}

export function hasUnknownTypes(records: Buffer): boolean {
  for (let at = 0; at < records.length; at += direntLength(records, at)) {
    if (direntType(records, at) === TYPE_UNKNOWN) return true;
  }
  return false;
}
