import { EventEmitter, FileChangeType, TabInputText, window, workspace } from 'vscode';
import type { Disposable, FileChangeEvent, Tab, TextDocument, Uri } from 'vscode';
import { DisposableStore } from '../base/disposable-store.ts';
import { SCHEME, locate } from './location.ts';
import type { SessionFiles } from './session-files.ts';
import { tailText } from './tail-text.ts';

/** `holdfast-tail://<session>/workspace/…`: the end of a file that is too large to be opened. */
const TAIL_SCHEME = 'holdfast-tail';
/** How long a tab may take to come up for a file that could not be opened. */
const TAB_MS = 5_000;
/** A log that grows all the time is read again only so often. */
const AGAIN_MS = 2_000;

/**
 * Files that are too large for an editor. Whoever reads one – a copy, a search, another extension – gets an error, as part of a file must
 * not pass for the file. A tab of it shows its end instead, under an address of its own that nobody can write to.
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
        for (const tab of [...opened, ...changed]) this.#look(tab);
      }),
    );
    this.#owned.onDispose(() => {
      for (const timer of [...this.#refused.values(), ...this.#outdated.values()]) clearTimeout(timer);
    });
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** A file was not read because it is too large. Where a tab was to show it, that one shows its end. */
  showTailInTab(uri: Uri): void {
    const key = uri.toString();
    clearTimeout(this.#refused.get(key));
    this.#refused.set(
      key,
      setTimeout(() => this.#refused.delete(key), TAB_MS),
    );
    for (const { tabs } of window.tabGroups.all) for (const tab of tabs) this.#look(tab);
  }

  refreshTails(events: readonly FileChangeEvent[]): void {
    for (const { type, uri } of events) {
      const tail = uri.with({ scheme: TAIL_SCHEME });
      const key = tail.toString();
      if (type === FileChangeType.Deleted || this.#outdated.has(key) || !isOpen(key)) continue;
      const again = (): void => {
        this.#outdated.delete(key);
        this.#changed.fire(tail);
      };
      this.#outdated.set(key, setTimeout(again, AGAIN_MS));
    }
  }

  #look(tab: Tab): void {
    const { input } = tab;
    // Whoever else read the file: a tab with unsaved changes stays.
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
      // It is no text, or cannot be read: the tab says why the file was not opened.
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
    if (location.kind !== 'workspace') throw new Error('This is no file of a session');
    const { bytes, size } = await this.#files.readTail({ session: location.session }, location.path);
    const text = tailText(bytes, { path: location.path, size });
    if (text === undefined) throw new Error('The file is not text');
    return text;
  }
}

function isOpen(key: string): boolean {
  return workspace.textDocuments.some(({ uri }) => uri.toString() === key);
}
