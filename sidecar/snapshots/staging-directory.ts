import { closeSync, constants, openSync, rmdirSync } from 'node:fs';
import { z } from 'zod';
import { Directory, errnoOf, isPathError } from '../files/directory.ts';
import { inodeOf, type TemporaryEntries } from '../files/temporary-entries.ts';
import { emptyDirectory, grantOwnerAccess, grantOwnerAccessByFd } from '../files/remove-tree.ts';
import { O_PATH } from '../files/resolver.ts';
import { changedDuringRestore } from './attributes.ts';
import type { SystemCalls } from './system-calls.ts';

const { O_DIRECTORY, O_NOFOLLOW } = constants;
const FOLDER_FLAGS = O_PATH | O_DIRECTORY | O_NOFOLLOW;
const OWN_FOLDER = 0o700;
/** Names are random: that one is taken means that somebody makes them up as fast as we do. */
const TRIES = 8;
/** A leftover to which somebody goes on writing is let be after this. */
const CLEAR_MS = 60_000;

/** Without an inode: killed before the folder was made, or between that and the next step. */
const StagingNoteSchema = z.object({ within: z.string(), inode: z.string().optional() });

export interface StagingOptions {
  readonly system: SystemCalls;
  readonly own: TemporaryEntries;
  /** The workspace's folder, which stays the caller's. */
  readonly root: Directory;
}

/**
 * A folder in the workspace where everything new is made before anything is touched: a restore that finds an object damaged or
 * the disk full has changed nothing. What is replaced is moved here and removed at the end. It is known by its note (OwnEntries) and
 * its inode: what else has a name like it is an entry of the workspace like any other.
 */
export class StagingDirectory {
  readonly fd: number;
  readonly #options: StagingOptions;
  readonly #name: Buffer;
  #count = 0;

  private constructor(options: StagingOptions, name: Buffer, fd: number) {
    this.#options = options;
    this.#name = name;
    this.fd = fd;
  }

  static create(options: StagingOptions): StagingDirectory {
    const { system, own, root } = options;
    for (let tries = 1; ; tries += 1) {
      const name = own.newName('restore');
      own.register(name, root);
      try {
        system.makeDirectoryAt(root.fd, name, OWN_FOLDER);
      } catch (error) {
        own.unregister(name);
        if (errnoOf(error) !== 'EEXIST' || tries === TRIES) throw error;
        continue;
      }
      let fd: number;
      try {
        fd = openSync(root.pathOf(name), FOLDER_FLAGS);
      } catch (error) {
        own.unregister(name);
        throw isPathError(error) ? changedDuringRestore() : error;
      }
      own.register(name, root, { inode: inodeOf(fd) });
      return new StagingDirectory(options, name, fd);
    }
  }

  /**
   * Removes what restores that were cut off have left: only folders that are noted, and only if they are what was noted. Whatever has such
   * a name besides stays. Returns how many notes there were.
   */
  static async removeLeftovers({ own, root }: Pick<StagingOptions, 'own' | 'root'>): Promise<number> {
    const left = own.leftovers('restore');
    for (const { name, note } of left) {
      const parsed = StagingNoteSchema.safeParse(note);
      try {
        if (parsed.success && parsed.data.within === inodeOf(root.fd)) {
          await removeLeft(root, name, parsed.data.inode);
        }
      } catch (error) {
        // What cannot be removed is seen from now on, and no obstacle.
        console.error('snapshots: what a restore left could not be removed:', error);
      }
      own.unregister(name);
    }
    return left.length;
  }

  newName(): Buffer {
    this.#count += 1;
    return Buffer.from(String(this.#count));
  }

  /** Moves a folder in here, to be removed with everything else. */
  moveIn(directory: number, name: Buffer): void {
    // To move a folder is to write its `..`.
    grantOwnerAccess(Directory.fromFd(directory), name);
    this.#options.system.renameAt(directory, name, this.fd, this.newName());
  }

  async remove(): Promise<void> {
    const { own, root } = this.#options;
    try {
      grantOwnerAccessByFd(this.fd);
      await emptyDirectory(Directory.fromFd(this.fd));
      const there = openFolder(root, this.#name);
      if (there === null) return;
      using folder = there;
      if (inodeOf(folder.fd) === inodeOf(this.fd)) rmdirSync(root.pathOf(this.#name));
    } finally {
      own.unregister(this.#name);
      closeSync(this.fd);
    }
  }
}

async function removeLeft(root: Directory, name: Buffer, inode: string | undefined): Promise<void> {
  const there = openFolder(root, name);
  if (there === null) return;
  using folder = there;
  // Nothing can be in it yet, if it is ours.
  if (inode === undefined) {
    removeIfEmpty(root, name);
    return;
  }
  if (inodeOf(folder.fd) !== inode) return;
  grantOwnerAccessByFd(folder.fd);
  await emptyDirectory(folder, { signal: AbortSignal.timeout(CLEAR_MS) });
  removeIfEmpty(root, name);
}

/** Null where there is no folder of that name. */
function openFolder(root: Directory, name: Buffer): Directory | null {
  try {
    return Directory.fromFd(openSync(root.pathOf(name), FOLDER_FLAGS));
  } catch (error) {
    if (isPathError(error)) return null;
    throw error;
  }
}

function removeIfEmpty(root: Directory, name: Buffer): void {
  try {
    rmdirSync(root.pathOf(name));
  } catch (error) {
    const code = errnoOf(error);
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST' && !isPathError(error)) throw error;
  }
}
