import { FileSystemError, commands, window, workspace } from 'vscode';
import type { Disposable, Memento, Uri } from 'vscode';
import { z } from 'zod';
import { DisposableStore } from '../base/disposable-store.ts';
import { SCHEME, SNAPSHOT_SCHEME } from './location.ts';
import type { RememberedSettings } from './remembered-settings.ts';
import { safeRoots } from './safe-roots.ts';

const REOPENED = 'holdfast.reopened';
/** A window that takes longer to come back has been seen by the person meanwhile. */
const EXPLAINED_MS = 120_000;
const reopenedSchema = () => z.object({ root: z.string(), at: z.number() });

const REOPEN = 'Reopen';
const WHY =
  'VS Code takes settings, tasks and terminal profiles from the folder or workspace file that a window is opened on, and the agent can write there';

/**
 * A window whose folder is `holdfast://<session>/workspace`, or whose workspace file lies in a session, would take its configuration from what an
 * agent wrote. Until such a window shows the session's root instead, it gets no files at all, and what VS Code remembers of its configuration
 * from an earlier time is removed before that.
 */
export class WindowGuard implements Disposable {
  readonly #state: Memento;
  readonly #remembered: RememberedSettings;
  readonly #owned = new DisposableStore();
  #isClosed = false;

  constructor(state: Memento, remembered: RememberedSettings) {
    this.#state = state;
    this.#remembered = remembered;
    this.#owned.add(workspace.onDidChangeWorkspaceFolders(() => this.#check()));
    this.#check();
    void this.#explain();
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** Throws `NoPermissions` while the window is opened on something that an agent can write. */
  assertFilesAllowed(): void {
    if (this.#isClosed) throw FileSystemError.NoPermissions(`No files are shown in this window: ${WHY}`);
  }

  #check(): void {
    const folders = (workspace.workspaceFolders ?? []).map(({ uri, name }) => ({ uri, name }));
    const safe = safeRoots(workspace.workspaceFile, folders, isOurs);
    const wasClosed = this.#isClosed;
    this.#isClosed = safe.kind !== 'asIs';
    switch (safe.kind) {
      case 'asIs':
        if (wasClosed) void window.showWarningMessage(explanation('replaced the folder'));
        return;
      case 'open':
        void this.#reopen(safe.root);
        return;
      case 'replace':
        void this.#forget();
        workspace.updateWorkspaceFolders(safe.from, safe.count, ...safe.folders);
    }
  }

  async #forget(): Promise<void> {
    const { workspaceFile, workspaceFolders = [] } = workspace;
    await this.#remembered.forget(
      workspaceFolders.map(({ uri }) => uri).filter(isOurs),
      workspaceFile !== undefined && isOurs(workspaceFile) ? [workspaceFile] : [],
    );
  }

  async #reopen(root: Uri): Promise<void> {
    // First: nothing of this window goes on once it is reopened.
    await this.#forget();
    await this.#state.update(REOPENED, { root: root.toString(), at: Date.now() });
    await commands.executeCommand('vscode.openFolder', root, { forceReuseWindow: true });
    // Where the window stays (unsaved changes, a question that was cancelled) it has no files, and a person may try again.
    const choice = await window.showWarningMessage(explanation('reopens the window'), REOPEN);
    if (choice === REOPEN && !this.#owned.isDisposed) await this.#reopen(root);
  }

  /** The window has just come back on the session's root. */
  async #explain(): Promise<void> {
    const kept: unknown = this.#state.get(REOPENED);
    // The schema is loaded only where there is something to read.
    const reopened = kept === undefined ? undefined : reopenedSchema().safeParse(kept).data;
    if (reopened === undefined || this.#isClosed) return;
    const isHere = workspace.workspaceFolders?.some(({ uri }) => uri.toString() === reopened.root) === true;
    if (!isHere) return;
    await this.#state.update(REOPENED, undefined);
    if (Date.now() - reopened.at < EXPLAINED_MS)
      await window.showWarningMessage(explanation('reopened the window'));
  }
}

function isOurs({ scheme }: Uri): boolean {
  return scheme === SCHEME || scheme === SNAPSHOT_SCHEME;
}

function explanation(what: string): string {
  return `Holdfast ${what} on the session itself, with the same files below “workspace”. ${WHY}.`;
}
