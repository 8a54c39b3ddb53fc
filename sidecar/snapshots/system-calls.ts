import { arch } from 'node:os';
import { constants, readFileSync } from 'node:fs';
import { errnoOf } from '../files/directory.ts';

/**
 * System calls for walks through many files: names and results lie in memory that stays where it is, so that a call costs
 * little more than the kernel's share. One instance must not be used by two threads.
 */
export interface SystemCalls {
  /** What `statAt` and `statOpen` saw last: struct statx as 32-bit words, see `STAT`. */
  readonly stat: Uint32Array;
  /** What `list` read last: records of `getdents64`. */
  readonly direntBuffer: Buffer;
  /** Address of `records`, for names in them. */
  readonly direntBufferAddress: number;
  /** Bytes of the next entries of an open directory; 0 at its end. */
  readDirents(fd: number): number;
  /** A name itself, links not followed. False when there is none. `address` of a text that ends with NUL. */
  statAt(directory: number, address: number): boolean;
  statFd(fd: number): void;
  /** Address of a copy of the name, until the next call that takes one. */
  addressOf(name: Buffer): number;
  openAt(directory: number, address: number, flags: number, mode?: number): number;
  close(fd: number): void;
  readLinkAt(directory: number, address: number): Buffer;
  /** Offset of the next data (or hole) from `offset` on; null when there is none. */
  seekData(fd: number, offset: number): number | null;
  seekHole(fd: number, offset: number): number | null;
  /** Attributes of an open file, or of what `/proc/self/fd/N` leads to for one that is only named. In byte order. */
  xattrs(fd: number): { name: Buffer; value: Buffer }[];
  setXattr(fd: number, name: Buffer, value: Buffer): void;
  removeXattr(fd: number, name: Buffer): void;
  /** Modification time of a name itself. */
  setMtimeAt(directory: number, name: Buffer, mtimeNs: bigint): void;
  /** The same of an open file, also of one that is only named (O_PATH). */
  setMtime(fd: number, mtimeNs: bigint): void;
  /** The same of one that is open for reading or writing, without looking for it. */
  setMtimeByFd(fd: number, mtimeNs: bigint): void;
  makeDirectoryAt(directory: number, name: Buffer, mode: number): void;
  /** FIFO or socket. */
  makeNodeAt(directory: number, name: Buffer, mode: number): void;
  symlinkAt(target: Buffer, directory: number, name: Buffer): void;
  /** Another name for a file, which may be a link itself. */
  linkAt(from: number, old: Buffer, to: number, name: Buffer): void;
  renameAt(from: number, old: Buffer, to: number, name: Buffer): void;
  unlinkAt(directory: number, name: Buffer): void;
  /** The clock that files' times are taken from, ns: a change from now on has this time or a later one. */
  fileClock(): bigint;
  /** Another one each time the machine starts; null where the system does not tell. */
  bootId(): string | null;
}

/** Words of `System.stat`. */
export const STAT = {
  nlink: 4,
  mode: 7,
  inode: 8,
  size: 10,
  blocks: 12,
  ctime: 24,
  mtime: 28,
  device: 34,
} as const;

const AT_FDCWD = -100;
const AT_SYMLINK_NOFOLLOW = 0x100;
const AT_EMPTY_PATH = 0x1000;
const STATX_BASIC = 0x7ff;
const SEEK_DATA = 3;
const SEEK_HOLE = 4;
const UTIME_OMIT = 0x3ffffffe;
const CLOCK_REALTIME_COARSE = 5;
const O_CLOEXEC = 0o2000000;
const SYS_GETDENTS64: Readonly<Record<string, number>> = { x64: 217, arm64: 61 };
const RECORDS_BYTES = 256 * 1024;
const NAME_BYTES = 8192;
const LINK_BYTES = 4096;
const ATTRIBUTE_BYTES = 64 * 1024;
const SECOND = 1_000_000_000n;

const CODES: Readonly<Record<number, string>> = {
  1: 'EPERM', 2: 'ENOENT', 4: 'EINTR', 5: 'EIO', 6: 'ENXIO', 7: 'E2BIG', 9: 'EBADF', 11: 'EAGAIN', 12: 'ENOMEM', 13: 'EACCES',
  16: 'EBUSY', 17: 'EEXIST', 18: 'EXDEV', 20: 'ENOTDIR', 21: 'EISDIR', 22: 'EINVAL', 23: 'ENFILE', 24: 'EMFILE', 26: 'ETXTBSY',
  27: 'EFBIG', 28: 'ENOSPC', 30: 'EROFS', 31: 'EMLINK', 34: 'ERANGE', 36: 'ENAMETOOLONG', 38: 'ENOSYS', 39: 'ENOTEMPTY',
  40: 'ELOOP', 61: 'ENODATA', 95: 'ENOTSUP', 116: 'ESTALE', 122: 'EDQUOT',
}; // prettier-ignore

/** Null on a machine that has no binary for it. */
export async function loadSystemCalls(): Promise<SystemCalls | null> {
  const getdents64 = SYS_GETDENTS64[arch()];
  if (process.platform !== 'linux' || getdents64 === undefined) return null;
  let koffi;
  try {
    ({ default: koffi } = await import('koffi'));
  } catch (error) {
    console.error('snapshots: without native calls:', error);
    return null;
  }
  const { errno, address } = koffi;
  const libc = koffi.load(null);
  const getdents = libc.func('long syscall(long, int, uintptr_t, long)');
  const statx = libc.func('int statx(int, uintptr_t, int, uint, uintptr_t)');
  const openat = libc.func('int openat(int, uintptr_t, int, uint)');
  const close = libc.func('int close(int)');
  const readlinkat = libc.func('long readlinkat(int, uintptr_t, uintptr_t, long)');
  const lseek = libc.func('int64_t lseek(int, int64_t, int)');
  const flistxattr = libc.func('long flistxattr(int, uintptr_t, long)');
  const listxattr = libc.func('long listxattr(uintptr_t, uintptr_t, long)');
  const getxattr = libc.func('long getxattr(uintptr_t, uintptr_t, uintptr_t, long)');
  const setxattr = libc.func('int setxattr(uintptr_t, uintptr_t, void *, long, int)');
  const removexattr = libc.func('int removexattr(uintptr_t, uintptr_t)');
  const utimensat = libc.func('int utimensat(int, uintptr_t, uintptr_t, int)');
  const futimens = libc.func('int futimens(int, uintptr_t)');
  const mkdirat = libc.func('int mkdirat(int, uintptr_t, uint)');
  const mknodat = libc.func('int mknodat(int, uintptr_t, uint, int64_t)');
  const symlinkat = libc.func('int symlinkat(uintptr_t, int, uintptr_t)');
  const linkat = libc.func('int linkat(int, uintptr_t, int, uintptr_t, int)');
  const renameat = libc.func('int renameat(int, uintptr_t, int, uintptr_t)');
  const unlinkat = libc.func('int unlinkat(int, uintptr_t, int)');
  const clockGettime = libc.func('int clock_gettime(int, uintptr_t)');

  /** Memory that is never moved, and its address. */
  const fixed = (bytes: number): { memory: Buffer; at: number } => {
    const memory = Buffer.allocUnsafeSlow(bytes);
    return { memory, at: Number(address(memory)) };
  };
  const records = fixed(RECORDS_BYTES);
  const one = fixed(NAME_BYTES);
  const other = fixed(NAME_BYTES);
  const link = fixed(LINK_BYTES);
  const attribute = fixed(ATTRIBUTE_BYTES);
  const status = fixed(4096);
  const times = fixed(4096);
  const stat = new Uint32Array(status.memory.buffer, status.memory.byteOffset, 64);
  one.memory[NAME_BYTES - 1] = 0;
  status.memory[512] = 0;
  const emptyPath = status.at + 512;

  const failed = (call: string): Error => {
    const number = errno();
    const code = CODES[number] ?? `E${number}`;
    return Object.assign(new Error(`${code}: ${call}`), { code, errno: -number, syscall: call });
  };
  const checked = (result: unknown, call: string): number => {
    const value = Number(result);
    if (value < 0) throw failed(call);
    return value;
  };
  const put = ({ memory, at }: typeof one, text: Buffer): number => {
    if (text.length >= NAME_BYTES) throw Object.assign(new Error('ENAMETOOLONG'), { code: 'ENAMETOOLONG' });
    // A NUL inside would cut a name short and mean another one.
    if (text.includes(0)) throw Object.assign(new Error('EINVAL: NUL in a name'), { code: 'EINVAL' });
    memory.set(text);
    memory[text.length] = 0;
    return at;
  };
  const pathOf = (fd: number): number => put(one, Buffer.from(`/proc/self/fd/${fd}`));
  const putMtime = (mtimeNs: bigint): number => {
    let seconds = mtimeNs / SECOND;
    if (seconds * SECOND > mtimeNs) seconds -= 1n;
    times.memory.writeBigInt64LE(0n, 0);
    times.memory.writeBigInt64LE(BigInt(UTIME_OMIT), 8);
    times.memory.writeBigInt64LE(seconds, 16);
    times.memory.writeBigInt64LE(mtimeNs - seconds * SECOND, 24);
    return times.at;
  };
  /** An attribute's value may grow between two looks. */
  const value = (path: number, name: number): Buffer | null => {
    const length = Number(getxattr(path, name, attribute.at, ATTRIBUTE_BYTES));
    if (length >= 0) return Buffer.from(attribute.memory.subarray(0, length));
    const error = failed('getxattr');
    if ('code' in error && error.code === 'ENODATA') return null;
    throw error;
  };

  return {
    stat,
    direntBuffer: records.memory,
    direntBufferAddress: records.at,
    readDirents: (fd) => checked(getdents(getdents64, fd, records.at, RECORDS_BYTES), 'getdents64'),
    statAt(directory, name) {
      if (statx(directory, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC, status.at) === 0) return true;
      const error = failed('statx');
      if ('code' in error && error.code === 'ENOENT') return false;
      throw error;
    },
    statFd(fd) {
      checked(statx(fd, emptyPath, AT_EMPTY_PATH, STATX_BASIC, status.at), 'statx');
    },
    addressOf: (name) => put(one, name),
    openAt: (directory, name, flags, mode = 0) =>
      checked(openat(directory, name, flags | O_CLOEXEC, mode), 'openat'),
    close(fd) {
      checked(close(fd), 'close');
    },
    readLinkAt(directory, name) {
      const length = checked(readlinkat(directory, name, link.at, LINK_BYTES), 'readlinkat');
      return Buffer.from(link.memory.subarray(0, length));
    },
    seekData: (fd, offset) => sought(lseek(fd, offset, SEEK_DATA)),
    seekHole: (fd, offset) => sought(lseek(fd, offset, SEEK_HOLE)),
    xattrs(fd) {
      // Asking by the descriptor costs a tenth, but one that is only named cannot be asked. Most files have none.
      let length = Number(flistxattr(fd, attribute.at, ATTRIBUTE_BYTES));
      if (length === 0) return [];
      const path = pathOf(fd);
      if (length < 0) length = Number(listxattr(path, attribute.at, ATTRIBUTE_BYTES));
      if (length < 0) {
        const error = failed('listxattr');
        if ('code' in error && error.code === 'ENOTSUP') return [];
        throw error;
      }
      if (length === 0) return [];
      const names = attribute.memory.subarray(0, length).toString('latin1').split('\0');
      const found = [];
      for (const text of names) {
        // The others are the system's, or not for us to set.
        if (!text.startsWith('user.')) continue;
        const name = Buffer.from(text, 'latin1');
        const content = value(path, put(other, name));
        if (content !== null) found.push({ name, value: content });
      }
      return found.sort((left, right) => left.name.compare(right.name));
    },
    setXattr(fd, name, content) {
      // A buffer without bytes has no address.
      const bytes = content.length === 0 ? Buffer.alloc(1) : content;
      checked(setxattr(pathOf(fd), put(other, name), bytes, content.length, 0), 'setxattr');
    },
    removeXattr(fd, name) {
      checked(removexattr(pathOf(fd), put(other, name)), 'removexattr');
    },
    setMtimeAt(directory, name, mtimeNs) {
      const at = putMtime(mtimeNs);
      checked(utimensat(directory, put(one, name), at, AT_SYMLINK_NOFOLLOW), 'utimensat');
    },
    setMtime(fd, mtimeNs) {
      const at = putMtime(mtimeNs);
      checked(utimensat(AT_FDCWD, pathOf(fd), at, 0), 'utimensat');
    },
    setMtimeByFd(fd, mtimeNs) {
      checked(futimens(fd, putMtime(mtimeNs)), 'futimens');
    },
    makeDirectoryAt(directory, name, mode) {
      checked(mkdirat(directory, put(one, name), mode), 'mkdirat');
    },
    makeNodeAt(directory, name, mode) {
      checked(mknodat(directory, put(one, name), mode, 0), 'mknodat');
    },
    symlinkAt(target, directory, name) {
      checked(symlinkat(put(one, target), directory, put(other, name)), 'symlinkat');
    },
    linkAt(from, old, to, name) {
      checked(linkat(from, put(one, old), to, put(other, name), 0), 'linkat');
    },
    renameAt(from, old, to, name) {
      checked(renameat(from, put(one, old), to, put(other, name)), 'renameat');
    },
    unlinkAt(directory, name) {
      checked(unlinkat(directory, put(one, name), 0), 'unlinkat');
    },
    fileClock() {
      checked(clockGettime(CLOCK_REALTIME_COARSE, times.at), 'clock_gettime');
      return times.memory.readBigInt64LE(0) * SECOND + times.memory.readBigInt64LE(8);
    },
    bootId() {
      try {
        return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
      } catch (error) {
        if (errnoOf(error) === undefined) throw error;
        return null;
      }
    },
  };

  function sought(result: unknown): number | null {
    const value = Number(result);
    if (value >= 0) return value;
    const error = failed('lseek');
    if ('code' in error && error.code === 'ENXIO') return null;
    throw error;
  }
}

/** Open flags for what an agent may have put there: nothing is followed, nobody is waited for. */
export const SAFE_OPEN_FLAGS =
  constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;
export const SAFE_DIRECTORY_FLAGS = SAFE_OPEN_FLAGS | constants.O_DIRECTORY;

/** A name that is no directory now, or no name at all. */
export function isGone(error: unknown): boolean {
  const code = errnoOf(error);
  return code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP';
}
