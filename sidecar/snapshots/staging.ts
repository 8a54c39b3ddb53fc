import { closeSync, constants, openSync, rmdirSync } from 'node:fs';
import { z } from 'zod';
import { Directory, errnoOf, isAboutTheFile } from '../files/directory.ts';
import { inodeOf, type OwnEntries } from '../files/own-entries.ts';
import { emptyDirectory, lendModes, lendOpenModes } from '../files/remove-tree.ts';
import { O_PATH } from '../files/resolver.ts';
import { changedMeanwhile } from './attributes.ts';
import type { System } from './system.ts';

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
  readonly system: System;
  readonly own: OwnEntries;
  /** The workspace's folder, which stays the caller's. */
  readonly root: Directory;
}

/**
 * A folder in the workspace where everything new is made before anything is touched: a restore that finds an object damaged or
 * the disk full has changed nothing. What is replaced is moved here and removed at the end. It is known by its note (OwnEntries) and
 * its inode: what else has a name like it is an entry of the workspace like any other.
 */
export class Staging {
  readonly fd: number;
  readonly #options: StagingOptions;
  readonly #name: Buffer;
  #count = 0;

  private constructor(options: StagingOptions, name: Buffer, fd: number) {
    this.#options = options;
    this.#name = name;
    this.fd = fd;
  }

  static create(options: StagingOptions): Staging {
    const { system, own, root } = options;
    for (let tries = 1; ; tries += 1) {
      const name = own.newName('restore');
      own.note(name, root);
      try {
        system.makeDirectoryAt(root.fd, name, OWN_FOLDER);
      } catch (error) {
        own.forget(name);
        if (errnoOf(error) !== 'EEXIST' || tries === TRIES) throw error;
        continue;
      }
      let fd: number;
      try {
        fd = openSync(root.pathOf(name), FOLDER_FLAGS);
      } catch (error) {
        own.forget(name);
        throw isAboutTheFile(error) ? changedMeanwhile() : error;
      }
      own.note(name, root, { inode: inodeOf(fd) });
      return new Staging(options, name, fd);
    }
  }

  /**
   * Removes what restores that were cut off have left: only folders that are noted, and only if they are what was noted. Whatever has such
   * a name besides stays. Returns how many notes there were.
   */
  static async clear({ own, root }: Pick<StagingOptions, 'own' | 'root'>): Promise<number> {
    const left = own.left('restore');
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
      own.forget(name);
    }
    return left.length;
  }

  newName(): Buffer {
    this.#count += 1;
    return Buffer.from(String(this.#count));
  }

  /** Moves a folder in here, to be removed with everything else. */
  takeAway(directory: number, name: Buffer): void {
    // To move a folder is to write its `..`.
    lendModes(Directory.over(directory), name);
    this.#options.system.renameAt(directory, name, this.fd, this.newName());
  }

  async end(): Promise<void> {
    const { own, root } = this.#options;
    try {
      lendOpenModes(this.fd);
      await emptyDirectory(Directory.over(this.fd));
      const there = openFolder(root, this.#name);
      if (there === null) return;
      using folder = there;
      if (inodeOf(folder.fd) === inodeOf(this.fd)) rmdirSync(root.pathOf(this.#name));
    } finally {
      own.forget(this.#name);
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
  lendOpenModes(folder.fd);
  await emptyDirectory(folder, { signal: AbortSignal.timeout(CLEAR_MS) });
  removeIfEmpty(root, name);
}

/** Null where there is no folder of that name. */
function openFolder(root: Directory, name: Buffer): Directory | null {
  try {
    return Directory.over(openSync(root.pathOf(name), FOLDER_FLAGS));
  } catch (error) {
    if (isAboutTheFile(error)) return null;
    throw error;
  }
}

function removeIfEmpty(root: Directory, name: Buffer): void {
  try {
    rmdirSync(root.pathOf(name));
  } catch (error) {
    const code = errnoOf(error);
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST' && !isAboutTheFile(error)) throw error;
  }
}
