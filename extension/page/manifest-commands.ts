import { EventEmitter, Uri, window, workspace } from 'vscode';
import type { Disposable, TextDocumentContentProvider } from 'vscode';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { MANIFEST_SCHEME } from '../files/location.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { pickSession } from '../sessions/pick-session.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { chooseSavedManifest, readManifestText, saveManifest } from './manifest-files.ts';

/** Shows, saves and verifies manifests. The texts are read-only documents, made when they are opened. */
export class ManifestCommands implements TextDocumentContentProvider, Disposable {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri>());

  constructor(connection: Connection, sessions: SessionList) {
    this.#connection = connection;
    this.#sessions = sessions;
    this.#owned.add(workspace.registerTextDocumentContentProvider(MANIFEST_SCHEME, this));
  }

  readonly onDidChange = this.#changed.event;

  get handlers() {
    return {
      'holdfast.showManifest': (target) => this.#show(target),
      'holdfast.saveManifest': (target, file) => this.#save(target, textOf(file)),
      'holdfast.verifyManifest': (file, key) => this.#verify(textOf(file), textOf(key)),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  provideTextDocumentContent(uri: Uri): Promise<string> {
    return readManifestText(this.#connection, uri);
  }

  async #show(target: unknown): Promise<void> {
    const session = await pickSession(this.#sessions, target, { title: 'Show Manifest', here: true });
    if (session === undefined) return;
    const title = sanitize(sessionTitle(session)).replaceAll('/', '_');
    const { id } = session;
    await this.#open(Uri.from({ scheme: MANIFEST_SCHEME, authority: id, path: `/${title} manifest.txt` }));
  }

  async #save(target: unknown, file: string | undefined): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Save Manifest', here: true });
    return session === undefined ? undefined : await saveManifest(this.#connection, session, file);
  }

  async #verify(file: string | undefined, key: string | undefined): Promise<void> {
    const uri = await chooseSavedManifest(this.#connection, file, key);
    if (uri !== undefined) await this.#open(uri);
  }

  /** A document that is open is written again. */
  async #open(uri: Uri): Promise<void> {
    const wasOpen = workspace.textDocuments.some((document) => document.uri.toString() === uri.toString());
    if (wasOpen) this.#changed.fire(uri);
    await window.showTextDocument(await workspace.openTextDocument(uri), { preview: false });
  }
}

function textOf(argument: unknown): string | undefined {
  return typeof argument === 'string' ? argument : undefined;
}
