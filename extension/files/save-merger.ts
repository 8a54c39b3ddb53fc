import { EndOfLine, Position, Range, TextEdit, WorkspaceEdit, window, workspace } from 'vscode';
import type { Disposable, TextDocument, TextDocumentWillSaveEvent, Uri } from 'vscode';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import { fingerprint } from './base-versions.ts';
import type { FileVersion } from './base-versions.ts';
import { decodeText } from './comparisons.ts';
import type { DocumentBases } from './document-bases.ts';
import { SCHEME, baseName, locate } from './location.ts';
import { mergeLines, applyEdits } from './merge-lines.ts';
import type { LineEdit } from './merge-lines.ts';
import type { SessionFiles } from './session-files.ts';

/** VS Code gives those that want to edit before a save some 1.7 s together, and asks one that is late three times no more. */
const MOST_MS = 1_000;
const SHOWN_MS = 10_000;

interface Merge {
  readonly edits: TextEdit[];
  /** Fingerprint of the document once the edits are made. */
  readonly result: string;
  readonly theirs: FileVersion;
  readonly text: string;
}

/**
 * When a document is saved whose file the session has changed: takes in what the session changed, where both changed different
 * lines. It is an edit of the document, so that it can be undone. VS Code waits for edits before a save for a short time only, so the save
 * itself merges what came later.
 */
export class SaveMerger implements Disposable {
  readonly #connection: Connection;
  readonly #files: SessionFiles;
  readonly #bases: DocumentBases;
  readonly #isCompared: (uri: Uri) => boolean;
  readonly #merges = new Map<string, Merge>();
  readonly #owned = new DisposableStore();

  constructor(options: {
    readonly connection: Connection;
    readonly files: SessionFiles;
    readonly bases: DocumentBases;
    /** A person has both texts in front of them: they merge by hand. */
    readonly isCompared: (uri: Uri) => boolean;
  }) {
    this.#connection = options.connection;
    this.#files = options.files;
    this.#bases = options.bases;
    this.#isCompared = options.isCompared;
    this.#owned.add(workspace.onWillSaveTextDocument((event) => this.#onWillSave(event)));
    this.#owned.add(workspace.onDidChangeTextDocument(({ document }) => this.#onDidChange(document)));
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** For a save that has found another file. True when the document has taken in what the session changed, and its base is that. */
  async merge(document: TextDocument): Promise<boolean> {
    const { uri } = document;
    const base = this.#baseOf(document);
    const merge = base === undefined ? undefined : await this.#prepared(document, base.seen, base.text);
    if (merge === undefined) return false;
    const edits = this.#accept(uri, merge);
    if (edits.length === 0) return true;
    const edit = new WorkspaceEdit();
    edit.set(uri, edits);
    // Refused where a person went on typing meanwhile.
    if (await workspace.applyEdit(edit)) return true;
    this.#merges.delete(uri.toString());
    return false;
  }

  #onWillSave(event: TextDocumentWillSaveEvent): void {
    const { document } = event;
    const { uri } = document;
    this.#merges.delete(uri.toString());
    const base = this.#baseOf(document);
    if (base === undefined) return;
    const merge = inTime(this.#prepared(document, base.seen, base.text));
    event.waitUntil(merge.then((found) => (found === undefined ? [] : this.#accept(uri, found))));
  }

  /** The edits are about to be made. */
  #accept(uri: Uri, merge: Merge): TextEdit[] {
    if (merge.edits.length === 0) this.#bases.rebase(uri, merge.theirs, merge.text);
    else this.#merges.set(uri.toString(), merge);
    return merge.edits;
  }

  /** What the document began from; undefined where nothing can be merged with it. */
  #baseOf({ uri }: TextDocument): { readonly seen: FileVersion; readonly text: string } | undefined {
    if (uri.scheme !== SCHEME || this.#connection.state.kind !== 'connected') return undefined;
    const { base: seen } = this.#bases.dirtyBaseOf(uri);
    const text = seen === undefined ? undefined : this.#bases.baseTextOf(uri, seen);
    if (seen === undefined || text === undefined || this.#isCompared(uri)) return undefined;
    return { seen, text };
  }

  /** Undefined where nothing has changed, or where a person has to decide: then the save finds the conflict. */
  async #prepared(document: TextDocument, base: FileVersion, text: string): Promise<Merge | undefined> {
    const { uri } = document;
    const location = locate(uri);
    if (location.kind !== 'workspace') return undefined;
    const { session, path } = location;
    const { version } = await this.#files.versionedStat(session, path);
    if (version === null || version === base.version) return undefined;
    const theirs = await this.#files.read({ session }, path);
    const their = plain(await decodeText(uri, theirs.bytes));
    const mine = plain(document.getText());
    const edits = mergeLines(plain(text), mine, their);
    if (edits === undefined) return undefined;
    return {
      edits: edits.map((edit) => textEdit(document, edit)),
      result: fingerprint(applyEdits(mine, edits)),
      theirs: { version: theirs.version, mtimeMs: theirs.mtimeMs },
      text: their,
    };
  }

  /** VS Code drops the edits where a person went on typing meanwhile: only a document that shows them is one of the newer version. */
  #onDidChange(document: TextDocument): void {
    const key = document.uri.toString();
    const merge = this.#merges.get(key);
    if (merge === undefined) return;
    if (fingerprint(document.getText()) !== merge.result) return;
    this.#merges.delete(key);
    this.#bases.rebase(document.uri, merge.theirs, merge.text);
    const name = sanitize(baseName(document.uri.path));
    window.setStatusBarMessage(
      `$(git-merge) Merged the session's changes into ${name}. Undo takes them back.`,
      SHOWN_MS,
    );
  }
}

/** `\n` as the only line end, no byte order mark. */
function plain(text: string): string {
  const bare = text.startsWith('\ufeff') ? text.slice(1) : text;
  return bare.replace(/\r\n?/g, '\n');
}

function textEdit(document: TextDocument, { start, end, lines }: LineEdit): TextEdit {
  const eol = document.eol === EndOfLine.CRLF ? '\r\n' : '\n';
  const { lineCount } = document;
  if (end < lineCount) {
    const range = new Range(new Position(start, 0), new Position(end, 0));
    return TextEdit.replace(range, lines.map((line) => `${line}${eol}`).join(''));
  }
  const last = document.lineAt(lineCount - 1).range.end;
  // Up to the end of the text there is no line end behind, so the one before goes or stays with these lines.
  const from = start === 0 ? new Position(0, 0) : document.lineAt(start - 1).range.end;
  const text = lines.join(eol);
  return TextEdit.replace(new Range(from, last), start === 0 || lines.length === 0 ? text : `${eol}${text}`);
}

async function inTime(work: Promise<Merge | undefined>): Promise<Merge | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), MOST_MS);
  });
  try {
    // What fails here fails in the save as well, which says why.
    return await Promise.race([work.catch(() => undefined), late]);
  } finally {
    clearTimeout(timer);
  }
}
