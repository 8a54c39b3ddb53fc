import { readFileSync } from 'node:fs';
import { errnoOf } from '../files/directory.ts';
import {
  AT_EMPTY_PATH,
  AT_FDCWD,
  AT_SYMLINK_NOFOLLOW,
  type Libc,
  O_CLOEXEC,
  SEEK_DATA,
  SEEK_HOLE,
} from '../libc.ts';
import type { SystemCalls } from './system-calls.ts';

const STATX_BASIC = 0x7ff;
const UTIME_OMIT = 0x3ffffffe;
const CLOCK_REALTIME_COARSE = 5;
const DIRENTS_BYTES = 256 * 1024;
const NAME_BYTES = 8192;
const LINK_BYTES = 4096;
const ATTRIBUTE_BYTES = 64 * 1024;
const PAGE_BYTES = 4096;
const STAT_WORDS = 64;
/** Where an empty path is in the page of the stat. */
const EMPTY_PATH_OFFSET = 512;
const SECOND = 1_000_000_000n;

/** Memory at a fixed address. */
interface FixedMemory {
  readonly memory: Buffer;
  readonly address: number;
}

/** Memory for the names of one call. */
export interface NameBuffers {
  /** Copies a name to the first buffer. Returns its address. */
  first(name: Buffer): number;
  /** The same for a call with two names. */
  second(name: Buffer): number;
  /** Address of the path of an open file. Uses the first buffer. */
  pathOf(fd: number): number;
}

type ReadCalls = Pick<
  SystemCalls,
  | 'stat'
  | 'direntBuffer'
  | 'direntBufferAddress'
  | 'readDirents'
  | 'statAt'
  | 'statFd'
  | 'addressOf'
  | 'openAt'
  | 'close'
  | 'readLinkAt'
  | 'seekData'
  | 'seekHole'
>;
type AttributeCalls = Pick<SystemCalls, 'xattrs' | 'setXattr' | 'removeXattr'>;
type TimeCalls = Pick<SystemCalls, 'setMtimeAt' | 'setMtime' | 'setMtimeByFd' | 'fileClock'>;
type EntryCalls = Pick<
  SystemCalls,
  'makeDirectoryAt' | 'makeNodeAt' | 'symlinkAt' | 'linkAt' | 'renameAt' | 'unlinkAt'
>;

function fixedMemory(libc: Libc, bytes: number): FixedMemory {
  const memory = Buffer.allocUnsafeSlow(bytes);
  return { memory, address: libc.addressOf(memory) };
}

export function nameBuffers(libc: Libc): NameBuffers {
  const [first, second] = [fixedMemory(libc, NAME_BYTES), fixedMemory(libc, NAME_BYTES)];
  return {
    first: (name) => putName(first, name),
    second: (name) => putName(second, name),
    pathOf: (fd) => putName(first, Buffer.from(`/proc/self/fd/${fd}`)),
  };
}

function putName({ memory, address }: FixedMemory, name: Buffer): number {
  if (name.length >= NAME_BYTES) throw Object.assign(new Error('ENAMETOOLONG'), { code: 'ENAMETOOLONG' });
  // A NUL inside would shorten the name.
  if (name.includes(0)) throw Object.assign(new Error('EINVAL: NUL in a name'), { code: 'EINVAL' });
  memory.set(name);
  memory[name.length] = 0;
  return address;
}

/** Calls that list, stat, open and seek. */
export function readCalls(libc: Libc, names: NameBuffers): ReadCalls {
  const { checked, failed } = libc;
  const getdents = libc.func('long syscall(long, int, uintptr_t, long)');
  const statx = libc.func('int statx(int, uintptr_t, int, uint, uintptr_t)');
  const openat = libc.func('int openat(int, uintptr_t, int, uint)');
  const close = libc.func('int close(int)');
  const readlinkat = libc.func('long readlinkat(int, uintptr_t, uintptr_t, long)');
  const lseek = libc.func('int64_t lseek(int, int64_t, int)');
  const { getdents64 } = libc.numbers;
  const dirents = fixedMemory(libc, DIRENTS_BYTES);
  const link = fixedMemory(libc, LINK_BYTES);
  const status = fixedMemory(libc, PAGE_BYTES);
  status.memory[EMPTY_PATH_OFFSET] = 0;
  const emptyPath = status.address + EMPTY_PATH_OFFSET;
  const offsetOf = (result: unknown): number | null => {
    const offset = Number(result);
    if (offset >= 0) return offset;
    const error = failed('lseek');
    if (error.code === 'ENXIO') return null;
    throw error;
  };
  return {
    stat: new Uint32Array(status.memory.buffer, status.memory.byteOffset, STAT_WORDS),
    direntBuffer: dirents.memory,
    direntBufferAddress: dirents.address,
    readDirents: (fd) => checked(getdents(getdents64, fd, dirents.address, DIRENTS_BYTES), 'getdents64'),
    statAt(dirfd, name) {
      if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC, status.address) === 0) return true;
      const error = failed('statx');
      if (error.code === 'ENOENT') return false;
      throw error;
    },
    statFd(fd) {
      checked(statx(fd, emptyPath, AT_EMPTY_PATH, STATX_BASIC, status.address), 'statx');
    },
    addressOf: (name) => names.first(name),
    openAt: (dirfd, name, flags, mode = 0) => checked(openat(dirfd, name, flags | O_CLOEXEC, mode), 'openat'),
    close(fd) {
      checked(close(fd), 'close');
    },
    readLinkAt(dirfd, name) {
      const length = checked(readlinkat(dirfd, name, link.address, LINK_BYTES), 'readlinkat');
      return Buffer.from(link.memory.subarray(0, length));
    },
    seekData: (fd, offset) => offsetOf(lseek(fd, offset, SEEK_DATA)),
    seekHole: (fd, offset) => offsetOf(lseek(fd, offset, SEEK_HOLE)),
  };
}

/** Calls for extended attributes. */
export function attributeCalls(libc: Libc, names: NameBuffers): AttributeCalls {
  const { checked, failed } = libc;
  const flistxattr = libc.func('long flistxattr(int, uintptr_t, long)');
  const listxattr = libc.func('long listxattr(uintptr_t, uintptr_t, long)');
  const getxattr = libc.func('long getxattr(uintptr_t, uintptr_t, uintptr_t, long)');
  const setxattr = libc.func('int setxattr(uintptr_t, uintptr_t, void *, long, int)');
  const removexattr = libc.func('int removexattr(uintptr_t, uintptr_t)');
  const buffer = fixedMemory(libc, ATTRIBUTE_BYTES);
  /** Names of the attributes, one after the other and each with a NUL. Null if the file system has none. */
  const list = (fd: number, path: () => number): string | null => {
    // flistxattr costs a tenth of listxattr, but fails for O_PATH. Most files have no attributes.
    let length = Number(flistxattr(fd, buffer.address, ATTRIBUTE_BYTES));
    if (length < 0) length = Number(listxattr(path(), buffer.address, ATTRIBUTE_BYTES));
    if (length < 0) {
      const error = failed('listxattr');
      if (error.code === 'ENOTSUP') return null;
      throw error;
    }
    return length === 0 ? null : buffer.memory.toString('latin1', 0, length);
  };
  /** The value may have changed since the attributes were listed. Null if it is gone. */
  const read = (path: number, name: number): Buffer | null => {
    const length = Number(getxattr(path, name, buffer.address, ATTRIBUTE_BYTES));
    if (length >= 0) return Buffer.from(buffer.memory.subarray(0, length));
    const error = failed('getxattr');
    if (error.code === 'ENODATA') return null;
    throw error;
  };
  return {
    xattrs(fd) {
      const listed = list(fd, () => names.pathOf(fd));
      if (listed === null) return [];
      const path = names.pathOf(fd);
      const found = [];
      for (const text of listed.split('\0')) {
        // Other namespaces belong to the system, or cannot be set by us.
        if (!text.startsWith('user.')) continue;
        const name = Buffer.from(text, 'latin1');
        const value = read(path, names.second(name));
        if (value !== null) found.push({ name, value });
      }
      return found.sort((one, other) => one.name.compare(other.name));
    },
    setXattr(fd, name, value) {
      // An empty buffer has no address.
      const bytes = value.length === 0 ? Buffer.alloc(1) : value;
      checked(setxattr(names.pathOf(fd), names.second(name), bytes, value.length, 0), 'setxattr');
    },
    removeXattr(fd, name) {
      checked(removexattr(names.pathOf(fd), names.second(name)), 'removexattr');
    },
  };
}

/** Calls that set modification times, and the clock of file timestamps. */
export function timeCalls(libc: Libc, names: NameBuffers): TimeCalls {
  const { checked } = libc;
  const utimensat = libc.func('int utimensat(int, uintptr_t, uintptr_t, int)');
  const futimens = libc.func('int futimens(int, uintptr_t)');
  const clockGettime = libc.func('int clock_gettime(int, uintptr_t)');
  const times = fixedMemory(libc, PAGE_BYTES);
  const putMtime = (mtimeNs: bigint): number => {
    let seconds = mtimeNs / SECOND;
    if (seconds * SECOND > mtimeNs) seconds -= 1n;
    times.memory.writeBigInt64LE(0n, 0);
    times.memory.writeBigInt64LE(BigInt(UTIME_OMIT), 8);
    times.memory.writeBigInt64LE(seconds, 16);
    times.memory.writeBigInt64LE(mtimeNs - seconds * SECOND, 24);
    return times.address;
  };
  return {
    setMtimeAt(dirfd, name, mtimeNs) {
      const at = putMtime(mtimeNs);
      checked(utimensat(dirfd, names.first(name), at, AT_SYMLINK_NOFOLLOW), 'utimensat');
    },
    setMtime(fd, mtimeNs) {
      const at = putMtime(mtimeNs);
      checked(utimensat(AT_FDCWD, names.pathOf(fd), at, 0), 'utimensat');
    },
    setMtimeByFd(fd, mtimeNs) {
      checked(futimens(fd, putMtime(mtimeNs)), 'futimens');
    },
    fileClock() {
      checked(clockGettime(CLOCK_REALTIME_COARSE, times.address), 'clock_gettime');
      return times.memory.readBigInt64LE(0) * SECOND + times.memory.readBigInt64LE(8);
    },
  };
}

/** Calls that create, rename and remove entries. */
export function entryCalls(libc: Libc, names: NameBuffers): EntryCalls {
  const { checked } = libc;
  const mkdirat = libc.func('int mkdirat(int, uintptr_t, uint)');
  const mknodat = libc.func('int mknodat(int, uintptr_t, uint, int64_t)');
  const symlinkat = libc.func('int symlinkat(uintptr_t, int, uintptr_t)');
  const linkat = libc.func('int linkat(int, uintptr_t, int, uintptr_t, int)');
  const renameat = libc.func('int renameat(int, uintptr_t, int, uintptr_t)');
  const unlinkat = libc.func('int unlinkat(int, uintptr_t, int)');
  return {
    makeDirectoryAt(dirfd, name, mode) {
      checked(mkdirat(dirfd, names.first(name), mode), 'mkdirat');
    },
    makeNodeAt(dirfd, name, mode) {
      checked(mknodat(dirfd, names.first(name), mode, 0), 'mknodat');
    },
    symlinkAt(target, dirfd, name) {
      checked(symlinkat(names.first(target), dirfd, names.second(name)), 'symlinkat');
    },
    linkAt(from, old, to, name) {
      checked(linkat(from, names.first(old), to, names.second(name), 0), 'linkat');
    },
    renameAt(from, old, to, name) {
      checked(renameat(from, names.first(old), to, names.second(name)), 'renameat');
    },
    unlinkAt(dirfd, name) {
      checked(unlinkat(dirfd, names.first(name), 0), 'unlinkat');
    },
  };
}

/** See `SystemCalls.bootId`. */
export function bootId(): string | null {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    return null;
  }
}
