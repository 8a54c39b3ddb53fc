import { constants } from 'node:fs';
import { errnoOf } from '../files/directory.ts';
import { loadLibc } from '../libc.ts';
import { attributeCalls, bootId, entryCalls, nameBuffers, readCalls, timeCalls } from './linux-calls.ts';

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

/** Null if the machine lacks them. */
export async function loadSystemCalls(): Promise<SystemCalls | null> {
  const libc = await loadLibc('snapshots: system calls are not available');
  if (libc === null) return null;
  const names = nameBuffers(libc);
  return {
    ...readCalls(libc, names),
    ...attributeCalls(libc, names),
    ...timeCalls(libc, names),
    ...entryCalls(libc, names),
    bootId,
  };
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
