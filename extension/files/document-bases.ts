import { join } from 'node:path';
import { workspace } from 'vscode';
import type { Disposable, Memento, TextDocument, Uri } from 'vscode';
import { z } from 'zod';
import { DisposableStore } from '../base/disposable-store.ts';
import { BaseTexts } from './base-texts.ts';
import { BaseVersions, fingerprint } from './base-versions.ts';
import type { FileVersion } from './base-versions.ts';
import { SCHEME } from './location.ts';
import type { WholeFile } from './session-files.ts';
import { StoredBaseTexts } from './stored-base-texts.ts';

const STATE_KEY = 'holdfast.bases';
const MAX_STORED = 500;
/** A function, because zod is in the second bundle, which must not load at activation. */
const storedSchema = () => z.record(z.string(), z.object({ version: z.string(), mtimeMs: z.number() }));

/**
 * The base versions of the documents of this window. After a window reload VS Code restores a dirty document without
 * reading its file, so the bases of dirty documents are stored in the state of the workspace, and their texts in the
 * folder that VS Code gives the extension for this workspace.
 */
export class DocumentBases implements Disposable {
  readonly #versions = new BaseVersions();
  readonly #texts = new BaseTexts();
  /** Fingerprints of dirty documents that are not UTF-8, see `isOpaque`. */
  readonly #unsaved = new Map<string, string>();
  /**
   * The bases of documents that VS Code reports as clean during a rename although they have unsaved text. VS Code
   * copies the text to the document at the new path, and may reload the old document meanwhile.
   */
  readonly #suspended = new Map<string, FileVersion>();
  readonly #state: Memento;
  readonly #folder: Uri | undefined;
  /** Loaded at first use. */
  #loaded: Map<string, FileVersion> | undefined;
  #storedTexts: StoredBaseTexts | undefined;
  /** Of each restored document, the loading of its base text. */
  readonly #loading = new Map<string, Promise<void>>();
  readonly #owned = new DisposableStore();

  /** `folder`: where base texts are stored; undefined where VS Code gives the window none. */
  constructor(state: Memento, folder: Uri | undefined) {
    this.#state = state;
    this.#folder = folder;
    this.#owned.add(workspace.onDidOpenTextDocument((document) => this.#update(document)));
    this.#owned.add(workspace.onDidChangeTextDocument(({ document }) => this.#update(document)));
    this.#owned.add(
      workspace.onDidSaveTextDocument(({ uri }) => {
        this.#suspended.delete(uri.toString());
        this.#unstore(uri.toString());
      }),
    );
    this.#owned.add(workspace.onDidCloseTextDocument((document) => this.#close(document)));
    for (const document of workspace.textDocuments) this.#update(document);
  }

  dispose(): void {
    this.#owned.dispose();
  }

  recordRead(uri: Uri, file: WholeFile): void {
    const document = openDocumentOf(uri);
    const shown =
      document === undefined ? undefined : document.isDirty ? null : fingerprint(document.getText());
    const key = uri.toString();
    this.#versions.recordRead(key, versionOf(file), fingerprint(file.bytes.toString('utf8')), shown);
    if (document?.isDirty !== false) return;
    if (isOpaque(document)) this.#versions.useLatestRead(key);
    this.#cacheText(key, document);
  }

  /** `text`: the text of the file as a document shows it, if known. */
  recordWrite(uri: Uri, { version, mtimeMs }: FileVersion, text?: string): void {
    this.#set(uri, { version, mtimeMs });
    if (text !== undefined) this.#texts.set(uri.toString(), version, text);
  }

  /**
   * Records a write that is not a save of the document. An open document with another text keeps its base until it is
   * reloaded.
   */
  recordReplacement(uri: Uri, file: WholeFile): void {
    const document = openDocumentOf(uri);
    const text = fingerprint(file.bytes.toString('utf8'));
    if (document === undefined || fingerprint(document.getText()) === text)
      this.recordWrite(uri, versionOf(file));
  }

  /**
   * Makes the document an edit of this version: it was merged into the document, or the person chose to replace it. The
   * modification time stays that of the version that VS Code loaded, because VS Code would report a later one as a
   * conflict.
   */
  rebase(uri: Uri, { version, mtimeMs }: FileVersion, text?: string): void {
    this.recordWrite(uri, { version, mtimeMs: this.dirtyBaseOf(uri).base?.mtimeMs ?? mtimeMs }, text);
  }

  /** The text of the base, for merging; undefined where it is not cached. */
  baseTextOf(uri: Uri, { version }: FileVersion): string | undefined {
    return this.#texts.get(uri.toString(), version);
  }

  /** Resolves once the text of the base is cached, if it was stored before the window was reloaded. */
  async restoreBaseText(uri: Uri): Promise<void> {
    await this.#loading.get(uri.toString());
  }

  /** The bases of the open document with this URI, or of those below this folder. */
  basesBelow(uri: Uri): { readonly uri: Uri; readonly base: FileVersion }[] {
    const key = uri.toString();
    return workspace.textDocuments.flatMap((document) => {
      const own = document.uri.toString();
      if (own !== key && !own.startsWith(`${key}/`)) return [];
      const base = this.#baseOf(own);
      return base === undefined ? [] : [{ uri: document.uri, base }];
    });
  }

  /** Copies a document's base to another path. The old one is forgotten when the document is closed. */
  copyBase(from: Uri, to: Uri, base: FileVersion): void {
    const key = from.toString();
    const text = this.#texts.get(key, (this.#baseOf(key) ?? base).version);
    this.recordWrite(to, base, text);
    if (this.#stored.has(key) || this.#suspended.has(key)) this.#store(to.toString());
  }

  /** Whether the document has unsaved changes, and the version that they are based on. */
  dirtyBaseOf(uri: Uri): { readonly isDirty: boolean; readonly base: FileVersion | undefined } {
    if (openDocumentOf(uri)?.isDirty !== true) return { isDirty: false, base: undefined };
    const key = uri.toString();
    return { isDirty: true, base: this.#versions.get(key) ?? this.#stored.get(key) };
  }

  #baseOf(key: string): FileVersion | undefined {
    return this.#suspended.get(key) ?? this.#versions.get(key) ?? this.#stored.get(key);
  }

  get #stored(): Map<string, FileVersion> {
    this.#loaded ??= new Map(Object.entries(storedSchema().safeParse(this.#state.get(STATE_KEY)).data ?? {}));
    return this.#loaded;
  }

  #set(uri: Uri, version: FileVersion): void {
    const key = uri.toString();
    this.#versions.set(key, version);
    if (this.#stored.has(key)) this.#store(key);
  }

  #update(document: TextDocument): void {
    if (document.uri.scheme !== SCHEME) return;
    const key = document.uri.toString();
    if (document.isDirty) {
      this.#suspended.delete(key);
      if (this.#stored.has(key)) this.#loadText(key);
      else this.#store(key);
      if (isOpaque(document)) this.#unsaved.set(key, fingerprint(document.getText()));
      return;
    }
    const text = fingerprint(document.getText());
    if (isOpaque(document)) {
      if (this.#unsaved.get(key) === text) this.#suspend(key);
      else this.#versions.useLatestRead(key);
    } else if (this.#versions.recordShownText(key, text)) this.#unstore(key);
    else {
      this.#suspend(key);
      return;
    }
    this.#cacheText(key, document);
  }

  #suspend(key: string): void {
    const base = this.#versions.get(key) ?? this.#stored.get(key);
    if (base === undefined || !this.#stored.has(key)) return;
    this.#suspended.set(key, base);
    this.#loadText(key);
  }

  #cacheText(key: string, document: TextDocument): void {
    const base = this.#versions.get(key);
    if (base === undefined || this.#texts.get(key, base.version) !== undefined) return;
    const text = document.getText();
    if (isOpaque(document) || this.#versions.wasRead(key, base, fingerprint(text))) {
      this.#texts.set(key, base.version, text);
    }
  }

  #close({ uri }: TextDocument): void {
    // VS Code fires this also when the language of a document changes, for example after a rename. Such a document is
    // still open.
    if (uri.scheme !== SCHEME || openDocumentOf(uri) !== undefined) return;
    this.#versions.forget(uri.toString());
    this.#texts.forget(uri.toString());
    this.#unsaved.delete(uri.toString());
    this.#suspended.delete(uri.toString());
    this.#unstore(uri.toString());
  }

  #store(key: string): void {
    const base = this.#versions.get(key);
    if (base === undefined) return;
    this.#stored.set(key, base);
    const text = this.#texts.get(key, base.version);
    if (text === undefined) void this.#files?.forget(key);
    else void this.#files?.set(key, base.version, text);
    const [oldest] = this.#stored.keys();
    if (this.#stored.size > MAX_STORED && oldest !== undefined) this.#removeStored(oldest);
    this.#writeState();
  }

  #unstore(key: string): void {
    if (this.#removeStored(key)) this.#writeState();
  }

  #removeStored(key: string): boolean {
    this.#loading.delete(key);
    if (!this.#stored.delete(key)) return false;
    void this.#files?.forget(key);
    return true;
  }

  get #files(): StoredBaseTexts | undefined {
    if (this.#folder === undefined) return undefined;
    this.#storedTexts ??= new StoredBaseTexts(join(this.#folder.fsPath, 'bases'), this.#stored.keys());
    return this.#storedTexts;
  }

  /** For a document that VS Code restored: its file is not read, so the text of its base is not cached. */
  #loadText(key: string): void {
    const base = this.#stored.get(key);
    if (base === undefined || this.#loading.has(key)) return;
    const load = async (): Promise<void> => {
      if (this.#texts.get(key, base.version) !== undefined) return;
      const text = await this.#files?.get(key, base.version);
      if (text !== undefined && this.#baseOf(key)?.version === base.version)
        this.#texts.set(key, base.version, text);
    };
    this.#loading.set(key, load());
  }

  #writeState(): void {
    void this.#state.update(STATE_KEY, Object.fromEntries(this.#stored));
  }
}

export function openDocumentOf(uri: Uri): TextDocument | undefined {
  const key = uri.toString();
  return workspace.textDocuments.find((document) => document.uri.toString() === key);
}

/** Whether the document is not UTF-8, so that its text cannot be compared with the bytes of the file. */
function isOpaque({ encoding }: TextDocument): boolean {
  return !encoding.startsWith('utf8');
}

function versionOf({ version, mtimeMs }: WholeFile): FileVersion {
  return { version, mtimeMs };
}
