import { EventEmitter, Range, Uri, WorkspaceEdit, commands, window, workspace } from 'vscode';
import type { CancellationToken, Disposable, TextDocument, TextDocumentContentProvider } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { notifyProgress } from '../base/progress.ts';
import { workspaceUri } from '../files/location.ts';
import type { Homes } from '../files/location.ts';
import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { Replacement } from './replacement.ts';
import type { SkipReason, LineEdit } from './replacement.ts';
import type { FileResult } from './search-results.ts';
import type { SearchQuery } from './search-query.ts';

const SCHEME = 'holdfast-replace';
const CONTEXT = 'holdfast.replacePending';
/** VS Code loads every edited file. */
const MAX_FILES = 500;
const MAX_CHARACTERS = 50_000_000;
/** File names in one message. */
const MAX_NAMED = 5;

interface EditedFile {
  readonly path: string;
  /** The text that the edits apply to. */
  readonly before: string;
  readonly after: string;
  readonly edits: readonly LineEdit[];
}
interface Pending {
  readonly session: string;
  readonly title: string;
  readonly files: readonly EditedFile[];
}
interface Applied {
  readonly file: EditedFile;
  readonly document: TextDocument;
  readonly wasDirty: boolean;
}

/** VS Code closes documents that no editor shows when there are more than about fifty, and forgets their versions. */
const BATCH_SIZE = 40;

interface Skipped {
  readonly path: string;
  readonly why: string;
}

export interface ReplaceSummary {
  readonly replacements: number;
  readonly files: number;
  /** Paths of skipped files. */
  readonly skipped: readonly string[];
}

/**
 * A replacement in many files. It is first shown as comparisons, then applied as an edit that VS Code saves and can
 * undo.
 */
export class ReplacePreview implements TextDocumentContentProvider, Disposable {
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri>());
  readonly onDidChange = this.#changed.event;
  #pending: Pending | undefined;
  #serial = 0;
  readonly #home: Pick<Homes, 'of'>;

  constructor(home: Pick<Homes, 'of'>) {
    this.#home = home;
    this.#owned.add(workspace.registerTextDocumentContentProvider(SCHEME, this));
  }

  dispose(): void {
    this.#owned.dispose();
  }

  provideTextDocumentContent({ path }: Uri): string {
    return this.#pending?.files.find((file) => file.path === path)?.after ?? '';
  }

  /** Shows what the replacement would change. Undefined where the person cancels. */
  async show(
    session: Session,
    found: readonly FileResult[],
    query: SearchQuery,
    text: string,
  ): Promise<ReplaceSummary | undefined> {
    await this.discard();
    if (found.length > MAX_FILES) {
      throw new HoldfastError('invalid_params', `The matches are in ${formatCount(found.length, 'file')}`, {
        why: `a replacement changes at most ${MAX_FILES} files at once`,
        next: 'narrow the search, for example with files to include',
      });
    }
    const prepared = await notifyProgress(
      { title: 'Preparing the replacement', cancellable: true },
      (_progress, token) => prepare(this.#home, session.id, found, new Replacement(query, text), token),
    );
    if (prepared === undefined) return undefined;
    const { files, skipped } = prepared;
    reportSkipped('The preview skips', skipped);
    const replacements = countOf(files);
    const count = { replacements, files: files.length, skipped: skipped.map(({ path }) => path) };
    if (files.length === 0) {
      void window.showInformationMessage('There is nothing to replace.');
      return count;
    }
    this.#serial += 1;
    const size = `${formatCount(replacements, 'replacement')} in ${formatCount(files.length, 'file')}`;
    const title = `Replace “${sanitize(query.pattern, 40)}” with “${sanitize(text, 40)}” (${size})`;
    this.#pending = { session: session.id, title, files };
    await commands.executeCommand('setContext', CONTEXT, true);
    await commands.executeCommand(
      'vscode.changes',
      title,
      files.map(({ path }) => {
        const uri = workspaceUri(this.#home, session.id, path);
        return [uri, uri, this.#previewUri(path)];
      }),
    );
    return count;
  }

  get isPending(): boolean {
    return this.#pending !== undefined;
  }

  /** Applies the edits that were shown. Files that have changed meanwhile are skipped and reported. */
  async apply(): Promise<ReplaceSummary | undefined> {
    const pending = this.#pending;
    if (pending === undefined) return undefined;
    const skipped: Skipped[] = [];
    const unsaved: Skipped[] = [];
    const applied: Applied[] = [];
    for (let at = 0; at < pending.files.length; at += BATCH_SIZE) {
      const batch = await this.#applyBatch(
        pending.session,
        pending.files.slice(at, at + BATCH_SIZE),
        skipped,
      );
      applied.push(...batch);
      // VS Code saves only documents that no editor shows, and the comparison shows these. Documents that were dirty
      // stay unsaved.
      for (const { file, document, wasDirty } of batch) {
        if (!wasDirty && document.isDirty && !(await isSaved(document)))
          unsaved.push({ path: file.path, why: 'not saved' });
      }
    }
    await this.discard();
    reportSkipped('Nothing was replaced in', skipped);
    reportSkipped('The replacement is not saved yet in', unsaved);
    const replacements = countOf(applied.map(({ file }) => file));
    window.setStatusBarMessage(
      `Made ${formatCount(replacements, 'replacement')} in ${formatCount(applied.length, 'file')}`,
      8_000,
    );
    return { replacements, files: applied.length, skipped: skipped.map(({ path }) => path) };
  }

  /** Edits the files that still have the text that was shown, in one edit. Adds the others to `skipped`. */
  async #applyBatch(session: string, files: readonly EditedFile[], skipped: Skipped[]): Promise<Applied[]> {
    const loaded: { readonly file: EditedFile; readonly document: TextDocument | undefined }[] = [];
    for (const file of files)
      loaded.push({ file, document: await documentAt(workspaceUri(this.#home, session, file.path)) });
    const applied: Applied[] = [];
    const edit = new WorkspaceEdit();
    // No await from here to the edit: VS Code compares versions only from then on, and only of open documents.
    for (const { file, document } of loaded) {
      if (document === undefined || document.isClosed || document.getText() !== file.before) {
        skipped.push({ path: file.path, why: document === undefined ? 'cannot be read' : 'changed' });
        continue;
      }
      applied.push({ file, document, wasDirty: document.isDirty });
      for (const { line, start, end, text } of file.edits)
        edit.replace(document.uri, new Range(line, start, line, end), text);
    }
    // Not as a refactoring: VS Code would also save files in which the person has unsaved changes.
    if (applied.length === 0 || (await workspace.applyEdit(edit))) return applied;
    skipped.push(...applied.map(({ file }): Skipped => ({ path: file.path, why: 'changed' })));
    return [];
  }

  /** Closes the preview and changes nothing. */
  async discard(): Promise<void> {
    const pending = this.#pending;
    if (pending === undefined) return;
    this.#pending = undefined;
    await commands.executeCommand('setContext', CONTEXT, false);
    const tabs = window.tabGroups.all
      .flatMap((group) => group.tabs)
      .filter(({ label }) => label === pending.title);
    if (tabs.length > 0) await window.tabGroups.close(tabs);
  }

  #previewUri(path: string): Uri {
    // With a serial number, because VS Code caches the text of a URI.
    return Uri.from({ scheme: SCHEME, path, query: String(this.#serial) });
  }
}

async function prepare(
  home: Pick<Homes, 'of'>,
  session: string,
  found: readonly FileResult[],
  replacement: Replacement,
  token: CancellationToken,
): Promise<{ files: EditedFile[]; skipped: Skipped[] } | undefined> {
  const files: EditedFile[] = [];
  const skipped: Skipped[] = [];
  let characters = 0;
  for (const { path, lines } of found) {
    if (token.isCancellationRequested) return undefined;
    const document = await documentAt(workspaceUri(home, session, path));
    const before = document?.getText() ?? '';
    characters += before.length;
    if (characters > MAX_CHARACTERS) {
      throw new HoldfastError('invalid_params', 'The files with matches are too large to change at once', {
        why: `together they have more than ${MAX_CHARACTERS.toLocaleString('en-US')} characters`,
        next: 'narrow the search, for example with files to include',
      });
    }
    const outcome = document === undefined ? undefined : editsOf(document, lines, replacement);
    if (document === undefined || outcome === undefined)
      skipped.push({ path, why: 'cannot be read as text' });
    else if ('leftOut' in outcome) skipped.push({ path, why: outcome.leftOut });
    else files.push({ path, before, after: applied(document, outcome.edits), edits: outcome.edits });
  }
  return { files, skipped };
}

function editsOf(
  document: TextDocument,
  lines: FileResult['lines'],
  replacement: Replacement,
): { readonly edits: readonly LineEdit[] } | { readonly leftOut: SkipReason } {
  // Saving a file that is not UTF-8 would change bytes outside the replacements too.
  if (document.getText().includes('\uFFFD')) return { leftOut: 'not UTF-8' };
  return replacement.editsFor(lines, (line) =>
    line < document.lineCount ? document.lineAt(line).text : undefined,
  );
}

function applied(document: TextDocument, edits: readonly LineEdit[]): string {
  const before = document.getText();
  const parts: string[] = [];
  let from = 0;
  for (const { line, start, end, text } of edits) {
    const at = document.offsetAt(document.lineAt(line).range.start);
    parts.push(before.slice(from, at + start), text);
    from = at + end;
  }
  return [...parts, before.slice(from)].join('');
}

/** Undefined for a file that is not text, too large, or deleted. */
async function documentAt(uri: Uri): Promise<TextDocument | undefined> {
  try {
    return await workspace.openTextDocument(uri);
  } catch {
    return undefined;
  }
}

/** False where the save fails. A save conflict with the agent is reported by `SaveConflicts`. */
async function isSaved(document: TextDocument): Promise<boolean> {
  try {
    return await document.save();
  } catch {
    return false;
  }
}

function countOf(files: readonly EditedFile[]): number {
  return files.reduce((sum, { edits }) => sum + edits.length, 0);
}

function reportSkipped(what: string, skipped: readonly Skipped[]): void {
  if (skipped.length === 0) return;
  const named = skipped
    .slice(0, MAX_NAMED)
    .map(({ path, why }) => `${sanitize(path.slice(WORKSPACE.length + 1), 80)} (${why})`);
  const more = skipped.length > MAX_NAMED ? `, and ${skipped.length - MAX_NAMED} more` : '';
  void window.showWarningMessage(
    `${what} ${formatCount(skipped.length, 'file')}: ${named.join(', ')}${more}.`,
  );
}
