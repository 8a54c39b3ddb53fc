import { createHash } from 'node:crypto';
import { FileSystemError, FileType, Uri, workspace } from 'vscode';

const MAX_ATTEMPTS = 5;
const RETRY_MS = 200;

/**
 * VS Code caches the settings, tasks and launch configurations of folders, and workspace files, that an extension
 * provides. A window on such a folder or file applies the cached copy from its start, before any extension runs. VS
 * Code has no command to drop a copy. It empties a folder's copy after reading has failed, but a window that is
 * reopened meanwhile loses that write; it never drops a workspace file's. So we delete the copies on the disk.
 */
export class CachedSettings {
  readonly #caches: readonly Uri[];

  /** `globalStorage`: the extension's folder in VS Code's data. */
  constructor(globalStorage: Uri) {
    const user = Uri.joinPath(globalStorage, '../..');
    this.#caches = [
      // A browser window with its data on the server.
      Uri.joinPath(user, 'caches'),
      // The desktop application.
      Uri.joinPath(user, '..'),
      // A browser window with its data in the browser.
      Uri.from({ scheme: 'vscode-userdata', path: '/User/caches' }),
    ].map((caches) => Uri.joinPath(caches, 'CachedConfigurations'));
  }

  /** Deletes the copies at all known places. Never rejects, and takes at most a few seconds. */
  async delete(folders: readonly Uri[], workspaceFiles: readonly Uri[]): Promise<void> {
    const names = [
      ...folders.map((folder) => ['folder', stringHash(Uri.joinPath(folder, '.vscode'))] as const),
      ...workspaceFiles.flatMap((file) =>
        [stringHash(file), md5(file)].map((id) => ['workspaces', id] as const),
      ),
    ];
    const copies = this.#caches.flatMap((cache) => names.map((name) => Uri.joinPath(cache, ...name)));
    await Promise.all(copies.map((copy) => remove(copy)));
  }
}

async function remove(copy: Uri): Promise<void> {
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt += 1) {
    try {
      const { type } = await workspace.fs.stat(copy);
      if ((type & FileType.Directory) === 0) return;
      await workspace.fs.delete(copy, { recursive: true, useTrash: false });
    } catch (error) {
      if (error instanceof FileSystemError && error.code === 'FileNotFound') return;
      // Another window may be writing the copy.
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/** The name of most copies: VS Code's string hash of the URI. */
function stringHash(uri: Uri): string {
  let hash = 149_417;
  const text = uri.toString();
  for (let at = 0; at < text.length; at += 1) hash = (Math.imul(hash, 31) + text.charCodeAt(at)) | 0;
  return hash.toString(16);
}

/** The name of a workspace file's copy on the desktop. */
function md5(uri: Uri): string {
  const text = uri.toString();
  return createHash('md5')
    .update(process.platform === 'linux' ? text : text.toLowerCase())
    .digest('hex');
}
