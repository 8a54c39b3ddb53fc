import { type BigIntStats, fstatSync, lstatSync, opendirSync } from 'node:fs';
import { Directory, isPathError } from '../files/directory.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';

export interface Usage {
  /** Apparent size of regular files; a file with several names counts once. */
  bytes: number;
  /** Everything that is not a directory. */
  files: number;
  /** Without the root. */
  directories: number;
}

/** Is told of the walk as it goes; folders in folders come between. */
export interface UsageVisitor {
  entered(name: Buffer): void;
  /** Something that is not a directory, with the bytes that it adds. */
  counted(bytes: number): void;
  left(): void;
}

export interface UsageOptions {
  readonly signal?: AbortSignal | undefined;
  readonly visitor?: UsageVisitor | undefined;
  /** Called at every break. */
  readonly onProgress?: ((usage: Readonly<Usage>) => void) | undefined;
}

/** Folders on the way down that stay open; those above are closed and found again through `..`. */
const OPEN_LEVELS = 64;

interface Level {
  directory: Directory | null;
  readonly inode: bigint;
  readonly device: bigint;
  /** Folders in it that were not visited yet. */
  readonly folders: Buffer[];
}

/**
 * Counts what is below a directory, one name at a time by descriptor, never following a link. Folders that cannot be entered
 * count without their content. The tree may change meanwhile: the result is then somewhere between before and after.
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
    levels.push(await enter(Directory.open(root.selfPath)));
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
    if (done?.directory && parent?.directory === null) parent.directory = reopened(done.directory, parent);
    // A folder that was moved meanwhile has no way back: the rest of what it was in is not counted.
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
      if (isPathError(error)) return; // gone meanwhile, or in a folder that may be listed but not entered
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

/** The parent of an open folder, if it is still the one that we came from. */
function reopened(
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
