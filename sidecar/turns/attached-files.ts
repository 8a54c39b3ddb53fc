import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  opendirSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Directory, errnoOf, isPathError } from '../files/directory.ts';
import { spaceError } from '../files/full-disk.ts';
import type { AttachedPart } from '../wire.ts';
import { RunDirectory } from './run-directory.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_WRONLY } = constants;
/** What the files of earlier turns may fill. The agent may be asked about them again. */
const KEPT_BYTES = 64 * 2 ** 20;
/** Entries of a turn's directory that are looked at. One with more is not ours. */
const MOST_ENTRIES = 64;
const TRIES = 3;

/**
 * The files that prompts bring along, in a directory for each turn. The agent can write to all of it: nothing is followed, nothing
 * blocks, and what it puts in our way goes aside.
 */
export class AttachedFiles {
  readonly #run: RunDirectory;

  constructor(run: string) {
    this.#run = new RunDirectory(run);
  }

  /** See `attachment/write`. */
  write({ turnId, name, offset, total }: AttachedPart, bytes: Uint8Array): number {
    if (offset + bytes.length > total)
      throw new HoldfastError('invalid_params', 'The attachment has more bytes than announced');
    for (let tries = 1; ; tries += 1) {
      try {
        this.#run.repair();
        using folder = this.#folderOf(turnId);
        return writePart(folder, { name, offset, total }, bytes);
      } catch (cause) {
        if (!isObstructed(cause)) throw spaceError(cause, 'The attachment cannot be written');
        if (tries === TRIES) {
          throw new HoldfastError('sandbox_lost', 'The attachment cannot be handed to the sandbox', {
            why: 'a process in the sandbox keeps removing or replacing its run directory',
            details: { runDirectory: 'damaged' },
            cause,
          });
        }
        this.#run.removeAttachments(turnId);
        // What came before went with it.
        if (offset > 0) return 0;
      }
    }
  }

  close(): void {
    this.#run.close();
  }

  #folderOf(turnId: string): Directory {
    const { attachments } = this.#run;
    try {
      return attachments.openDirectory(turnId);
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
    }
    this.#removeOldest();
    mkdirSync(attachments.path(turnId), 0o700);
    return attachments.openDirectory(turnId);
  }

  /** Removes the files of the oldest turns. */
  #removeOldest(): void {
    let bytes = 0;
    for (const { turnId, size } of this.#turns()) {
      bytes += size;
      if (bytes > KEPT_BYTES) this.#run.removeAttachments(turnId);
    }
  }

  /** Newest first, by times that the agent can change. */
  #turns(): { readonly turnId: string; readonly size: number }[] {
    const { attachments } = this.#run;
    return this.#run
      .listAttachments()
      .map((turnId) => ({ turnId, at: modifiedAt(attachments, turnId) }))
      .toSorted((one, other) => other.at - one.at)
      .map(({ turnId }) => ({ turnId, size: sizeOf(attachments, turnId) }));
  }
}

/** Returns how many bytes of the file are there: 0 if the parts before this one are not. */
function writePart(
  folder: Directory,
  { name, offset, total }: Pick<AttachedPart, 'name' | 'offset' | 'total'>,
  bytes: Uint8Array,
): number {
  // No attachment has a backslash in its name.
  const unready = folder.path(`.new\\${name}`);
  if (offset === 0) rmSync(unready, { force: true });
  const flags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | (offset === 0 ? O_CREAT | O_EXCL : 0);
  const fd = openSync(unready, flags, 0o600);
  try {
    const status = fstatSync(fd);
    if (!status.isFile() || status.nlink !== 1 || status.size !== offset) return 0;
    for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at, bytes.length - at, offset + at);
  } catch (error) {
    rmSync(unready, { force: true });
    throw error;
  } finally {
    closeSync(fd);
  }
  if (offset + bytes.length === total) renameSync(unready, folder.path(name));
  return offset + bytes.length;
}

function modifiedAt(parent: Directory, name: string): number {
  try {
    return lstatSync(parent.path(name)).mtimeMs;
  } catch (error) {
    if (isPathError(error)) return 0;
    throw error;
  }
}

/** Infinite for what is none of ours. */
function sizeOf(parent: Directory, name: string): number {
  try {
    using folder = parent.openDirectory(name);
    const entries = opendirSync(folder.selfPath, { encoding: 'buffer' as BufferEncoding });
    try {
      let bytes = 0;
      let count = 0;
      for (let entry = entries.readSync(); entry !== null; entry = entries.readSync()) {
        const status = lstatSync(folder.pathOf(Buffer.from(entry.name)));
        count += 1;
        if (!status.isFile() || count > MOST_ENTRIES) return Infinity;
        bytes += status.size;
      }
      return bytes;
    } finally {
      entries.closeSync();
    }
  } catch (error) {
    if (isPathError(error)) return Infinity;
    throw error;
  }
}

/** Something that only the agent can have put there, or taken away. */
function isObstructed(error: unknown): boolean {
  return isPathError(error) || ['EEXIST', 'ENOTEMPTY', 'ERR_FS_EISDIR'].includes(errnoOf(error) ?? '');
}
