import { arch } from 'node:os';
import type { KoffiFunc } from 'koffi';

/** Arguments and result are as in the C prototype. */
type CFunction = KoffiFunc<(...args: unknown[]) => unknown>;

/** Numbers of system calls that the C library, or an old one, has no function for. */
const SYSTEM_CALL_NUMBERS: Readonly<Record<string, SystemCallNumbers>> = {
  x64: { openat2: 437, renameat2: 316, getdents64: 217 },
  arm64: { openat2: 437, renameat2: 276, getdents64: 61 },
};
const ERRNO_NAMES: Readonly<Record<number, string>> = {
  1: 'EPERM', 2: 'ENOENT', 4: 'EINTR', 5: 'EIO', 6: 'ENXIO', 7: 'E2BIG', 9: 'EBADF', 11: 'EAGAIN', 12: 'ENOMEM',
  13: 'EACCES', 16: 'EBUSY', 17: 'EEXIST', 18: 'EXDEV', 20: 'ENOTDIR', 21: 'EISDIR', 22: 'EINVAL', 23: 'ENFILE',
  24: 'EMFILE', 26: 'ETXTBSY', 27: 'EFBIG', 28: 'ENOSPC', 30: 'EROFS', 31: 'EMLINK', 34: 'ERANGE', 36: 'ENAMETOOLONG',
  38: 'ENOSYS', 39: 'ENOTEMPTY', 40: 'ELOOP', 61: 'ENODATA', 95: 'ENOTSUP', 116: 'ESTALE', 122: 'EDQUOT',
}; // prettier-ignore

export const AT_FDCWD = -100;
export const AT_SYMLINK_NOFOLLOW = 0x100;
export const AT_SYMLINK_FOLLOW = 0x400;
export const AT_EMPTY_PATH = 0x1000;
export const O_CLOEXEC = 0o2000000;
export const SEEK_DATA = 3;
export const SEEK_HOLE = 4;

interface SystemCallNumbers {
  readonly openat2: number;
  readonly renameat2: number;
  readonly getdents64: number;
}

/** The C library of a Linux machine, for system calls that Node lacks. */
export interface Libc {
  readonly numbers: SystemCallNumbers;
  /** A function by its C prototype. */
  readonly func: (prototype: string) => CFunction;
  /** Address of a buffer, which must not be moved or freed while it is in use. */
  readonly addressOf: (buffer: Buffer) => number;
  /** The error of a call that has just failed, with the system's `code`. */
  readonly failed: (call: string) => NodeJS.ErrnoException;
  /** The result of a call as a number. Throws `failed` if it is negative. */
  readonly checked: (result: unknown, call: string) => number;
}

/**
 * Loads koffi, which takes some ten milliseconds, so only when it is needed. Null on another system, or if koffi has no
 * binary for this machine; `consequence` is then logged.
 */
export async function loadLibc(consequence: string): Promise<Libc | null> {
  const numbers = SYSTEM_CALL_NUMBERS[arch()];
  if (process.platform !== 'linux' || numbers === undefined) return null;
  let koffi;
  try {
    ({ default: koffi } = await import('koffi'));
  } catch (error) {
    console.error(`${consequence}:`, error);
    return null;
  }
  const { errno, address } = koffi;
  const library = koffi.load(null);
  const failed = (call: string): NodeJS.ErrnoException => {
    const number = errno();
    const code = ERRNO_NAMES[number] ?? `E${number}`;
    return Object.assign(new Error(`${code}: ${call}`), { code, errno: -number, syscall: call });
  };
  return {
    numbers,
    func: (prototype) => library.func(prototype),
    addressOf: (buffer) => Number(address(buffer)),
    failed,
    checked(result, call) {
      const value = Number(result);
      if (value < 0) throw failed(call);
      return value;
    },
  };
}
