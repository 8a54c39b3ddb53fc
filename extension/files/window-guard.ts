import { FileSystemError, commands, window, workspace } from 'vscode';
import type { Disposable, Memento, Uri } from 'vscode';
import { z } from 'zod';
import { DisposableStore } from '../base/disposable-store.ts';
import type { CachedSettings } from './cached-settings.ts';
import { SCHEME, SNAPSHOT_SCHEME } from './location.ts';
import { safeRoots } from './safe-roots.ts';

const REOPENED_KEY = 'holdfast.reopened';
/** How long after the reopening the explanation still makes sense. */
const EXPLAIN_MS = 120_000;
const reopenedSchema = () => z.object({ root: z.string(), at: z.number() });

const REOPEN = 'Reopen';
const REASON =
  'VS Code reads settings, tasks and terminal profiles from the folder or workspace file that a window opens, ' +
  'and the agent can write there';

/**
 * A window whose folder is `holdfast://<session>.<home id>/workspace`, or whose workspace file is in a session, would read its
 * configuration from files of an agent. Until such a window opens the session's root instead, it gets no files at all.
 * VS Code's cached copies of its configuration are deleted before that.
 */
export class WindowGuard implements Disposable {
  readonly #state: Memento;
  readonly #cachedSettings: CachedSettings;
  readonly #owned = new DisposableStore();
  #isBlocked = false;

  constructor(state: Memento, cachedSettings: CachedSettings) {
    this.#state = state;
    this.#cachedSettings = cachedSettings;
    this.#owned.add(workspace.onDidChangeWorkspaceFolders(() => this.#check()));
    this.#check();
    void this.#explain();
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** Throws `NoPermissions` while the window's folder or workspace file is one that an agent can write. */
  assertFilesAllowed(): void {
    if (this.#isBlocked) throw FileSystemError.NoPermissions(`No files are shown in this window: ${REASON}`);
  }

  #check(): void {
    const folders = (workspace.workspaceFolders ?? []).map(({ uri, name }) => ({ uri, name }));
    const safe = safeRoots(workspace.workspaceFile, folders, isOurs);
    const wasBlocked = this.#isBlocked;
    this.#isBlocked = safe.kind !== 'asIs';
    switch (safe.kind) {
      case 'asIs':
        if (wasBlocked) void window.showWarningMessage(explanation('replaced the folder'));
        return;
      case 'open':
        void this.#reopen(safe.root);
        return;
      case 'replace':
        void this.#deleteCachedSettings();
        workspace.updateWorkspaceFolders(safe.from, safe.count, ...safe.folders);
    }
  }

  async #deleteCachedSettings(): Promise<void> {
    const { workspaceFile, workspaceFolders = [] } = workspace;
    await this.#cachedSettings.delete(
      workspaceFolders.map(({ uri }) => uri).filter(isOurs),
      workspaceFile !== undefined && isOurs(workspaceFile) ? [workspaceFile] : [],
    );
  }

  async #reopen(root: Uri): Promise<void> {
    // First, because the reopening ends this window.
    await this.#deleteCachedSettings();
    await this.#state.update(REOPENED_KEY, { root: root.toString(), at: Date.now() });
    await commands.executeCommand('vscode.openFolder', root, { forceReuseWindow: true });
    // The window stays open if the person cancels, for example because of unsaved changes. It has no files then.
    const choice = await window.showWarningMessage(explanation('reopens the window'), REOPEN);
    if (choice === REOPEN && !this.#owned.isDisposed) await this.#reopen(root);
  }

  /** Explains the reopening once the window shows the session's root. */
  async #explain(): Promise<void> {
    const stored: unknown = this.#state.get(REOPENED_KEY);
    // zod is loaded only where there is something to parse.
    const reopened = stored === undefined ? undefined : reopenedSchema().safeParse(stored).data;
    if (reopened === undefined || this.#isBlocked) return;
    const isHere = workspace.workspaceFolders?.some(({ uri }) => uri.toString() === reopened.root) === true;
    if (!isHere) return;
    await this.#state.update(REOPENED_KEY, undefined);
    if (Date.now() - reopened.at < EXPLAIN_MS)
      await window.showWarningMessage(explanation('reopened the window'));
  }
}

function isOurs({ scheme }: Uri): boolean {
  return scheme === SCHEME || scheme === SNAPSHOT_SCHEME;
}

function explanation(what: string): string {
  return `Holdfast ${what} on the session itself, which has the same files below “workspace”. ${REASON}.`;
}
