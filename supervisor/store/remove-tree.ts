import { randomBytes } from 'node:crypto';
import { chmod, open, readdir, rename, rm, rmdir, unlink, lstat } from 'node:fs/promises';
import { constants } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { hasErrorCode } from './storage-error.ts';

/** Totals of what was removed; folders do not count. */
export interface RemovedTotals {
  readonly files: number;
  readonly bytes: number;
}

const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;

/**
 * Removes a folder and everything below it, whatever its depth, modes and names. Follows no symbolic link. Nothing
 * may write to it meanwhile; a missing entry is fine. Subfolders are moved to the top before they are emptied, so
 * neither the length of a path nor the number of open folders grows with the depth.
 */
export async function removeTree(path: string): Promise<RemovedTotals> {
  const top = await openFolder(Buffer.from(path));
  if (top === null) {
    await rm(path, { force: true });
    return { files: 0, bytes: 0 };
  }
  let files = 0;
  let bytes = 0;
  try {
    const topPath = `/proc/self/fd/${top.fd}`;
    const empty = async (folder: FileHandle, isTop: boolean): Promise<void> => {
      const base = Buffer.from(`/proc/self/fd/${folder.fd}/`);
      for (const name of await readdir(base, { encoding: 'buffer' })) {
        const entry = Buffer.concat([base, name]);
        const status = await lstat(entry).catch(unlessGone);
        if (status === null) continue;
        if (!status.isDirectory()) {
          await unlink(entry).catch(unlessGone);
          files += 1;
          bytes += status.size;
        } else if (!isTop) {
          // Moving a folder changes its `..` entry, which requires write permission for its owner.
          await chmod(entry, 0o700);
          await rename(entry, `${topPath}/.removing-${randomBytes(12).toString('hex')}`);
        }
      }
    };
    for (;;) {
      await empty(top, true);
      const names = await readdir(Buffer.from(`${topPath}/`), { encoding: 'buffer' });
      if (names.length === 0) break;
      for (const name of names) {
        const entry = Buffer.concat([Buffer.from(`${topPath}/`), name]);
        const folder = await openFolder(entry);
        if (folder === null) continue;
        try {
          await empty(folder, false);
        } finally {
          await folder.close();
        }
        await rmdir(entry).catch(unlessGone);
      }
    }
  } finally {
    await top.close();
  }
  await rmdir(path).catch(unlessGone);
  return { files, bytes };
}

/** Another removal may be under way. */
function unlessGone(error: unknown): null {
  if (hasErrorCode(error, 'ENOENT')) return null;
  throw error;
}

/** Null if the path is not a folder. Adds the permissions that our own folder may lack. */
async function openFolder(path: Buffer): Promise<FileHandle | null> {
  try {
    const status = await lstat(path);
    if (!status.isDirectory()) return null;
    if ((status.mode & 0o700) !== 0o700) await chmod(path, 0o700);
    return await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return null;
    throw error;
  }
}
