import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  opendirSync,
  renameSync,
  rmdirSync,
  unlinkSync,
} from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Directory } from './directory.ts';
import { errnoOf } from './directory.ts';
import type { TemporaryEntries } from './temporary-entries.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';

const { O_DIRECTORY, O_NOFOLLOW } = constants;
/** Linux: the descriptor only names the file. Node has no constant for it. */
const O_PATH = 0o10000000;
const OWNER_ALL = 0o700;
/** Passes without progress after which another process must be writing to the directory. */
const MAX_IDLE_PASSES = 20;

export interface RemovalTotals {
  files: number;
  bytes: number;
}

export interface RemoveOptions {
  /** Registers the temporary names, if other processes can see the directory. */
  readonly temporaryEntries?: TemporaryEntries;
  readonly signal?: AbortSignal;
  /** Called at every pause. */
  readonly onProgress?: (removed: Readonly<RemovalTotals>) => void;
}

/**
 * Empties a directory of our own uid, whatever its modes and depth. Nested directories are first moved up to the root,
 * so paths stay short and two descriptors suffice. After a crash the next call continues.
 */
export async function emptyDirectory(root: Directory, options: RemoveOptions = {}): Promise<RemovalTotals> {
  const { temporaryEntries } = options;
  const moved =
    temporaryEntries?.newName('removing') ??
    Buffer.from(`.holdfast-removing-${randomBytes(8).toString('hex')}`);
  const names = { moved, count: 0, noted: false };
  try {
    return await emptied(root, options, () => {
      if (!names.noted) temporaryEntries?.register(moved, root);
      names.noted = true;
      names.count += 1;
      return `${moved.toString()}-${names.count}`;
    });
  } finally {
    if (names.noted) temporaryEntries?.unregister(moved);
  }
}

async function emptied(
  root: Directory,
  options: RemoveOptions,
  newName: () => string,
): Promise<RemovalTotals> {
  const removed: RemovalTotals = { files: 0, bytes: 0 };
  const slices = new TimeSlice(options.signal);
  let count = 0;
  let stuck = 0;
  let cause: unknown;

  /**
   * One pass over a directory. `onFolder` handles subdirectories. Returns how many entries were seen and how many are
   * left.
   */
  const pass = async (
    directory: Directory,
    onFolder: (name: Buffer) => Promise<boolean>,
  ): Promise<{ seen: number; left: number }> => {
    let seen = 0;
    let left = 0;
    const entries = opendirSync(directory.selfPath, {
      encoding: 'buffer' as BufferEncoding,
      bufferSize: 256,
    });
    try {
      for (let entry = entries.readSync(); entry !== null; entry = entries.readSync()) {
        seen += 1;
        const name = asBuffer(entry.name);
        try {
          if (entry.isDirectory() || !removeFile(directory, name, removed)) {
            if (!(await onFolder(name))) left += 1;
          }
        } catch (error) {
          if (errnoOf(error) === 'ENOENT') continue;
          left += 1;
          cause = error;
        }
        if (slices.isUsedUp) {
          options.onProgress?.(removed);
          await slices.yieldToEventLoop();
        }
      }
    } finally {
      entries.closeSync();
    }
    return { seen, left };
  };

  const raise = async (from: Directory, name: Buffer): Promise<boolean> => {
    grantOwnerAccess(from, name);
    renameSync(from.pathOf(name), root.path(newName()));
    count += 1;
    return true;
  };

  const removeFolder = async (name: Buffer): Promise<boolean> => {
    grantOwnerAccess(root, name);
    {
      using folder = root.openDirectory(name);
      for (let tries = 0; tries < MAX_IDLE_PASSES; tries += 1) {
        const { seen } = await pass(folder, (child) => raise(folder, child));
        if (seen === 0) break;
      }
    }
    rmdirSync(root.pathOf(name));
    return true;
  };

  for (;;) {
    const before = removed.files + count;
    const { seen, left } = await pass(root, removeFolder);
    if (seen === 0) return removed;
    if (left === 0 || removed.files + count > before) stuck = 0;
    else stuck += 1;
    if (stuck === MAX_IDLE_PASSES) {
      throw new HoldfastError('directory_not_empty', 'Not everything could be removed', {
        why: cause instanceof Error ? cause.message : 'a process keeps writing to it',
        next: 'stop the process and try again',
        cause,
      });
    }
  }
}

/** Removes a directory of our own and everything below it. */
export async function removeTree(parent: Directory, name: string): Promise<void> {
  grantOwnerAccess(parent, Buffer.from(name));
  {
    using folder = parent.openDirectory(name);
    await emptyDirectory(folder);
  }
  rmdirSync(parent.path(name));
}

/** Gives the owner access to a directory. A link in its place is not followed. */
export function grantOwnerAccess(parent: Directory, name: Buffer): void {
  const fd = openSync(parent.pathOf(name), O_PATH | O_DIRECTORY | O_NOFOLLOW);
  try {
    grantOwnerAccessByFd(fd);
  } finally {
    closeSync(fd);
  }
}

/** The same for an open directory. */
export function grantOwnerAccessByFd(fd: number): void {
  const { mode } = fstatSync(fd);
  if ((mode & OWNER_ALL) !== OWNER_ALL) chmodSync(`/proc/self/fd/${fd}`, (mode & 0o7777) | OWNER_ALL);
}

/** False if it is a directory. */
function removeFile(directory: Directory, name: Buffer, removed: RemovalTotals): boolean {
  const path = directory.pathOf(name);
  const stat = lstatSync(path);
  if (stat.isDirectory()) return false;
  unlinkSync(path);
  removed.files += 1;
  if (stat.isFile() && stat.nlink === 1) removed.bytes += stat.size;
  return true;
}

/** Node declares names with `encoding: 'buffer'` as strings. */
function asBuffer(name: unknown): Buffer {
  if (Buffer.isBuffer(name)) return name;
  throw new TypeError('a name came as text');
}
