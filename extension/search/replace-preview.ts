import {
  EventEmitter,
  ProgressLocation,
  Range,
  Uri,
  WorkspaceEdit,
  commands,
  window,
  workspace,
} from 'vscode';
import type { CancellationToken, Disposable, TextDocument, TextDocumentContentProvider } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { workspaceUri } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import { Replacement } from './replacement.ts';
import type { SkipReason, LineEdit } from './replacement.ts';
import type { FileResult } from './search-results.ts';
import { formatCount } from './search-query.ts';
import type { SearchQuery } from './search-query.ts';

const SCHEME = 'holdfast-replace';
const CONTEXT = 'holdfast.replacePending';
/** VS Code loads every file that is edited. */
const MOST_FILES = 500;
const MOST_CHARACTERS = 50_000_000;
/** Names in one message. */
const MOST_NAMED = 5;

interface EditedFile {
  readonly path: string;
  /** What the edits are for. */
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

/** VS Code forgets documents that nobody shows when there are more than some fifty, and with them their versions. */
const BATCH = 40;

interface Skipped {
  readonly path: string;
  readonly why: string;
}

export interface ReplaceSummary {
  readonly replacements: number;
  readonly files: number;
  /** Paths of files that were left out. */
  readonly skipped: readonly string[];
}

/** A replacement in many files: first shown as comparisons, then applied as one edit that VS Code saves and can undo. */
export class ReplacePreview implements TextDocumentContentProvider, Disposable {
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri>());
  readonly onDidChange = this.#changed.event;
  #pending: Pending | undefined;
  #serial = 0;

  constructor() {
    this.#owned.add(workspace.registerTextDocumentContentProvider(SCHEME, this));
  }

  dispose(): void {
    this.#owned.dispose();
  }

  provideTextDocumentContent({ path }: Uri): string {
    return this.#pending?.files.find((file) => file.path === path)?.after ?? '';
  }

  /** Shows what the replacement would change. Undefined where that is nothing, or the person cancelled. */
  async show(
    session: Session,
    found: readonly FileResult[],
    query: SearchQuery,
    text: string,
  ): Promise<ReplaceSummary | undefined> {
    await this.discard();
    if (found.length > MOST_FILES) {
      throw new HoldfastError('invalid_params', `The matches are in ${formatCount(found.length, 'file')}`, {
        why: `a replacement changes at most ${MOST_FILES} files at once`,
        next: 'narrow the search to a part of them, for example with files to include',
      });
    }
    const prepared = await window.withProgress(
      { location: ProgressLocation.Notification, title: 'Preparing the replacement', cancellable: true },
      (_progress, token) => prepare(session.id, found, new Replacement(query, text), token),
    );
    if (prepared === undefined) return undefined;
    const { files, skipped } = prepared;
    tellSkipped('The preview leaves out', skipped);
    const replacements = countOf(files);
    const count = { replacements, files: files.length, skipped: skipped.map(({ path }) => path) };
    if (files.length === 0) {
      void window.showInformationMessage('There is nothing to replace.');
      return count;
    }
    this.#serial += 1;
    const title = `Replace “${sanitize(query.pattern, 40)}” with “${sanitize(text, 40)}” (${formatCount(replacements, 'replacement')} in ${formatCount(files.length, 'file')})`;
    this.#pending = { session: session.id, title, files };
    await commands.executeCommand('setContext', CONTEXT, true);
    await commands.executeCommand(
      'vscode.changes',
      title,
      files.map(({ path }) => {
        const uri = workspaceUri(session.id, path);
        return [uri, uri, this.#previewUri(path)];
      }),
    );
    return count;
  }

  get isPending(): boolean {
    return this.#pending !== undefined;
  }

  /** Makes the edits that were shown. A file that is another one by now is left out, and the person is told. */
  async apply(): Promise<ReplaceSummary | undefined> {
    const pending = this.#pending;
    if (pending === undefined) return undefined;
    const skipped: Skipped[] = [];
    const unsaved: Skipped[] = [];
    const applied: Applied[] = [];
    for (let at = 0; at < pending.files.length; at += BATCH) {
      const batch = await this.#applyBatch(pending.session, pending.files.slice(at, at + BATCH), skipped);
      applied.push(...batch);
      // VS Code saves by itself only what no editor shows, and the comparison shows these. What had unsaved changes stays unsaved.
      for (const { file, document, wasDirty } of batch) {
        if (!wasDirty && document.isDirty && !(await isSaved(document)))
          unsaved.push({ path: file.path, why: 'not saved' });
      }
    }
    await this.discard();
    tellSkipped('Nothing was replaced in', skipped);
    tellSkipped('The replacement is not saved yet in', unsaved);
    const replacements = countOf(applied.map(({ file }) => file));
    window.setStatusBarMessage(
      `Replaced ${replacements.toLocaleString('en-US')} in ${formatCount(applied.length, 'file')}`,
      8_000,
    );
    return { replacements, files: applied.length, skipped: skipped.map(({ path }) => path) };
  }

  /** Edits what still has the text that was shown, all at once and at the moment of the check; adds the rest to `skipped`. */
  async #applyBatch(session: string, files: readonly EditedFile[], skipped: Skipped[]): Promise<Applied[]> {
    const loaded: { readonly file: EditedFile; readonly document: TextDocument | undefined }[] = [];
    for (const file of files)
      loaded.push({ file, document: await documentAt(workspaceUri(session, file.path)) });
    const applied: Applied[] = [];
    const edit = new WorkspaceEdit();
    // Nothing may be waited for between here and the edit: VS Code checks versions from then on, of open documents only.
    for (const { file, document } of loaded) {
      if (document === undefined || document.isClosed || document.getText() !== file.before) {
        skipped.push({ path: file.path, why: document === undefined ? 'cannot be read' : 'changed' });
        continue;
      }
      applied.push({ file, document, wasDirty: document.isDirty });
      for (const { line, start, end, text } of file.edits)
        edit.replace(document.uri, new Range(line, start, line, end), text);
    }
    // Not as a refactoring: VS Code would save files with unsaved changes of a person's, too.
    if (applied.length === 0 || (await workspace.applyEdit(edit))) return applied;
    skipped.push(...applied.map(({ file }): Skipped => ({ path: file.path, why: 'changed' })));
    return [];
  }

  /** Closes the preview; nothing is changed. */
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
    // A serial number, as VS Code keeps the text of an address that it has seen.
    return Uri.from({ scheme: SCHEME, path, query: String(this.#serial) });
  }
}

async function prepare(
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
    const document = await documentAt(workspaceUri(session, path));
    const before = document?.getText() ?? '';
    characters += before.length;
    if (characters > MOST_CHARACTERS) {
      throw new HoldfastError(
        'invalid_params',
        'The files with matches are too large to be changed at once',
        {
          why: `together they have more than ${MOST_CHARACTERS.toLocaleString('en-US')} characters`,
          next: 'narrow the search to a part of them, for example with files to include',
        },
      );
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
  // What is not UTF-8 would be saved as other bytes, also where nothing was replaced.
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

/** Undefined for what is no text, too large or gone. */
async function documentAt(uri: Uri): Promise<TextDocument | undefined> {
  try {
    return await workspace.openTextDocument(uri);
  } catch {
    return undefined;
  }
}

/** A save fails where the agent has written the file meanwhile, which is told by whoever refused it. */
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

function tellSkipped(what: string, skipped: readonly Skipped[]): void {
  if (skipped.length === 0) return;
  const named = skipped
    .slice(0, MOST_NAMED)
    .map(({ path, why }) => `${sanitize(path.slice(WORKSPACE.length + 1), 80)} (${why})`);
  const more = skipped.length > MOST_NAMED ? `, and ${skipped.length - MOST_NAMED} more` : '';
  void window.showWarningMessage(
    `${what} ${formatCount(skipped.length, 'file')}: ${named.join(', ')}${more}.`,
  );
}
