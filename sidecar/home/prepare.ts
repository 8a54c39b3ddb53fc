import {
  chmodSync,
  closeSync,
  constants,
  lstatSync,
  openSync,
  opendirSync,
  rmdirSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { Directory, errnoOf } from '../files/directory.ts';
import {
  type RemovalTotals,
  type RemoveOptions,
  emptyDirectory,
  grantOwnerAccess,
} from '../files/remove-tree.ts';
import { START_FILES } from './start-files.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
const HOME_MODE = 0o700;
/** Linux: the descriptor only names the file. Node has no constant for it. */
const O_PATH = 0o10000000;
/** Passes over a directory after which a process must be filling it. */
const MAX_PASSES = 100;

/** Kept names of a directory (latin1 of their bytes): null if all of it is kept, else what is kept in it. */
export type Kept = ReadonlyMap<string, Kept | null>;
type KeptNames = Map<string, KeptNames | null>;

/**
 * Removes everything in HOME except the kept paths, then writes our start files where they are missing. Works by
 * descriptors and follows no link: a link, a file or a FIFO in the place of a kept path's parent is removed, and one in
 * the place of the kept path itself stays as it is. Nothing of the agent runs meanwhile. An interrupted call is
 * repeated.
 */
export async function prepareHome(
  path: string,
  kept: readonly string[],
  options: RemoveOptions = {},
): Promise<RemovalTotals> {
  using home = openOwned(path);
  const removed: RemovalTotals = { files: 0, bytes: 0 };
  await emptyExcept(home, keptNames(kept), removed, options);
  for (const [name, text] of Object.entries(START_FILES)) writeStartFile(home, name, text);
  return removed;
}

/** Removes everything in HOME. */
export async function clearHome(path: string, options: RemoveOptions = {}): Promise<RemovalTotals> {
  using home = openOwned(path);
  return await emptyDirectory(home, options);
}

/** Opens a mounted directory of the agent's, which may have removed its own rights there. Its mode is 0700 afterwards. */
export function openOwned(path: string): Directory {
  const fd = openSync(path, O_PATH | constants.O_DIRECTORY | O_NOFOLLOW);
  try {
    chmodSync(`/proc/self/fd/${fd}`, HOME_MODE);
  } finally {
    closeSync(fd);
  }
  return Directory.open(path);
}

/** A path that another one contains adds nothing. */
export function keptNames(paths: readonly string[]): Kept {
  const top: KeptNames = new Map();
  for (const path of paths) {
    const names = path.split('/').map((name) => Buffer.from(name).toString('latin1'));
    const last = names.pop() ?? '';
    let level: KeptNames | null = top;
    for (const name of names) {
      const below: KeptNames | null = level.has(name) ? (level.get(name) ?? null) : new Map();
      level.set(name, below);
      level = below;
      if (level === null) break;
    }
    level?.set(last, null);
  }
  return top;
}

async function emptyExcept(
  directory: Directory,
  kept: Kept,
  removed: RemovalTotals,
  options: RemoveOptions,
): Promise<void> {
  const slices = new TimeSlice(options.signal);
  const entered = new Set<string>();
  // A directory may return a part of its names only once others are removed.
  for (let pass = 0; pass < MAX_PASSES; pass += 1) {
    let removals = 0;
    const entries = opendirSync(directory.selfPath, {
      encoding: 'buffer' as BufferEncoding,
      bufferSize: 256,
    });
    try {
      for (let entry = entries.readSync(); entry !== null; entry = entries.readSync()) {
        const name = Buffer.from(entry.name);
        const key = name.toString('latin1');
        const below = kept.get(key);
        if (below === null || entered.has(key)) continue;
        try {
          if (below !== undefined && lstatSync(directory.pathOf(name)).isDirectory()) {
            entered.add(key);
            grantOwnerAccess(directory, name);
            using folder = directory.openDirectory(name);
            await emptyExcept(folder, below, removed, options);
            continue;
          }
          await removeEntry(directory, name, removed, options);
        } catch (error) {
          if (errnoOf(error) !== 'ENOENT') throw error;
        }
        removals += 1;
        if (!slices.isUsedUp) continue;
        options.onProgress?.(removed);
        await slices.yieldToEventLoop();
      }
    } finally {
      entries.closeSync();
    }
    if (removals === 0) return;
  }
  throw new HoldfastError('directory_not_empty', 'HOME could not be prepared for a new sandbox', {
    why: 'a process keeps writing to it',
    next: 'stop the session and try again',
  });
}

async function removeEntry(
  directory: Directory,
  name: Buffer,
  removed: RemovalTotals,
  options: RemoveOptions,
): Promise<void> {
  const path = directory.pathOf(name);
  const stat = lstatSync(path);
  if (!stat.isDirectory()) {
    unlinkSync(path);
    removed.files += 1;
    if (stat.isFile() && stat.nlink === 1) removed.bytes += stat.size;
    return;
  }
  grantOwnerAccess(directory, name);
  {
    using folder = directory.openDirectory(name);
    const inside = await emptyDirectory(folder, options);
    removed.files += inside.files;
    removed.bytes += inside.bytes;
  }
  rmdirSync(path);
}

/** Leaves a kept file of that name alone. A full disk must not keep a session from starting. */
function writeStartFile(home: Directory, name: string, text: string): void {
  let fd: number;
  try {
    fd = openSync(home.path(name), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o644);
  } catch (error) {
    if (isTakenOrFull(error)) return;
    throw error;
  }
  try {
    writeSync(fd, text);
  } catch (error) {
    if (!isTakenOrFull(error)) throw error;
    unlinkSync(home.path(name));
  } finally {
    closeSync(fd);
  }
}

function isTakenOrFull(error: unknown): boolean {
  return ['EEXIST', 'ENOSPC', 'EDQUOT'].includes(errnoOf(error) ?? '');
}
