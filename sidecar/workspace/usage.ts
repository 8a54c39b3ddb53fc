import { type BigIntStats, fstatSync, lstatSync, opendirSync } from 'node:fs';
import { Directory, isPathError } from '../files/directory.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';

export interface Usage {
  /** Apparent size of regular files. A file with several hard links counts once. */
  bytes: number;
  /** Everything except directories. */
  files: number;
  /** Without the root. */
  directories: number;
}

/** Follows the walk. Calls for subdirectories are nested. */
export interface UsageVisitor {
  entered(name: Buffer): void;
  /** Something other than a directory, with the bytes that it adds. */
  counted(bytes: number): void;
  left(): void;
}

export interface UsageOptions {
  readonly signal?: AbortSignal | undefined;
  readonly visitor?: UsageVisitor | undefined;
  /** Called at every pause. */
  readonly onProgress?: ((usage: Readonly<Usage>) => void) | undefined;
}

/** The agent may have removed its own rights. */
function openIfAllowed({ selfPath }: Directory): Directory | null {
  try {
    return Directory.open(selfPath);
  } catch (error) {
    if (isPathError(error)) return null;
    throw error;
  }
}

/** Directories on the stack that stay open. Those above are closed and reopened through `..`. */
const OPEN_LEVELS = 64;

interface Level {
  directory: Directory | null;
  readonly inode: bigint;
  readonly device: bigint;
  /** Subdirectories that were not visited yet. */
  readonly folders: Buffer[];
}

/**
 * Counts the content of a directory by descriptors, with no link followed. Directories that cannot be entered count
 * without their content. If the tree changes meanwhile, the result is between before and after.
 */
export async function usageOf(
  root: Directory,
  { signal, visitor, onProgress }: UsageOptions = {},
): Promise<Usage> {
  const usage: Usage = { bytes: 0, files: 0, directories: 0 };
  const linked = new Set<bigint>();
  const slices = new TimeSlice(signal);
  const levels: Level[] = [];

  try {
    const top = openIfAllowed(root);
    if (top !== null) levels.push(await enter(top));
    for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
      const name = level.folders.pop();
      if (name === undefined) leave();
      else await descend(level, name);
    }
    return usage;
  } finally {
    for (const { directory } of levels) directory?.close();
  }

  async function descend({ directory, device }: Level, name: Buffer): Promise<void> {
    if (directory === null) return;
    let folder: Directory;
    try {
      folder = directory.openDirectory(name);
    } catch (error) {
      if (isPathError(error)) return;
      throw error;
    }
    if (fstatSync(folder.fd, { bigint: true }).dev !== device) {
      folder.close();
      return;
    }
    visitor?.entered(name);
    levels.push(await enter(folder));
    const above = levels.at(-1 - OPEN_LEVELS);
    above?.directory?.close();
    if (above !== undefined) above.directory = null;
  }

  function leave(): void {
    const done = levels.pop();
    const parent = levels.at(-1);
    if (done?.directory && parent?.directory === null)
      parent.directory = reopenParent(done.directory, parent);
    // The parent of a directory that was moved cannot be found again, so the rest of the parent is not counted.
    if (parent?.directory === null) parent.folders.length = 0;
    done?.directory?.close();
    if (parent !== undefined) visitor?.left();
  }

  async function enter(directory: Directory): Promise<Level> {
    try {
      const { ino, dev } = fstatSync(directory.fd, { bigint: true });
      const level: Level = { directory, inode: ino, device: dev, folders: [] };
      const entries = opendirSync(directory.selfPath, {
        encoding: 'buffer' as BufferEncoding,
        bufferSize: 512,
      });
      try {
        for (let entry = entries.readSync(); entry !== null; entry = entries.readSync()) {
          count(level, directory, Buffer.from(entry.name));
          if (!slices.isUsedUp) continue;
          onProgress?.(usage);
          await slices.yieldToEventLoop();
        }
      } finally {
        entries.closeSync();
      }
      return level;
    } catch (error) {
      directory.close();
      throw error;
    }
  }

  function count(level: Level, directory: Directory, name: Buffer): void {
    let stat;
    try {
      stat = lstatSync(directory.pathOf(name), { bigint: true });
    } catch (error) {
      // Removed meanwhile, or in a directory that may be listed but not entered.
      if (isPathError(error)) return;
      throw error;
    }
    if (stat.isDirectory()) {
      usage.directories += 1;
      level.folders.push(name);
      return;
    }
    usage.files += 1;
    const bytes = bytesOf(stat);
    usage.bytes = Math.min(usage.bytes + bytes, Number.MAX_SAFE_INTEGER);
    visitor?.counted(bytes);
  }

  function bytesOf(stat: BigIntStats): number {
    if (!stat.isFile()) return 0;
    if (stat.nlink > 1n) {
      if (linked.has(stat.ino)) return 0;
      linked.add(stat.ino);
    }
    return Number(stat.size);
  }
}

/** Opens the parent of a directory, if it is still the one that the walk came from. */
function reopenParent(
  child: Directory,
  wanted: { readonly inode: bigint; readonly device: bigint },
): Directory | null {
  let parent: Directory;
  try {
    parent = Directory.open(child.path('..'));
  } catch (error) {
    if (isPathError(error)) return null;
    throw error;
  }
  const { ino, dev } = fstatSync(parent.fd, { bigint: true });
  if (ino === wanted.inode && dev === wanted.device) return parent;
  parent.close();
  return null;
}
