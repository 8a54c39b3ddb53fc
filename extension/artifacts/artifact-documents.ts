import { EventEmitter, window, workspace } from 'vscode';
import type { Disposable, TextDocumentContentProvider, Uri } from 'vscode';
import { DisposableStore } from '../base/disposable-store.ts';
import type { Connection } from '../connection/connection.ts';
import { refusalOf } from '../files/guarded-files.ts';
import { ARTIFACT_SCHEME } from '../files/location.ts';
import type { WindowGuard } from '../files/window-guard.ts';
import { readArtifactDocument } from './read-document.ts';

/** Files of artifacts, and whether an artifact is what was kept, as read-only texts. */
export class ArtifactDocuments implements TextDocumentContentProvider, Disposable {
  readonly #connection: Connection;
  readonly #guard: WindowGuard;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri>());
  /** Texts that were made for a document that is about to open. */
  readonly #prepared = new Map<string, string>();

  constructor(connection: Connection, guard: WindowGuard) {
    this.#connection = connection;
    this.#guard = guard;
    this.#owned.add(workspace.registerTextDocumentContentProvider(ARTIFACT_SCHEME, this));
  }

  readonly onDidChange = this.#changed.event;

  dispose(): void {
    this.#owned.dispose();
  }

  async provideTextDocumentContent(uri: Uri): Promise<string> {
    this.#guard.assertFilesAllowed();
    const refusal = refusalOf(uri, this.#connection);
    if (refusal !== undefined) throw refusal;
    const prepared = this.#prepared.get(uri.toString());
    this.#prepared.delete(uri.toString());
    return prepared ?? (await readArtifactDocument(this.#connection, uri));
  }

  /** `text`: what it shows, where that is known already. */
  async show(uri: Uri, text?: string): Promise<void> {
    if (text !== undefined) {
      this.#prepared.set(uri.toString(), text);
      this.#changed.fire(uri);
    }
    await window.showTextDocument(await workspace.openTextDocument(uri), { preview: true });
  }
}
