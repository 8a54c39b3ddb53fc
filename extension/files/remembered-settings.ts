import { createHash } from 'node:crypto';
import { FileSystemError, FileType, Uri, workspace } from 'vscode';

const MOST_TRIES = 5;
const PAUSE_MS = 200;

/**
 * The copies that VS Code keeps of the settings, tasks and launch configurations of folders, and of workspace files, that an extension provides. A
 * window on such a folder or file obeys its copy from its first moment on, before any extension runs. VS Code has no command to drop one: of a
 * folder it writes that there is nothing once reading has failed, and a window that is reopened meanwhile loses that write; the copy of a workspace
 * file stays. So the copies are removed where VS Code has them.
 */
export class RememberedSettings {
  readonly #places: readonly Uri[];

  /** `globalStorage`: the folder of the extension's own below VS Code's data. */
  constructor(globalStorage: Uri) {
    const user = Uri.joinPath(globalStorage, '../..');
    this.#places = [
      // A window in a browser whose data are on the server.
      Uri.joinPath(user, 'caches'),
      // The desktop.
      Uri.joinPath(user, '..'),
      // A window in a browser that keeps its data itself.
      Uri.from({ scheme: 'vscode-userdata', path: '/User/caches' }),
    ].map((caches) => Uri.joinPath(caches, 'CachedConfigurations'));
  }

  /** Comes back when VS Code has no such copy at the places that we know. Never rejects, and takes a few seconds at most. */
  async forget(folders: readonly Uri[], workspaceFiles: readonly Uri[]): Promise<void> {
    const names = [
      ...folders.map((folder) => ['folder', hashed(Uri.joinPath(folder, '.vscode'))] as const),
      ...workspaceFiles.flatMap((file) =>
        [hashed(file), digest(file)].map((id) => ['workspaces', id] as const),
      ),
    ];
    const copies = this.#places.flatMap((place) => names.map((name) => Uri.joinPath(place, ...name)));
    await Promise.all(copies.map((copy) => remove(copy)));
  }
}

async function remove(copy: Uri): Promise<void> {
  for (let tries = 1; tries <= MOST_TRIES; tries += 1) {
    try {
      const { type } = await workspace.fs.stat(copy);
      if ((type & FileType.Directory) === 0) return;
      await workspace.fs.delete(copy, { recursive: true, useTrash: false });
    } catch (error) {
      if (error instanceof FileSystemError && error.code === 'FileNotFound') return;
      // Another window may be writing it.
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/** What VS Code names most copies after: the hash that it has for texts. */
function hashed(uri: Uri): string {
  let hash = 149_417;
  const text = uri.toString();
  for (let at = 0; at < text.length; at += 1) hash = (Math.imul(hash, 31) + text.charCodeAt(at)) | 0;
  return hash.toString(16);
}

/** What the desktop names a workspace file after. */
function digest(uri: Uri): string {
  const text = uri.toString();
  return createHash('md5')
    .update(process.platform === 'linux' ? text : text.toLowerCase())
    .digest('hex');
}
