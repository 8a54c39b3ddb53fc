import { workspace } from 'vscode';
import type { Disposable, Memento, TextDocument, Uri } from 'vscode';
import { z } from 'zod';
import { Disposal } from '../disposal.ts';
import { BaseVersions, fingerprint } from './base-versions.ts';
import type { Seen } from './base-versions.ts';
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
  readonly #state: Memento;
  #loaded: Map<string, Seen> | undefined;
  readonly #owned = new Disposal();

  constructor(state: Memento) {
    this.#state = state;
    this.#owned.own(workspace.onDidOpenTextDocument((document) => this.#look(document)));
    this.#owned.own(workspace.onDidChangeTextDocument(({ document }) => this.#look(document)));
    this.#owned.own(workspace.onDidSaveTextDocument(({ uri }) => this.#drop(uri.toString())));
    this.#owned.own(workspace.onDidCloseTextDocument((document) => this.#close(document)));
    for (const document of workspace.textDocuments) this.#look(document);
  }

  dispose(): void {
    this.#owned.dispose();
  }

  read(uri: Uri, file: WholeFile): void {
    const document = documentOf(uri);
    const shown =
      document === undefined ? undefined : document.isDirty ? null : fingerprint(document.getText());
    const key = uri.toString();
    this.#versions.read(key, seenOf(file), fingerprint(file.bytes.toString('utf8')), shown);
    if (document?.isDirty === false && isOpaque(document)) this.#versions.shownOpaque(key);
  }

  written(uri: Uri, { version, mtimeMs }: Seen): void {
    this.#set(uri, { version, mtimeMs });
  }

  /**
   * The person has seen this version beside their own text, which counts as an edit of it from now on. The time stays that of what
   * VS Code has loaded: it would take a later one for a conflict.
   */
  compared(uri: Uri, { version, mtimeMs }: Seen): void {
    this.#set(uri, { version, mtimeMs: this.ofDirty(uri).base?.mtimeMs ?? mtimeMs });
  }

  /** The version that an editor's unsaved changes began from. */
  ofDirty(uri: Uri): { readonly isDirty: boolean; readonly base: Seen | undefined } {
    if (documentOf(uri)?.isDirty !== true) return { isDirty: false, base: undefined };
    const key = uri.toString();
    return { isDirty: true, base: this.#versions.get(key) ?? this.#kept.get(key) };
  }

  get #kept(): Map<string, Seen> {
    this.#loaded ??= new Map(Object.entries(keptSchema().safeParse(this.#state.get(KEPT)).data ?? {}));
    return this.#loaded;
  }

  #set(uri: Uri, seen: Seen): void {
    const key = uri.toString();
    this.#versions.set(key, seen);
    if (this.#kept.has(key)) this.#keep(key);
  }

  #look(document: TextDocument): void {
    if (document.uri.scheme !== SCHEME) return;
    const key = document.uri.toString();
    if (document.isDirty) {
      if (!this.#kept.has(key)) this.#keep(key);
      return;
    }
    if (isOpaque(document)) this.#versions.shownOpaque(key);
    else if (this.#versions.shown(key, fingerprint(document.getText()))) this.#drop(key);
  }

  #close({ uri }: TextDocument): void {
    if (uri.scheme !== SCHEME) return;
    this.#versions.forget(uri.toString());
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

export function documentOf(uri: Uri): TextDocument | undefined {
  const key = uri.toString();
  return workspace.textDocuments.find((document) => document.uri.toString() === key);
}

/** Its text is not what its bytes say as UTF-8. */
function isOpaque({ encoding }: TextDocument): boolean {
  return !encoding.startsWith('utf8');
}

function seenOf({ version, mtimeMs }: WholeFile): Seen {
  return { version, mtimeMs };
}
