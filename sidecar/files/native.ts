import { arch } from 'node:os';
import { HoldfastError } from '../../protocol/errors.ts';

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

const AT_FDCWD = -100;
const AT_SYMLINK_FOLLOW = 0x400;
const RENAME_NOREPLACE = 1;
const RENAME_EXCHANGE = 2;
const RESOLVE_NO_XDEV = 0x01;
const RESOLVE_NO_MAGICLINKS = 0x02;
const RESOLVE_BENEATH = 0x08;
const SEEK_DATA = 3;
const SEEK_HOLE = 4;
const O_CLOEXEC = 0o2000000;
const AT_SYMLINK_NOFOLLOW = 0x100;
/** Wanted fields of struct statx (type, mode, mtime, size) and their offsets. */
const STATX_WANTED = 0x1 | 0x2 | 0x40 | 0x200;
const STATX = { bytes: 256, mode: 28, size: 40, seconds: 112, nanoseconds: 120 } as const;
const TWO_TO_32 = 2 ** 32;
/** struct open_how: flags, mode, resolve. */
const OPEN_HOW_BYTES = 24;
const SYS_OPENAT2 = 437;
const SYS_RENAMEAT2: Readonly<Record<string, number>> = { x64: 316, arm64: 276 };
const ERRNO_NAMES: Readonly<Record<number, string>> = {
  1: 'EPERM', 2: 'ENOENT', 4: 'EINTR', 5: 'EIO', 6: 'ENXIO', 7: 'E2BIG', 9: 'EBADF', 11: 'EAGAIN', 12: 'ENOMEM', 13: 'EACCES',
  16: 'EBUSY', 17: 'EEXIST', 18: 'EXDEV', 20: 'ENOTDIR', 21: 'EISDIR', 22: 'EINVAL', 23: 'ENFILE', 24: 'EMFILE', 26: 'ETXTBSY',
  27: 'EFBIG', 28: 'ENOSPC', 30: 'EROFS', 31: 'EMLINK', 36: 'ENAMETOOLONG', 38: 'ENOSYS', 39: 'ENOTEMPTY', 40: 'ELOOP',
  95: 'ENOTSUP', 116: 'ESTALE', 122: 'EDQUOT',
}; // prettier-ignore

/**
 * Loads koffi, which takes some ten milliseconds, so only when it is needed. Null if koffi has no binary for this
 * machine.
 */
export async function loadNative(): Promise<Native | null> {
  const renameat2 = SYS_RENAMEAT2[arch()];
  if (process.platform !== 'linux' || renameat2 === undefined) return null;
  let koffi;
  try {
    ({ default: koffi } = await import('koffi'));
  } catch (error) {
    console.error('files: without native calls:', error);
    return null;
  }
  const { errno } = koffi;
  const libc = koffi.load(null);
  // The C library has no openat2, and an old one has no renameat2.
  const openat2 = libc.func('long syscall(long, long, void *, void *, long, long)');
  const rename = libc.func('long syscall(long, long, void *, long, void *, long)');
  const linkat = libc.func('int linkat(int, void *, int, void *, int)');
  const lseek = libc.func('int64_t lseek(int, int64_t, int)');

  const statx = libc.func('int statx(int, void *, int, uint, void *)');
  const facts = Buffer.alloc(STATX.bytes);

  const checked = (result: unknown, call: string): number => {
    if (typeof result !== 'number' && typeof result !== 'bigint')
      throw new TypeError(`${call} gave no number`);
    if (result >= 0) return Number(result);
    const number = errno();
    const code = ERRNO_NAMES[number] ?? `E${number}`;
    throw Object.assign(new Error(`${code}: ${call}`), { code, errno: -number, syscall: call });
  };
  const how = Buffer.alloc(OPEN_HOW_BYTES);
  how.writeBigUInt64LE(BigInt(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV), 16);

  return {
    statAt(directory, name) {
      try {
        const flags = AT_SYMLINK_NOFOLLOW;
        checked(statx(directory, terminated(name), flags, STATX_WANTED, facts), 'statx');
      } catch (error) {
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
        throw error;
      }
      const { mode, size, seconds, nanoseconds } = STATX;
      return {
        mode: facts.readUInt16LE(mode),
        size: facts.readUInt32LE(size) + facts.readUInt32LE(size + 4) * TWO_TO_32,
        mtimeSeconds: facts.readUInt32LE(seconds) + facts.readInt32LE(seconds + 4) * TWO_TO_32,
        mtimeNanoseconds: facts.readUInt32LE(nanoseconds),
      };
    },
    openBeneath(directory, path, flags) {
      how.writeBigUInt64LE(BigInt(flags | O_CLOEXEC), 0);
      return checked(openat2(SYS_OPENAT2, directory, terminated(path), how, OPEN_HOW_BYTES, 0), 'openat2');
    },
    renameNoReplace(fromDirectory, from, toDirectory, to) {
      checked(
        rename(renameat2, fromDirectory, terminated(from), toDirectory, terminated(to), RENAME_NOREPLACE),
        'renameat2',
      );
    },
    exchange(directory, one, otherDirectory, other) {
      checked(
        rename(renameat2, directory, terminated(one), otherDirectory, terminated(other), RENAME_EXCHANGE),
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
        if (error instanceof Error && 'code' in error && error.code === 'ENXIO') return null;
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
