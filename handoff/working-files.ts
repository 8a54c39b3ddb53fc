import { createHash } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { lstat, mkdir, open, readlink, rename, rmdir, symlink, unlink } from 'node:fs/promises';
import { HoldfastError } from '../protocol/errors.ts';
import { type RawPath, readable, toBytes } from '../project/raw-path.ts';
import type { StoredFile } from './journal.ts';
import type { GitMode } from './resolve.ts';

const SLASH = Buffer.from('/');
/** Files of the work tree above this size are not compared, and so never replaced. */
const MAX_BYTES = 2 ** 30;

/** The files of a folder of the person's, by paths below it. Links are never followed, not even in the middle of a path. */
export class WorkingFiles {
  readonly #top: Buffer;

  readonly #handoff: string;

  /** `top`: absolute. `handoff`: what it is for; files that are being written are called after it. */
  constructor(top: string, handoff: string) {
    this.#top = Buffer.from(top);
    this.#handoff = handoff;
  }

  at(path: RawPath): Buffer {
    return Buffer.concat([this.#top, SLASH, toBytes(path)]);
  }

  /** What is there now; null for nothing. Errors: `conflict` for a folder, a device, or a link on the way. */
  async read(
    path: RawPath,
  ): Promise<{ readonly mode: GitMode; readonly blob: string; readonly bytes: Buffer } | null> {
    if (!(await this.#hasPlainParents(path))) return null;
    const status = await lstatOrNull(this.at(path));
    if (status === null) return null;
    if (status.isSymbolicLink()) {
      const bytes = await readlink(this.at(path), { encoding: 'buffer' });
      return { mode: '120000', blob: blobOf(bytes), bytes };
    }
    if (!status.isFile()) throw inTheWay(path, 'a folder or a device has its name');
    if (status.size > MAX_BYTES) throw inTheWay(path, 'it is too large to compare');
    const file = await open(this.at(path), constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      const bytes = await file.readFile();
      const mode = ((await file.stat()).mode & 0o100) === 0 ? '100644' : '100755';
      return { mode, blob: blobOf(bytes), bytes };
    } finally {
      await file.close();
    }
  }

  /** As a journal names it. */
  async stateOf(path: RawPath): Promise<StoredFile | null> {
    const found = await this.read(path);
    return found === null ? null : { mode: found.mode, blob: found.blob };
  }

  /** Replaces the file in one step. `expected` is what the caller saw: errors `conflict` if something else is there now. */
  async replace(
    path: RawPath,
    expected: StoredFile | null,
    next: { readonly mode: GitMode; readonly bytes: Buffer } | null,
  ): Promise<void> {
    const target = this.at(path);
    if (next === null) {
      await this.#require(path, expected);
      if (expected !== null) await unlink(target);
      return;
    }
    const temporary = this.#beside(path);
    await writeNew(temporary, next.mode, next.bytes);
    try {
      await this.#require(path, expected);
      await rename(temporary, target);
    } catch (error) {
      await unlink(temporary);
      throw error;
    }
  }

  /** Removes what an attempt to write this path left when it was killed. */
  async removeUnfinished(path: RawPath): Promise<void> {
    const temporary = this.#beside(path);
    const isThere = (await this.#hasPlainParents(path)) && (await lstatOrNull(temporary)) !== null;
    if (isThere) await unlink(temporary);
  }

  /** Where a path is written before it gets its name: found again by whoever knows the handoff. */
  #beside(path: RawPath): Buffer {
    const target = this.at(path);
    const name = createHash('sha256').update(`${this.#handoff}\0`).update(toBytes(path)).digest('hex');
    return Buffer.concat([
      target.subarray(0, target.lastIndexOf(0x2f) + 1),
      Buffer.from(`.holdfast-${name.slice(0, 24)}`),
    ]);
  }

  /** Makes the folders above a path and returns those that did not exist, the outermost first. */
  async makeParents(path: RawPath): Promise<RawPath[]> {
    const made: RawPath[] = [];
    for (const folder of parentsOf(path)) {
      const status = await lstatOrNull(this.at(folder));
      if (status === null) {
        await mkdir(this.at(folder));
        made.push(folder);
      } else if (!status.isDirectory()) throw inTheWay(path, `${readable(folder)} is no folder`);
    }
    return made;
  }

  /** The folders above a path that do not exist, the outermost first. */
  async missingParents(path: RawPath): Promise<RawPath[]> {
    const missing: RawPath[] = [];
    for (const folder of parentsOf(path))
      if ((await lstatOrNull(this.at(folder))) === null) missing.push(folder);
    return missing;
  }

  /** Removes the folder if it is empty. */
  async removeIfEmpty(folder: RawPath): Promise<void> {
    const status = await lstatOrNull(this.at(folder));
    if (status?.isDirectory() !== true) return;
    await rmdir(this.at(folder)).catch((error: unknown) => {
      if (!(
        error instanceof Error &&
        'code' in error &&
        (error.code === 'ENOTEMPTY' || error.code === 'EEXIST')
      ))
        throw error;
    });
  }

  async #require(path: RawPath, expected: StoredFile | null): Promise<void> {
    const found = await this.stateOf(path);
    if (found?.blob === expected?.blob && found?.mode === expected?.mode) return;
    throw inTheWay(path, 'it changed while the handoff was made');
  }

  /** False if a folder above it does not exist. */
  async #hasPlainParents(path: RawPath): Promise<boolean> {
    for (const folder of parentsOf(path)) {
      const status = await lstatOrNull(this.at(folder));
      if (status === null) return false;
      if (!status.isDirectory()) throw inTheWay(path, `${readable(folder)} is no folder`);
    }
    return true;
  }
}

/** Writes a file or link that does not exist yet, with the person's umask. Errors: `EEXIST`. */
export async function writeNew(target: Buffer, mode: string, bytes: Buffer): Promise<void> {
  if (mode === '120000') {
    await symlink(bytes, target);
    return;
  }
  const file = await open(
    target,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL,
    mode === '100755' ? 0o777 : 0o666,
  );
  try {
    await file.writeFile(bytes);
    await file.sync();
  } finally {
    await file.close();
  }
}

export function blobOf(bytes: Uint8Array): string {
  return createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');
}

/** The folders above a path, the outermost first. */
export function parentsOf(path: RawPath): RawPath[] {
  const folders: RawPath[] = [];
  for (let slash = path.indexOf('/'); slash !== -1; slash = path.indexOf('/', slash + 1))
    folders.push(path.slice(0, slash));
  return folders;
}

async function lstatOrNull(path: Buffer): Promise<Stats | null> {
  try {
    return await lstat(path);
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR'))
      return null;
    throw error;
  }
}

function inTheWay(path: RawPath, why: string): HoldfastError {
  return new HoldfastError('conflict', `${readable(path)} cannot be handed off`, {
    why,
    next: 'move it away or leave it out with --paths, and hand off again',
  });
}
