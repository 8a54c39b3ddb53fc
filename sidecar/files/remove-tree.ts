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
/** Linux: a descriptor that only names a file; Node has no constant for it. */
const O_PATH = 0o10000000;
const OWNER_ALL = 0o700;
/** Passes over the root without anything getting less before somebody else must be writing there. */
const PATIENCE = 20;

export interface RemovalTotals {
  files: number;
  bytes: number;
}

export interface RemoveOptions {
  /** Where others see the folder: names that it gets meanwhile are noted as ours. */
  readonly own?: TemporaryEntries;
  readonly signal?: AbortSignal;
  /** Called at every break. */
  readonly onProgress?: (removed: Readonly<RemovalTotals>) => void;
}

/**
 * Empties a directory of our own uid, whatever the modes and however deep. Folders inside folders are first moved up to the
 * root, so that no path gets long and two descriptors are enough; killed in between, the next call goes on with what is left.
 */
export async function emptyDirectory(root: Directory, options: RemoveOptions = {}): Promise<RemovalTotals> {
  const { own } = options;
  const moved =
    own?.newName('removing') ?? Buffer.from(`.holdfast-removing-${randomBytes(8).toString('hex')}`);
  const names = { moved, count: 0, noted: false };
  try {
    return await emptied(root, options, () => {
      if (!names.noted) own?.register(moved, root);
      names.noted = true;
      names.count += 1;
      return `${moved.toString()}-${names.count}`;
    });
  } finally {
    if (names.noted) own?.unregister(moved);
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

  /** One pass over `directory`. Folders in it are taken by `onFolder`. Returns how many entries there were and how many stayed. */
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
      for (let tries = 0; tries < PATIENCE; tries += 1) {
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
    if (stuck === PATIENCE) {
      throw new HoldfastError('directory_not_empty', 'Not everything could be removed', {
        why: cause instanceof Error ? cause.message : 'something goes on writing there',
        next: 'stop what writes to it and try again',
        cause,
      });
    }
  }
}

/** Removes one folder of ours with all that is in it. */
export async function removeTree(parent: Directory, name: string): Promise<void> {
  grantOwnerAccess(parent, Buffer.from(name));
  {
    using folder = parent.openDirectory(name);
    await emptyDirectory(folder);
  }
  rmdirSync(parent.path(name));
}

/** Gives the owner its way into a folder, without following a link that was put in its place. */
export function grantOwnerAccess(parent: Directory, name: Buffer): void {
  const fd = openSync(parent.pathOf(name), O_PATH | O_DIRECTORY | O_NOFOLLOW);
  try {
    grantOwnerAccessByFd(fd);
  } finally {
    closeSync(fd);
  }
}

/** The same for an open folder. */
export function grantOwnerAccessByFd(fd: number): void {
  const { mode } = fstatSync(fd);
  if ((mode & OWNER_ALL) !== OWNER_ALL) chmodSync(`/proc/self/fd/${fd}`, (mode & 0o7777) | OWNER_ALL);
}

/** False when it is a folder. */
function removeFile(directory: Directory, name: Buffer, removed: RemovalTotals): boolean {
  const path = directory.pathOf(name);
  const stat = lstatSync(path);
  if (stat.isDirectory()) return false;
  unlinkSync(path);
  removed.files += 1;
  if (stat.isFile() && stat.nlink === 1) removed.bytes += stat.size;
  return true;
}

/** Node types names of `encoding: 'buffer'` as strings. */
function asBuffer(name: unknown): Buffer {
  if (Buffer.isBuffer(name)) return name;
  throw new TypeError('a name came as text');
}
