import { fstatSync } from 'node:fs';
import { Directory, errnoOf, isPathError } from './directory.ts';
import { grantOwnerAccessByFd } from './remove-tree.ts';

const LIST_AND_ENTER = 0o500;

/**
 * Gives the owner of the workspace its rights back where the mode of the folder denies listing or entering it: after `chmod 0 /workspace` no
 * file could be read, no snapshot taken and no turn started. A folder that is only read-only stays so, and so does everything in it. `path`: no
 * untrusted process can replace it; a link is not followed. Where the mode cannot be changed, the call that needs the folder says so.
 */
export function restoreWorkspaceAccess(path: string): void {
  try {
    using root = Directory.name(path);
    if ((fstatSync(root.fd).mode & LIST_AND_ENTER) !== LIST_AND_ENTER) grantOwnerAccessByFd(root.fd);
  } catch (error) {
    if (!isPathError(error) && errnoOf(error) !== 'EROFS') throw error;
  }
}
