import {
  constants,
  ftruncateSync,
  mkdirSync,
  openSync,
  chmodSync,
  opendirSync,
  read,
  symlinkSync,
} from 'node:fs';
import { promisify } from 'node:util';
import { HoldfastError } from '../../protocol/errors.ts';
import { Directory } from './directory.ts';
import { systemError } from './file-errors.ts';
import type { NamedPlace } from './folders.ts';
import type { Native } from './native.ts';
import { identityOf, OpenFile, openDirectory, openRegular } from './open-file.ts';
import type { TemporaryEntries } from './temporary-entries.ts';
import { linkText, O_PATH } from './resolver.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import type { StagedFile } from './staged-file.ts';

const PIECE_BYTES = 2 ** 20;
/** Without SEEK_DATA, holes are read as zeros, so a larger file that is mostly holes is refused. */
const MAX_HOLES = 2 ** 30;
const BLOCK_BYTES = 512n;
const readAsync = promisify(read);
const { O_DIRECTORY, O_NOFOLLOW } = constants;
const OWNER_ALL = 0o700;

export interface CopyTotals {
  files: number;
  bytes: number;
  /** Sockets, FIFOs and devices. */
  skipped: number;
}

export interface CopyOptions {
  readonly native: Native | null;
  readonly temporaryEntries: TemporaryEntries;
  /** Copies one file's content to a new name, as a write does. */
  readonly copyFile: (from: OpenFile, to: NamedPlace, copied: CopyTotals) => Promise<void>;
  readonly signal: AbortSignal;
  readonly onProgress: (copied: Readonly<CopyTotals>) => void;
}

interface Level {
  readonly from: Directory;
  readonly to: Directory;
  readonly names: Buffer[];
  /** Permissions of the new folder, set after its content was copied. */
  readonly mode: number;
}

/** Copies a file, link or folder to a name that must be free. Links are copied as links. */
export async function copyTree(
  from: NamedPlace,
  to: NamedPlace,
  text: string,
  options: CopyOptions,
): Promise<CopyTotals> {
  const copied: CopyTotals = { files: 0, bytes: 0, skipped: 0 };
  const slices = new TimeSlice(options.signal);
  const levels: Level[] = [];
  /** The new top folder, which may lie inside the source. */
  let top: string | null = null;

  const one = async (source: NamedPlace, target: NamedPlace): Promise<void> => {
    using named = new OpenFile(openSync(source.directory.pathOf(source.name), O_PATH | O_NOFOLLOW));
    const stat = named.stat();
    if (stat.isSymbolicLink()) {
      const link = linkText(source.directory, source.name);
      if (link === null) throw systemError('EAGAIN', 'readlink');
      symlinkSync(link, target.directory.pathOf(target.name));
      copied.files += 1;
    } else if (stat.isDirectory()) {
      if (identityOf(named) === top) return;
      levels.push(await enter(named, target, Number(stat.mode & 0o777n)));
    } else if (stat.isFile()) {
      using file = openRegular(named, text);
      await options.copyFile(file, target, copied);
    } else copied.skipped += 1;
  };

  const enter = async (named: OpenFile, target: NamedPlace, mode: number): Promise<Level> => {
    const path = target.directory.pathOf(target.name);
    mkdirSync(path, OWNER_ALL);
    const made = Directory.fromFd(openSync(path, O_PATH | O_DIRECTORY | O_NOFOLLOW));
    try {
      top ??= identityOf(made);
      using listed = openDirectory(named);
      const names = await namesOf(Directory.fromFd(listed.fd), options.temporaryEntries, slices);
      const folder = Directory.fromFd(openSync(`/proc/self/fd/${named.fd}`, O_PATH | O_DIRECTORY));
      return { from: folder, to: made, names, mode };
    } catch (error) {
      made.close();
      throw error;
    }
  };

  try {
    await one(from, to);
    if (copied.skipped > 0 && levels.length === 0) {
      throw new HoldfastError('file_not_regular', `${text} cannot be copied`, {
        why: 'only files, folders and links can be copied',
      });
    }
    for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
      const name = level.names.pop();
      if (name === undefined) {
        chmodSync(`/proc/self/fd/${level.to.fd}`, level.mode);
        levels.pop();
        level.from.close();
        level.to.close();
        continue;
      }
      const { from: source, to: target } = level;
      await one(named(source, name), named(target, name));
      if (slices.isUsedUp) {
        options.onProgress(copied);
        await slices.yieldToEventLoop();
      }
    }
    return copied;
  } finally {
    for (const level of levels) {
      level.from.close();
      level.to.close();
    }
  }
}

/** Copies content, and keeps holes. */
export async function copyContent(
  from: OpenFile,
  to: StagedFile,
  native: Native | null,
  text: string,
  signal: AbortSignal,
): Promise<void> {
  const { size, blocks } = from.stat();
  const isSparse = blocks * BLOCK_BYTES < size;
  const end = Number(size);
  if (isSparse && native === null && end > MAX_HOLES) {
    throw new HoldfastError('file_too_large', `${text} cannot be copied`, {
      why: 'it is a large sparse file, and holes cannot be detected here',
    });
  }
  const buffer = Buffer.allocUnsafeSlow(PIECE_BYTES);
  let at = 0;
  while (at < end) {
    const start = isSparse && native !== null ? native.seekData(from.fd, at) : at;
    if (start === null) break;
    const stop = isSparse && native !== null ? native.seekHole(from.fd, start) : end;
    to.skipTo(start);
    for (at = start; at < stop;) {
      signal.throwIfAborted();
      const { bytesRead } = await readAsync(from.fd, buffer, 0, Math.min(buffer.length, stop - at), at);
      if (bytesRead === 0) return; // The file became shorter.
      await to.append(buffer.subarray(0, bytesRead));
      at += bytesRead;
    }
  }
  if (to.size < end) ftruncateSync(to.fd, end);
}

async function namesOf(
  directory: Directory,
  temporaryEntries: TemporaryEntries,
  slices: TimeSlice,
): Promise<Buffer[]> {
  const names: Buffer[] = [];
  const entries = opendirSync(directory.selfPath, { encoding: 'latin1' });
  try {
    for (let entry = entries.readSync(); entry !== null; entry = entries.readSync()) {
      const name = Buffer.from(entry.name, 'latin1');
      if (!temporaryEntries.isTemporary(directory.fd, name)) names.push(name);
      if (slices.isUsedUp) await slices.yieldToEventLoop();
    }
  } finally {
    entries.closeSync();
  }
  return names;
}

function named(directory: Directory, name: Buffer): NamedPlace {
  return { directory, name, [Symbol.dispose]: () => undefined };
}
