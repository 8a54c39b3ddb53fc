import { randomBytes } from 'node:crypto';
import { mkdir, readdir, realpath, rename, rm } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';
import type { Contents } from './contents.ts';
import type { Edit } from './resolve.ts';
import { WorkingFiles, writeNew } from './working-files.ts';

/** Errors: `already_exists` for a folder with something in it. */
export async function requireFreeFolder(folder: string): Promise<void> {
  const names = await readdir(folder).catch((error: unknown) => {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
    if (error instanceof Error && 'code' in error && error.code === 'ENOTDIR') return ['.'];
    throw error;
  });
  if (names.length === 0) return;
  throw new HoldfastError('already_exists', `${folder} exists already`, {
    why: 'a handoff never changes files that are there',
    next: 'name an empty or a new folder with --dir',
  });
}

/** Writes the files into a new folder, as `makeFolder`. */
export async function writeFolder(
  wanted: string,
  edits: readonly Edit[],
  contents: Contents,
): Promise<string> {
  return await makeFolder(wanted, async (files) => {
    for (const { path, mode, content } of edits) {
      if (mode === null || content === null) continue;
      await files.makeParents(path);
      await writeNew(
        files.at(path),
        mode,
        Buffer.isBuffer(content) ? content : await contents.readWhole(content),
      );
    }
  });
}

/** Makes a new folder with what `write` writes. It appears complete, in one step, or not at all. Resolves with its path. */
export async function makeFolder(
  wanted: string,
  write: (files: WorkingFiles) => Promise<void>,
): Promise<string> {
  await requireFreeFolder(wanted);
  const parent = await realpath(dirname(resolve(wanted)));
  const folder = join(parent, basename(resolve(wanted)));
  const temporary = join(parent, `.holdfast-${randomBytes(12).toString('hex')}`);
  await mkdir(temporary);
  try {
    await write(new WorkingFiles(temporary, basename(temporary)));
    // An empty folder is replaced; one in which something appeared meanwhile is not.
    await rename(temporary, folder);
    return folder;
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    throw error;
  }
}
