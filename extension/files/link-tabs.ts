import { TabInputText, window, workspace } from 'vscode';
import type { Disposable, Tab, TextDocument, Uri } from 'vscode';
import { DisposableStore } from '../base/disposable-store.ts';
import { canonicalUri } from './location.ts';
import type { LocalHome } from './location.ts';

/**
 * Replaces the tab of a link without a home id by the tab of the same file under the URI that this window uses, so that
 * a window does not show one file as two. A tab with unsaved changes stays; it can be saved under its own URI.
 */
export class LinkTabs implements Disposable {
  readonly #home: LocalHome;
  readonly #owned = new DisposableStore();

  constructor(home: LocalHome) {
    this.#home = home;
    this.#owned.add(
      window.tabGroups.onDidChangeTabs(({ opened }) => {
        for (const tab of opened) this.#check(tab);
      }),
    );
    for (const tab of window.tabGroups.all.flatMap(({ tabs }) => tabs)) this.#check(tab);
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #check(tab: Tab): void {
    if (tab.isDirty || !(tab.input instanceof TabInputText)) return;
    const { uri } = tab.input;
    const canonical = canonicalUri(this.#home, uri);
    if (canonical !== undefined) void this.#replace(tab, uri, canonical).catch(() => undefined);
  }

  async #replace(tab: Tab, uri: Uri, canonical: Uri): Promise<void> {
    let document: TextDocument;
    try {
      document = await workspace.openTextDocument(canonical);
    } catch {
      // The file cannot be shown as text. The tab says why.
      return;
    }
    if (!isOpenAndClean(tab)) return;
    const shown = window.visibleTextEditors.find(
      (editor) => editor.document.uri.toString() === uri.toString(),
    );
    await window.showTextDocument(document, {
      viewColumn: tab.group.viewColumn,
      preview: tab.isPreview,
      preserveFocus: !tab.isActive,
      ...(shown === undefined ? {} : { selection: shown.selection }),
    });
    if (isOpenAndClean(tab)) await window.tabGroups.close(tab, true);
  }
}

function isOpenAndClean(tab: Tab): boolean {
  return !tab.isDirty && tab.group.tabs.includes(tab);
}
