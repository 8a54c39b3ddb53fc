import { HoldfastError } from '../../protocol/errors.ts';
import {
  AT_FDCWD,
  AT_SYMLINK_FOLLOW,
  AT_SYMLINK_NOFOLLOW,
  loadLibc,
  O_CLOEXEC,
  SEEK_DATA,
  SEEK_HOLE,
} from '../libc.ts';
import { errnoOf } from './directory.ts';

/** The part of stat that a listing needs. */
export interface EntryStat {
  /** Type and permissions. */
  readonly mode: number;
  readonly size: number;
  readonly mtimeSeconds: number;
  readonly mtimeNanoseconds: number;
}

/** System calls that Node lacks. Errors have the system's `code`. */
export interface Native {
  /** lstat of a name. Null if it does not exist. */
  statAt(directory: number, name: Buffer): EntryStat | null;
  /** Opens `path` beneath `directory`. No part of the path may leave it, cross a mount, or go through /proc. */
  openBeneath(directory: number, path: Buffer, flags: number): number;
  /** Fails with EEXIST if the new name exists. */
  renameNoReplace(fromDirectory: number, from: Buffer, toDirectory: number, to: Buffer): void;
  /** Swaps two existing names atomically. */
  exchange(directory: number, one: Buffer, otherDirectory: number, other: Buffer): void;
  /** Gives a name to an open file that has none. */
  linkDescriptor(fd: number, directory: number, name: Buffer): void;
  /** Offset of the next data (or hole) from `offset`. Without one, null for data and the file's size for a hole. */
  seekData(fd: number, offset: number): number | null;
  seekHole(fd: number, offset: number): number;
}

const RENAME_NOREPLACE = 1;
const RENAME_EXCHANGE = 2;
const RESOLVE_NO_XDEV = 0x01;
const RESOLVE_NO_MAGICLINKS = 0x02;
const RESOLVE_BENEATH = 0x08;
/** Wanted fields of struct statx (type, mode, mtime, size) and their offsets. */
const STATX_WANTED = 0x1 | 0x2 | 0x40 | 0x200;
const STATX = { bytes: 256, mode: 28, size: 40, seconds: 112, nanoseconds: 120 } as const;
const TWO_TO_32 = 2 ** 32;
/** struct open_how: flags, mode, resolve. */
const OPEN_HOW_BYTES = 24;

/** Null if the machine lacks them. */
export async function loadNative(): Promise<Native | null> {
  const libc = await loadLibc('files: native system calls are not available');
  if (libc === null) return null;
  const { checked, numbers } = libc;
  // The C library has no openat2, and an old one has no renameat2.
  const openat2 = libc.func('long syscall(long, long, void *, void *, long, long)');
  const rename = libc.func('long syscall(long, long, void *, long, void *, long)');
  const linkat = libc.func('int linkat(int, void *, int, void *, int)');
  const lseek = libc.func('int64_t lseek(int, int64_t, int)');
  const statx = libc.func('int statx(int, void *, int, uint, void *)');
  const status = Buffer.alloc(STATX.bytes);
  const how = Buffer.alloc(OPEN_HOW_BYTES);
  how.writeBigUInt64LE(BigInt(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV), 16);

  return {
    statAt(directory, name) {
      try {
        const flags = AT_SYMLINK_NOFOLLOW;
        checked(statx(directory, terminated(name), flags, STATX_WANTED, status), 'statx');
      } catch (error) {
        if (errnoOf(error) === 'ENOENT') return null;
        throw error;
      }
      const { mode, size, seconds, nanoseconds } = STATX;
      return {
        mode: status.readUInt16LE(mode),
        size: status.readUInt32LE(size) + status.readUInt32LE(size + 4) * TWO_TO_32,
        mtimeSeconds: status.readUInt32LE(seconds) + status.readInt32LE(seconds + 4) * TWO_TO_32,
        mtimeNanoseconds: status.readUInt32LE(nanoseconds),
      };
    },
    openBeneath(directory, path, flags) {
      how.writeBigUInt64LE(BigInt(flags | O_CLOEXEC), 0);
      return checked(
        openat2(numbers.openat2, directory, terminated(path), how, OPEN_HOW_BYTES, 0),
        'openat2',
      );
    },
    renameNoReplace(fromDirectory, from, toDirectory, to) {
      checked(
        rename(
          numbers.renameat2,
          fromDirectory,
          terminated(from),
          toDirectory,
          terminated(to),
          RENAME_NOREPLACE,
        ),
        'renameat2',
      );
    },
    exchange(directory, one, otherDirectory, other) {
      checked(
        rename(
          numbers.renameat2,
          directory,
          terminated(one),
          otherDirectory,
          terminated(other),
          RENAME_EXCHANGE,
        ),
        'renameat2',
      );
    },
    linkDescriptor(fd, directory, name) {
      const open = terminated(Buffer.from(`/proc/self/fd/${fd}`));
      checked(linkat(AT_FDCWD, open, directory, terminated(name), AT_SYMLINK_FOLLOW), 'linkat');
    },
    seekData(fd, offset) {
      try {
        return checked(lseek(fd, offset, SEEK_DATA), 'lseek');
      } catch (error) {
        if (errnoOf(error) === 'ENXIO') return null;
        throw error;
      }
    },
    seekHole: (fd, offset) => checked(lseek(fd, offset, SEEK_HOLE), 'lseek'),
  };
}

/** A NUL-terminated copy. A NUL inside would shorten the name, so it is refused. */
function terminated(text: Buffer): Buffer {
  if (text.includes(0)) throw new HoldfastError('invalid_params', 'A name contains a NUL character');
  const copy = Buffer.allocUnsafe(text.length + 1);
  copy.set(text);
  copy[text.length] = 0;
  return copy;
}
