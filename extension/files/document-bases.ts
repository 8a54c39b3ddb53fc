import { workspace } from 'vscode';
import type { Disposable, Memento, TextDocument, Uri } from 'vscode';
import { z } from 'zod';
import { DisposableStore } from '../base/disposable-store.ts';
import { BaseTexts } from './base-texts.ts';
import { BaseVersions, fingerprint } from './base-versions.ts';
import type { FileVersion } from './base-versions.ts';
import { SCHEME } from './location.ts';
import type { WholeFile } from './session-files.ts';

const KEPT = 'holdfast.bases';
/** More documents are hardly dirty at a time. */
const MOST_KEPT = 500;
/** Made where it is used: the window does not wait for it. */
const keptSchema = () => z.record(z.string(), z.object({ version: z.string(), mtimeMs: z.number() }));

/**
 * The base versions of the documents of this window. VS Code brings a dirty document back after a reload without reading its file, so
 * the bases of dirty ones are kept with the window's state.
 */
export class DocumentBases implements Disposable {
  readonly #versions = new BaseVersions();
  readonly #texts = new BaseTexts();
  /** What dirty documents hold whose text cannot be compared with bytes: fingerprints, see `isOpaque`. */
  readonly #unsaved = new Map<string, string>();
  /**
   * What documents with unsaved text began from that VS Code calls clean: it does so for the time of a rename, carries the text to the new name,
   * and may load the old document again meanwhile.
   */
  readonly #suspended = new Map<string, FileVersion>();
  readonly #state: Memento;
  #loaded: Map<string, FileVersion> | undefined;
  readonly #owned = new DisposableStore();

  constructor(state: Memento) {
    this.#state = state;
    this.#owned.add(workspace.onDidOpenTextDocument((document) => this.#look(document)));
    this.#owned.add(workspace.onDidChangeTextDocument(({ document }) => this.#look(document)));
    this.#owned.add(
      workspace.onDidSaveTextDocument(({ uri }) => {
        this.#suspended.delete(uri.toString());
        this.#drop(uri.toString());
      }),
    );
    this.#owned.add(workspace.onDidCloseTextDocument((document) => this.#close(document)));
    for (const document of workspace.textDocuments) this.#look(document);
  }

  dispose(): void {
    this.#owned.dispose();
  }

  recordRead(uri: Uri, file: WholeFile): void {
    const document = openDocumentOf(uri);
    const shown =
      document === undefined ? undefined : document.isDirty ? null : fingerprint(document.getText());
    const key = uri.toString();
    this.#versions.recordRead(key, seenOf(file), fingerprint(file.bytes.toString('utf8')), shown);
    if (document?.isDirty !== false) return;
    if (isOpaque(document)) this.#versions.useLatestRead(key);
    this.#keepText(key, document);
  }

  /** `text`: what a document of it shows, where that is known. */
  recordWrite(uri: Uri, { version, mtimeMs }: FileVersion, text?: string): void {
    this.#set(uri, { version, mtimeMs });
    if (text !== undefined) this.#texts.set(uri.toString(), version, text);
  }

  /** The file was written, and not by saving a document: one that shows another text begins from that until it is loaded again. */
  recordReplacement(uri: Uri, file: WholeFile): void {
    const document = openDocumentOf(uri);
    const text = fingerprint(file.bytes.toString('utf8'));
    if (document === undefined || fingerprint(document.getText()) === text)
      this.recordWrite(uri, seenOf(file));
  }

  /**
   * The document counts as an edit of this version from now on: the version was merged into it, or the person has seen it and wants
   * their own text instead. The time stays that of what VS Code has loaded: it would take a later one for a conflict.
   */
  rebase(uri: Uri, { version, mtimeMs }: FileVersion, text?: string): void {
    this.recordWrite(uri, { version, mtimeMs: this.dirtyBaseOf(uri).base?.mtimeMs ?? mtimeMs }, text);
  }

  /** The text of the base, for merging; undefined where it is not known. */
  baseTextOf(uri: Uri, { version }: FileVersion): string | undefined {
    return this.#texts.get(uri.toString(), version);
  }

  /** The bases of this document, or of those below this folder. */
  basesBelow(uri: Uri): { readonly uri: Uri; readonly base: FileVersion }[] {
    const key = uri.toString();
    return workspace.textDocuments.flatMap((document) => {
      const own = document.uri.toString();
      if (own !== key && !own.startsWith(`${key}/`)) return [];
      const base = this.#beganFrom(own);
      return base === undefined ? [] : [{ uri: document.uri, base }];
    });
  }

  /** A document gets another path, or a copy, and its unsaved text with it. The old one is forgotten when it is closed. */
  copyBase(from: Uri, to: Uri, base: FileVersion): void {
    const key = from.toString();
    const text = this.#texts.get(key, (this.#beganFrom(key) ?? base).version);
    this.recordWrite(to, base, text);
    if (this.#kept.has(key) || this.#suspended.has(key)) this.#keep(to.toString());
  }

  /** The version that an editor's unsaved changes began from. */
  dirtyBaseOf(uri: Uri): { readonly isDirty: boolean; readonly base: FileVersion | undefined } {
    if (openDocumentOf(uri)?.isDirty !== true) return { isDirty: false, base: undefined };
    const key = uri.toString();
    return { isDirty: true, base: this.#versions.get(key) ?? this.#kept.get(key) };
  }

  #beganFrom(key: string): FileVersion | undefined {
    return this.#suspended.get(key) ?? this.#versions.get(key) ?? this.#kept.get(key);
  }

  get #kept(): Map<string, FileVersion> {
    this.#loaded ??= new Map(Object.entries(keptSchema().safeParse(this.#state.get(KEPT)).data ?? {}));
    return this.#loaded;
  }

  #set(uri: Uri, seen: FileVersion): void {
    const key = uri.toString();
    this.#versions.set(key, seen);
    if (this.#kept.has(key)) this.#keep(key);
  }

  #look(document: TextDocument): void {
    if (document.uri.scheme !== SCHEME) return;
    const key = document.uri.toString();
    if (document.isDirty) {
      this.#suspended.delete(key);
      if (!this.#kept.has(key)) this.#keep(key);
      if (isOpaque(document)) this.#unsaved.set(key, fingerprint(document.getText()));
      return;
    }
    const text = fingerprint(document.getText());
    if (isOpaque(document)) {
      if (this.#unsaved.get(key) === text) this.#suspend(key);
      else this.#versions.useLatestRead(key);
    } else if (this.#versions.recordShownText(key, text)) this.#drop(key);
    else {
      this.#suspend(key);
      return;
    }
    this.#keepText(key, document);
  }

  #suspend(key: string): void {
    const base = this.#versions.get(key) ?? this.#kept.get(key);
    if (base !== undefined && this.#kept.has(key)) this.#suspended.set(key, base);
  }

  #keepText(key: string, document: TextDocument): void {
    const base = this.#versions.get(key);
    if (base === undefined || this.#texts.get(key, base.version) !== undefined) return;
    const text = document.getText();
    if (isOpaque(document) || this.#versions.wasRead(key, base, fingerprint(text))) {
      this.#texts.set(key, base.version, text);
    }
  }

  #close({ uri }: TextDocument): void {
    // VS Code also says so of a document that gets another language, after a rename for example; that one is still there.
    if (uri.scheme !== SCHEME || openDocumentOf(uri) !== undefined) return;
    this.#versions.forget(uri.toString());
    this.#texts.forget(uri.toString());
    this.#unsaved.delete(uri.toString());
    this.#suspended.delete(uri.toString());
    this.#drop(uri.toString());
  }

  #keep(key: string): void {
    const base = this.#versions.get(key);
    if (base === undefined) return;
    this.#kept.set(key, base);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MOST_KEPT && oldest !== undefined) this.#kept.delete(oldest);
    this.#store();
  }

  #drop(key: string): void {
    if (this.#kept.delete(key)) this.#store();
  }

  #store(): void {
    void this.#state.update(KEPT, Object.fromEntries(this.#kept));
  }
}

export function openDocumentOf(uri: Uri): TextDocument | undefined {
  const key = uri.toString();
  return workspace.textDocuments.find((document) => document.uri.toString() === key);
}

/** Its text is not what its bytes say as UTF-8. */
function isOpaque({ encoding }: TextDocument): boolean {
  return !encoding.startsWith('utf8');
}

function seenOf({ version, mtimeMs }: WholeFile): FileVersion {
  return { version, mtimeMs };
}
