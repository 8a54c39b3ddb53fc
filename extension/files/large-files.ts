import { EventEmitter, FileChangeType, TabInputText, window, workspace } from 'vscode';
import type { Disposable, FileChangeEvent, Tab, TextDocument, Uri } from 'vscode';
import { DisposableStore } from '../base/disposable-store.ts';
import { SCHEME, locate } from './location.ts';
import type { SessionFiles } from './session-files.ts';
import { tailText } from './tail-text.ts';

/** `holdfast-tail://<session>/workspace/…`: the end of a file that is too large to open. */
const TAIL_SCHEME = 'holdfast-tail';
/** How long after a refused read VS Code may open the tab for it. */
const TAB_MS = 5_000;
/** The shortest time between two reads of a growing file. */
const REFRESH_MS = 2_000;

/**
 * Shows the end of files that are too large for an editor. Reading such a file is an error, because a copy, a search or
 * another extension must not take a part of it for the whole. Its tab shows the end instead, under a read-only URI.
 */
export class LargeFiles implements Disposable {
  readonly #files: SessionFiles;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri>());
  readonly #refused = new Map<string, NodeJS.Timeout>();
  readonly #outdated = new Map<string, NodeJS.Timeout>();

  constructor(files: SessionFiles) {
    this.#files = files;
    this.#owned.add(
      workspace.registerTextDocumentContentProvider(TAIL_SCHEME, {
        onDidChange: this.#changed.event,
        provideTextDocumentContent: (uri) => this.#read(uri),
      }),
    );
    this.#owned.add(
      window.tabGroups.onDidChangeTabs(({ opened, changed }) => {
        for (const tab of [...opened, ...changed]) this.#replaceIfRefused(tab);
      }),
    );
    this.#owned.onDispose(() => {
      for (const timer of [...this.#refused.values(), ...this.#outdated.values()]) clearTimeout(timer);
    });
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /**
   * A read of this file was refused because of its size. A tab that is about to show the file shows its end instead.
   */
  showTailInTab(uri: Uri): void {
    const key = uri.toString();
    clearTimeout(this.#refused.get(key));
    this.#refused.set(
      key,
      setTimeout(() => this.#refused.delete(key), TAB_MS),
    );
    for (const { tabs } of window.tabGroups.all) for (const tab of tabs) this.#replaceIfRefused(tab);
  }

  /** Files have changed: reads the ends that are shown again. */
  refreshTails(events: readonly FileChangeEvent[]): void {
    for (const { type, uri } of events) {
      const tail = uri.with({ scheme: TAIL_SCHEME });
      const key = tail.toString();
      if (type === FileChangeType.Deleted || this.#outdated.has(key) || !isOpen(key)) continue;
      const refresh = (): void => {
        this.#outdated.delete(key);
        this.#changed.fire(tail);
      };
      this.#outdated.set(key, setTimeout(refresh, REFRESH_MS));
    }
  }

  #replaceIfRefused(tab: Tab): void {
    const { input } = tab;
    // The refused read may be of another program: a tab with unsaved changes stays.
    if (tab.isDirty || !(input instanceof TabInputText) || input.uri.scheme !== SCHEME) return;
    const key = input.uri.toString();
    const timer = this.#refused.get(key);
    if (timer === undefined) return;
    clearTimeout(timer);
    this.#refused.delete(key);
    void this.#replace(tab, input.uri).catch(() => undefined);
  }

  async #replace(tab: Tab, uri: Uri): Promise<void> {
    let document: TextDocument;
    try {
      document = await workspace.openTextDocument(uri.with({ scheme: TAIL_SCHEME }));
    } catch {
      // The file is not text or cannot be read. The tab shows why it was not opened.
      return;
    }
    await window.showTextDocument(document, {
      viewColumn: tab.group.viewColumn,
      preview: tab.isPreview,
      preserveFocus: !tab.isActive,
    });
    if (tab.group.tabs.includes(tab)) await window.tabGroups.close(tab, true);
  }

  async #read(tail: Uri): Promise<string> {
    const location = locate(tail.with({ scheme: SCHEME }));
    if (location.kind !== 'workspace') throw new Error('This is not a file of a session');
    const { bytes, size } = await this.#files.readTail({ session: location.session }, location.path);
    const text = tailText(bytes, { path: location.path, size });
    if (text === undefined) throw new Error('The file is not text');
    return text;
  }
}

function isOpen(key: string): boolean {
  return workspace.textDocuments.some(({ uri }) => uri.toString() === key);
}
