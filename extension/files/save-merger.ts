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
import type { RecentStats } from './recent-stats.ts';
import type { SessionFiles } from './session-files.ts';

/** VS Code gives all participants of a save about 1.7 s together, and ignores one that was late three times. */
const TIMEOUT_MS = 1_000;
const STATUS_MS = 10_000;

interface Merge {
  readonly edits: TextEdit[];
  /** The fingerprint of the document after the edits. */
  readonly result: string;
  readonly theirs: FileVersion;
  readonly text: string;
}

/**
 * When a document is saved whose file the session has changed, merges the session's changes into the document, if both
 * sides changed different lines. The merge is an edit of the document, so a person can undo it. VS Code waits only a
 * short time for edits before a save, so the save itself merges later changes.
 */
export class SaveMerger implements Disposable {
  readonly #connection: Connection;
  readonly #files: SessionFiles;
  readonly #bases: DocumentBases;
  readonly #recent: RecentStats;
  readonly #isCompared: (uri: Uri) => boolean;
  readonly #merges = new Map<string, Merge>();
  readonly #owned = new DisposableStore();

  constructor(options: {
    readonly connection: Connection;
    readonly files: SessionFiles;
    readonly bases: DocumentBases;
    readonly recent: RecentStats;
    /** Whether a comparison of the document is open: the person merges by hand then. */
    readonly isCompared: (uri: Uri) => boolean;
  }) {
    this.#connection = options.connection;
    this.#files = options.files;
    this.#bases = options.bases;
    this.#recent = options.recent;
    this.#isCompared = options.isCompared;
    this.#owned.add(workspace.onWillSaveTextDocument((event) => this.#onWillSave(event)));
    this.#owned.add(workspace.onDidChangeTextDocument(({ document }) => this.#onDidChange(document)));
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /**
   * For a save that met a conflict. True if the session's changes were merged into the document and its base is the
   * merged version.
   */
  async merge(document: TextDocument): Promise<boolean> {
    const { uri } = document;
    await this.#bases.restoreBaseText(uri);
    const base = this.#baseOf(document);
    const merge = base === undefined ? undefined : await this.#prepare(document, base.version, base.text);
    if (merge === undefined) return false;
    const edits = this.#accept(uri, merge);
    if (edits.length === 0) return true;
    const edit = new WorkspaceEdit();
    edit.set(uri, edits);
    // VS Code refuses the edit if the person kept typing.
    if (await workspace.applyEdit(edit)) return true;
    this.#merges.delete(uri.toString());
    return false;
  }

  #onWillSave(event: TextDocumentWillSaveEvent): void {
    const { document } = event;
    const { uri } = document;
    this.#merges.delete(uri.toString());
    const base = this.#baseOf(document);
    // A change that is not reported yet makes the write fail, which merges it then.
    if (base === undefined || this.#recent.recordSaving(uri.toString())) return;
    const merge = withTimeout(this.#prepare(document, base.version, base.text));
    event.waitUntil(merge.then((found) => (found === undefined ? [] : this.#accept(uri, found))));
  }

  /** Records that VS Code is about to apply the edits. */
  #accept(uri: Uri, merge: Merge): TextEdit[] {
    if (merge.edits.length === 0) this.#bases.rebase(uri, merge.theirs, merge.text);
    else this.#merges.set(uri.toString(), merge);
    return merge.edits;
  }

  /** The base of a document that can be merged; undefined for any other. */
  #baseOf({ uri }: TextDocument): { readonly version: FileVersion; readonly text: string } | undefined {
    if (uri.scheme !== SCHEME || this.#connection.at(uri)?.state.kind !== 'connected') return undefined;
    const { base: version } = this.#bases.dirtyBaseOf(uri);
    const text = version === undefined ? undefined : this.#bases.baseTextOf(uri, version);
    if (version === undefined || text === undefined || this.#isCompared(uri)) return undefined;
    return { version, text };
  }

  /** Undefined if the session changed nothing, or if a person has to decide: the save then reports the conflict. */
  async #prepare(document: TextDocument, base: FileVersion, text: string): Promise<Merge | undefined> {
    const { uri } = document;
    const location = locate(uri);
    if (location.kind !== 'workspace') return undefined;
    const { session, path } = location;
    const stat = await this.#files.versionedStat(session, path);
    this.#recent.recordChecked(uri.toString(), stat);
    const { version } = stat;
    if (version === null || version === base.version) return undefined;
    const theirs = await this.#files.read({ session }, path);
    const their = normalize(await decodeText(uri, theirs.bytes));
    const mine = normalize(document.getText());
    const edits = mergeLines(normalize(text), mine, their);
    if (edits === undefined) return undefined;
    return {
      edits: edits.map((edit) => textEdit(document, edit)),
      result: fingerprint(applyEdits(mine, edits)),
      theirs: { version: theirs.version, mtimeMs: theirs.mtimeMs },
      text: their,
    };
  }

  /**
   * VS Code drops the edits if the person kept typing, so the base changes only once the document shows the merged
   * text.
   */
  #onDidChange(document: TextDocument): void {
    const key = document.uri.toString();
    const merge = this.#merges.get(key);
    if (merge === undefined) return;
    if (fingerprint(document.getText()) !== merge.result) return;
    this.#merges.delete(key);
    this.#bases.rebase(document.uri, merge.theirs, merge.text);
    const name = sanitize(baseName(document.uri.path));
    window.setStatusBarMessage(
      `$(git-merge) Merged the session's changes into ${name}. You can undo this.`,
      STATUS_MS,
    );
  }
}

/** With `\n` as the only line end, and without a byte order mark. */
function normalize(text: string): string {
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
  // The last line has no line end, so an edit that reaches it includes the line end before it.
  const from = start === 0 ? new Position(0, 0) : document.lineAt(start - 1).range.end;
  const text = lines.join(eol);
  return TextEdit.replace(new Range(from, last), start === 0 || lines.length === 0 ? text : `${eol}${text}`);
}

async function withTimeout(work: Promise<Merge | undefined>): Promise<Merge | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), TIMEOUT_MS);
  });
  try {
    // An error here also fails the save, which reports it.
    return await Promise.race([work.catch(() => undefined), timeout]);
  } finally {
    clearTimeout(timer);
  }
}
