import { arch } from 'node:os';
import { constants, readFileSync } from 'node:fs';
import { errnoOf } from '../files/directory.ts';

/**
 * System calls for walks through many files. Names and results are in memory at fixed addresses, so a call costs little
 * more than the kernel's share. Two threads must not share an instance.
 */
export interface SystemCalls {
  /** Result of the last `statAt` or `statFd`: struct statx as 32-bit words, see `STAT`. */
  readonly stat: Uint32Array;
  /** Result of the last `readDirents`: records of `getdents64`. */
  readonly direntBuffer: Buffer;
  /** Address of `direntBuffer`, for names in it. */
  readonly direntBufferAddress: number;
  /** Reads the next names of an open directory. Returns their bytes, and 0 at the end. */
  readDirents(fd: number): number;
  /** lstat of a name. False if it does not exist. `address`: of a NUL-terminated name. */
  statAt(dirfd: number, address: number): boolean;
  statFd(fd: number): void;
  /** Address of a copy of the name, valid until the next call that takes a name. */
  addressOf(name: Buffer): number;
  openAt(dirfd: number, address: number, flags: number, mode?: number): number;
  close(fd: number): void;
  readLinkAt(dirfd: number, address: number): Buffer;
  /** Offset of the next data (or hole) from `offset` on. Null if there is none. */
  seekData(fd: number, offset: number): number | null;
  seekHole(fd: number, offset: number): number | null;
  /** Extended attributes of a file, which may be an O_PATH descriptor. In byte order. */
  xattrs(fd: number): { name: Buffer; value: Buffer }[];
  setXattr(fd: number, name: Buffer, value: Buffer): void;
  removeXattr(fd: number, name: Buffer): void;
  /** Sets the mtime of a name. A link is not followed. */
  setMtimeAt(dirfd: number, name: Buffer, mtimeNs: bigint): void;
  /** Sets the mtime of a descriptor, which may be O_PATH. */
  setMtime(fd: number, mtimeNs: bigint): void;
  /** Sets the mtime of a file open for reading or writing, without a path lookup. */
  setMtimeByFd(fd: number, mtimeNs: bigint): void;
  makeDirectoryAt(dirfd: number, name: Buffer, mode: number): void;
  /** Creates a FIFO or a socket. */
  makeNodeAt(dirfd: number, name: Buffer, mode: number): void;
  symlinkAt(target: Buffer, dirfd: number, name: Buffer): void;
  /** Adds a hard link. `old` may be a symbolic link itself. */
  linkAt(from: number, old: Buffer, to: number, name: Buffer): void;
  renameAt(from: number, old: Buffer, to: number, name: Buffer): void;
  unlinkAt(dirfd: number, name: Buffer): void;
  /** The clock of file timestamps, ns. A later change has this time or a later one. */
  fileClock(): bigint;
  /** Differs at each boot. Null if the system does not report it. */
  bootId(): string | null;
}

/** Word offsets in `SystemCalls.stat`. */
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

/** Null if koffi has no binary for this machine. */
export async function loadSystemCalls(): Promise<SystemCalls | null> {
  const getdents64 = SYS_GETDENTS64[arch()];
  if (process.platform !== 'linux' || getdents64 === undefined) return null;
  let koffi;
  try {
    ({ default: koffi } = await import('koffi'));
  } catch (error) {
    console.error('snapshots: system calls are not available:', error);
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

  /** Memory at a fixed address. */
  const fixed = (bytes: number): { memory: Buffer; at: number } => {
    const memory = Buffer.allocUnsafeSlow(bytes);
    return { memory, at: Number(address(memory)) };
  };
  const dirents = fixed(RECORDS_BYTES);
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
    // A NUL inside would shorten the name.
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
  /** The value may have changed since the attributes were listed. */
  const value = (path: number, name: number): Buffer | null => {
    const length = Number(getxattr(path, name, attribute.at, ATTRIBUTE_BYTES));
    if (length >= 0) return Buffer.from(attribute.memory.subarray(0, length));
    const error = failed('getxattr');
    if ('code' in error && error.code === 'ENODATA') return null;
    throw error;
  };

  return {
    stat,
    direntBuffer: dirents.memory,
    direntBufferAddress: dirents.at,
    readDirents: (fd) => checked(getdents(getdents64, fd, dirents.at, RECORDS_BYTES), 'getdents64'),
    statAt(dirfd, name) {
      if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC, status.at) === 0) return true;
      const error = failed('statx');
      if ('code' in error && error.code === 'ENOENT') return false;
      throw error;
    },
    statFd(fd) {
      checked(statx(fd, emptyPath, AT_EMPTY_PATH, STATX_BASIC, status.at), 'statx');
    },
    addressOf: (name) => put(one, name),
    openAt: (dirfd, name, flags, mode = 0) => checked(openat(dirfd, name, flags | O_CLOEXEC, mode), 'openat'),
    close(fd) {
      checked(close(fd), 'close');
    },
    readLinkAt(dirfd, name) {
      const length = checked(readlinkat(dirfd, name, link.at, LINK_BYTES), 'readlinkat');
      return Buffer.from(link.memory.subarray(0, length));
    },
    seekData: (fd, offset) => sought(lseek(fd, offset, SEEK_DATA)),
    seekHole: (fd, offset) => sought(lseek(fd, offset, SEEK_HOLE)),
    xattrs(fd) {
      // flistxattr costs a tenth of listxattr, but fails for O_PATH. Most files have no attributes.
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
        // Other namespaces belong to the system, or cannot be set by us.
        if (!text.startsWith('user.')) continue;
        const name = Buffer.from(text, 'latin1');
        const content = value(path, put(other, name));
        if (content !== null) found.push({ name, value: content });
      }
      return found.sort((left, right) => left.name.compare(right.name));
    },
    setXattr(fd, name, content) {
      // An empty buffer has no address.
      const bytes = content.length === 0 ? Buffer.alloc(1) : content;
      checked(setxattr(pathOf(fd), put(other, name), bytes, content.length, 0), 'setxattr');
    },
    removeXattr(fd, name) {
      checked(removexattr(pathOf(fd), put(other, name)), 'removexattr');
    },
    setMtimeAt(dirfd, name, mtimeNs) {
      const at = putMtime(mtimeNs);
      checked(utimensat(dirfd, put(one, name), at, AT_SYMLINK_NOFOLLOW), 'utimensat');
    },
    setMtime(fd, mtimeNs) {
      const at = putMtime(mtimeNs);
      checked(utimensat(AT_FDCWD, pathOf(fd), at, 0), 'utimensat');
    },
    setMtimeByFd(fd, mtimeNs) {
      checked(futimens(fd, putMtime(mtimeNs)), 'futimens');
    },
    makeDirectoryAt(dirfd, name, mode) {
      checked(mkdirat(dirfd, put(one, name), mode), 'mkdirat');
    },
    makeNodeAt(dirfd, name, mode) {
      checked(mknodat(dirfd, put(one, name), mode, 0), 'mknodat');
    },
    symlinkAt(target, dirfd, name) {
      checked(symlinkat(put(one, target), dirfd, put(other, name)), 'symlinkat');
    },
    linkAt(from, old, to, name) {
      checked(linkat(from, put(one, old), to, put(other, name), 0), 'linkat');
    },
    renameAt(from, old, to, name) {
      checked(renameat(from, put(one, old), to, put(other, name)), 'renameat');
    },
    unlinkAt(dirfd, name) {
      checked(unlinkat(dirfd, put(one, name), 0), 'unlinkat');
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

/** Open flags for files that the agent may have replaced: follow no link and never block. */
export const SAFE_OPEN_FLAGS =
  constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;
export const SAFE_DIRECTORY_FLAGS = SAFE_OPEN_FLAGS | constants.O_DIRECTORY;

/** The name is missing or no longer a directory. */
export function isGone(error: unknown): boolean {
  const code = errnoOf(error);
  return code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP';
}
