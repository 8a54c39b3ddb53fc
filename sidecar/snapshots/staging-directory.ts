import { closeSync, constants, openSync, rmdirSync } from 'node:fs';
import { z } from 'zod';
import { Directory, errnoOf, isPathError } from '../files/directory.ts';
import { inodeOf, type TemporaryEntries } from '../files/temporary-entries.ts';
import { emptyDirectory, grantOwnerAccess, grantOwnerAccessByFd } from '../files/remove-tree.ts';
import { O_PATH } from '../files/resolver.ts';
import { changedDuringRestore } from './attributes.ts';
import type { SystemCalls } from './system-calls.ts';

const { O_DIRECTORY, O_NOFOLLOW } = constants;
const DIRECTORY_FLAGS = O_PATH | O_DIRECTORY | O_NOFOLLOW;
const DIRECTORY_MODE = 0o700;
/** Names are random, so a name that is taken means that a process creates them on purpose. */
const TRIES = 8;
/** A leftover that a process keeps writing to is abandoned after this. */
const REMOVAL_TIMEOUT_MS = 60_000;

/** Without an inode, the sidecar was killed before it recorded the new directory. */
const StagingRecordSchema = z.object({ within: z.string(), inode: z.string().optional() });

export interface StagingOptions {
  readonly system: SystemCalls;
  readonly temporaryEntries: TemporaryEntries;
  /** The workspace's directory, owned by the caller. */
  readonly root: Directory;
}

/**
 * A directory in the workspace where everything new is created before anything is changed. A restore that finds a
 * damaged object or a full disk has therefore changed nothing. Replaced entries are moved here and removed at the end.
 * The directory is identified by its record (TemporaryEntries) and its inode. Any other entry with such a name is an
 * ordinary one.
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
    const { system, temporaryEntries, root } = options;
    for (let tries = 1; ; tries += 1) {
      const name = temporaryEntries.newName('restore');
      temporaryEntries.register(name, root);
      try {
        system.makeDirectoryAt(root.fd, name, DIRECTORY_MODE);
      } catch (error) {
        temporaryEntries.unregister(name);
        if (errnoOf(error) !== 'EEXIST' || tries === TRIES) throw error;
        continue;
      }
      let fd: number;
      try {
        fd = openSync(root.pathOf(name), DIRECTORY_FLAGS);
      } catch (error) {
        temporaryEntries.unregister(name);
        throw isPathError(error) ? changedDuringRestore() : error;
      }
      temporaryEntries.register(name, root, { inode: inodeOf(fd) });
      return new StagingDirectory(options, name, fd);
    }
  }

  /**
   * Removes what interrupted restores left: only directories that have a record and match it. Other entries with such
   * names stay. Returns the number of records.
   */
  static async removeLeftovers({
    temporaryEntries,
    root,
  }: Pick<StagingOptions, 'temporaryEntries' | 'root'>): Promise<number> {
    const left = temporaryEntries.leftovers('restore');
    for (const { name, note } of left) {
      const parsed = StagingRecordSchema.safeParse(note);
      try {
        if (parsed.success && parsed.data.within === inodeOf(root.fd)) {
          await removeLeft(root, name, parsed.data.inode);
        }
      } catch (error) {
        // A leftover that cannot be removed becomes visible, but does no harm.
        console.error('snapshots: a leftover of a restore could not be removed:', error);
      }
      temporaryEntries.unregister(name);
    }
    return left.length;
  }

  newName(): Buffer {
    this.#count += 1;
    return Buffer.from(String(this.#count));
  }

  /** Moves a directory in here, to be removed at the end. */
  moveIn(dirfd: number, name: Buffer): void {
    // Moving a directory changes its `..`, which needs write access.
    grantOwnerAccess(Directory.fromFd(dirfd), name);
    this.#options.system.renameAt(dirfd, name, this.fd, this.newName());
  }

  async remove(): Promise<void> {
    const { temporaryEntries, root } = this.#options;
    try {
      grantOwnerAccessByFd(this.fd);
      await emptyDirectory(Directory.fromFd(this.fd));
      const there = openDirectory(root, this.#name);
      if (there === null) return;
      using directory = there;
      if (inodeOf(directory.fd) === inodeOf(this.fd)) rmdirSync(root.pathOf(this.#name));
    } finally {
      temporaryEntries.unregister(this.#name);
      closeSync(this.fd);
    }
  }
}

async function removeLeft(root: Directory, name: Buffer, inode: string | undefined): Promise<void> {
  const there = openDirectory(root, name);
  if (there === null) return;
  using directory = there;
  // If it is ours, nothing can be in it yet.
  if (inode === undefined) {
    removeIfEmpty(root, name);
    return;
  }
  if (inodeOf(directory.fd) !== inode) return;
  grantOwnerAccessByFd(directory.fd);
  await emptyDirectory(directory, { signal: AbortSignal.timeout(REMOVAL_TIMEOUT_MS) });
  removeIfEmpty(root, name);
}

/** Null if there is no directory of that name. */
function openDirectory(root: Directory, name: Buffer): Directory | null {
  try {
    return Directory.fromFd(openSync(root.pathOf(name), DIRECTORY_FLAGS));
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
