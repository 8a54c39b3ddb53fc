import { TabInputTextDiff, Uri, commands, window, workspace } from 'vscode';
import type { Disposable, Tab } from 'vscode';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import type { FileVersion } from './base-versions.ts';
import { openDocumentOf } from './document-bases.ts';
import { SCHEME, baseName, locate } from './location.ts';
import type { SessionFiles } from './session-files.ts';

/** What the session has, for the left side of the comparison. */
const THEIRS = 'holdfast-theirs';
const MOST_TEXTS = 20;

/** Comparisons of a session's file (left) with the document that a person has edited (right). */
export class Comparisons implements Disposable {
  readonly #files: SessionFiles;
  readonly #owned = new DisposableStore();
  readonly #texts = new Map<string, string>();
  readonly #seen = new Map<string, FileVersion>();
  #number = 0;

  constructor(files: SessionFiles) {
    this.#files = files;
    this.#owned.add(
      workspace.registerTextDocumentContentProvider(THEIRS, {
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
    if (this.#texts.size > MOST_TEXTS && oldest !== undefined) this.#texts.delete(oldest);
    const before = tabsOf(uri);
    const left = Uri.from({ scheme: THEIRS, authority: uri.authority, path: uri.path, query: id });
    const title = `${sanitize(baseName(uri.path))}: in the session ↔ yours`;
    await commands.executeCommand('vscode.diff', left, uri, title, { preview: false });
    this.#seen.set(uri.toString(), { version: theirs.version, mtimeMs: theirs.mtimeMs });
    // An earlier comparison shows what the session no longer has.
    await window.tabGroups.close(before, true);
  }

  /** The version of the session's that a person has in front of them beside their own. */
  shownVersion(uri: Uri): FileVersion | undefined {
    const seen = this.#seen.get(uri.toString());
    if (seen === undefined || tabsOf(uri).length > 0) return seen;
    this.#seen.delete(uri.toString());
    return undefined;
  }

  /** The person's text was saved: a comparison that stays open decides nothing any more. */
  forget(uri: Uri): void {
    this.#seen.delete(uri.toString());
  }

  /** After the decision. */
  async close(uri: Uri): Promise<void> {
    this.#seen.delete(uri.toString());
    const tabs = tabsOf(uri);
    if (tabs.length === 0) return;
    // The document stays in sight.
    const document = openDocumentOf(uri);
    if (document !== undefined) await window.showTextDocument(document, { preview: false });
    await window.tabGroups.close(tabs, true);
  }

  /** A comparison that was open before a reload. */
  async #readAgain(uri: Uri): Promise<string> {
    const file = uri.with({ scheme: SCHEME, query: '' });
    const location = locate(file);
    if (location.kind !== 'workspace') return '';
    const { bytes } = await this.#files.read({ session: location.session }, location.path);
    return decodeText(file, bytes);
  }
}

/** The text that an editor would show of these bytes. */
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
        input.original.scheme === THEIRS &&
        input.modified.toString() === key,
    );
}
