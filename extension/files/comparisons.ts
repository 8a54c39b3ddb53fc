import { TabInputTextDiff, Uri, commands, window, workspace } from 'vscode';
import type { Disposable, Tab } from 'vscode';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import type { FileVersion } from './base-versions.ts';
import { openDocumentOf } from './document-bases.ts';
import { SCHEME, baseName, locate } from './location.ts';
import type { SessionFiles } from './session-files.ts';

/** URIs of the session's text, on the left side of a comparison. */
const THEIRS_SCHEME = 'holdfast-theirs';
const MAX_TEXTS = 20;

/** Diff editors that compare the session's file (left) with a person's edited document (right). */
export class Comparisons implements Disposable {
  readonly #files: SessionFiles;
  readonly #owned = new DisposableStore();
  readonly #texts = new Map<string, string>();
  /** The session's version that each document is compared with. */
  readonly #shown = new Map<string, FileVersion>();
  #number = 0;

  constructor(files: SessionFiles) {
    this.#files = files;
    this.#owned.add(
      workspace.registerTextDocumentContentProvider(THEIRS_SCHEME, {
        provideTextDocumentContent: (uri) => this.#texts.get(uri.query) ?? this.#readAgain(uri),
      }),
    );
  }

  dispose(): void {
    this.#owned.dispose();
  }

  async open(uri: Uri): Promise<void> {
    const location = locate(uri);
    if (location.kind !== 'workspace') return;
    const theirs = await this.#files.read({ session: location.session }, location.path);
    const text = await decodeText(uri, theirs.bytes);
    this.#number += 1;
    const id = String(this.#number);
    this.#texts.set(id, text);
    const [oldest] = this.#texts.keys();
    if (this.#texts.size > MAX_TEXTS && oldest !== undefined) this.#texts.delete(oldest);
    const before = tabsOf(uri);
    const left = Uri.from({ scheme: THEIRS_SCHEME, authority: uri.authority, path: uri.path, query: id });
    const title = `${sanitize(baseName(uri.path))}: in the session ↔ yours`;
    await commands.executeCommand('vscode.diff', left, uri, title, { preview: false });
    this.#shown.set(uri.toString(), { version: theirs.version, mtimeMs: theirs.mtimeMs });
    // Earlier comparisons show an outdated text of the session.
    await window.tabGroups.close(before, true);
  }

  /** The session's version in the open comparison of this document. */
  shownVersion(uri: Uri): FileVersion | undefined {
    const shown = this.#shown.get(uri.toString());
    if (shown === undefined || tabsOf(uri).length > 0) return shown;
    this.#shown.delete(uri.toString());
    return undefined;
  }

  /** After a save: a comparison that stays open no longer counts as a decision about a later conflict. */
  forget(uri: Uri): void {
    this.#shown.delete(uri.toString());
  }

  /** Closes the comparisons of a document. */
  async close(uri: Uri): Promise<void> {
    this.#shown.delete(uri.toString());
    const tabs = tabsOf(uri);
    if (tabs.length === 0) return;
    // The document itself stays visible.
    const document = openDocumentOf(uri);
    if (document !== undefined) await window.showTextDocument(document, { preview: false });
    await window.tabGroups.close(tabs, true);
  }

  /** For a comparison that VS Code restored after a window reload. */
  async #readAgain(uri: Uri): Promise<string> {
    const file = uri.with({ scheme: SCHEME, query: '' });
    const location = locate(file);
    if (location.kind !== 'workspace') return '';
    const { bytes } = await this.#files.read({ session: location.session }, location.path);
    return decodeText(file, bytes);
  }
}

/** Decodes bytes as the document's editor would. */
export async function decodeText(uri: Uri, bytes: Uint8Array): Promise<string> {
  const document = openDocumentOf(uri);
  return document === undefined
    ? workspace.decode(bytes, { uri })
    : workspace.decode(bytes, { encoding: document.encoding });
}

function tabsOf(uri: Uri): Tab[] {
  const key = uri.toString();
  return window.tabGroups.all
    .flatMap(({ tabs }) => tabs)
    .filter(
      ({ input }) =>
        input instanceof TabInputTextDiff &&
        input.original.scheme === THEIRS_SCHEME &&
        input.modified.toString() === key,
    );
}
