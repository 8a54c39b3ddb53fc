import { chmodSync, closeSync, constants, fstatSync, openSync } from 'node:fs';
import { Directory } from '../files/directory.ts';
import { type RemovalTotals, emptyDirectory, type RemoveOptions } from '../files/remove-tree.ts';

/** Linux: the descriptor only names the file. Node has no constant for it. */
const O_PATH = 0o10000000;

/** Empties the workspace; the directory itself stays. Can be repeated after a crash. */
export async function clearWorkspace(path: string, options: RemoveOptions): Promise<RemovalTotals> {
  // The agent owns the directory and may have removed its own rights.
  const fd = openSync(path, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    if ((fstatSync(fd).mode & 0o700) !== 0o700) chmodSync(`/proc/self/fd/${fd}`, 0o700);
  } finally {
    closeSync(fd);
  }
  using root = Directory.open(path);
  return await emptyDirectory(root, options);
}
