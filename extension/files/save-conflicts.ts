import {
  StatusBarAlignment,
  TextDocumentSaveReason,
  ThemeColor,
  Uri,
  commands,
  window,
  workspace,
} from 'vscode';
import type { Disposable } from 'vscode';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import { Comparisons, decodeText } from './comparisons.ts';
import { RESOLUTIONS, askAboutConflict, reviewConflicts, offerReview } from './conflict-prompts.ts';
import type { Conflict, ConflictResolution } from './conflict-prompts.ts';
import type { DocumentBases } from './document-bases.ts';
import { openDocumentOf } from './document-bases.ts';
import { asFileSystemError } from './file-errors.ts';
import { SCHEME, baseName, locate } from './location.ts';
import type { WorkspaceFile } from './location.ts';
import type { RecentStats } from './recent-stats.ts';
import { SaveMerger } from './save-merger.ts';
import { isVersionConflict } from './session-files.ts';
import type { WritePrecondition, SessionFiles } from './session-files.ts';

/**
 * Conflicts that follow each other, as those of an autosave do, are reported together. VS Code shows at most three
 * notifications within 800 ms and has one of its own for each failed save, so ours must come later to be seen.
 */
const REPORT_ALL_MS = 1_200;
/** A person who saved by hand waits for the answer. */
const REPORT_ONE_MS = 100;

/**
 * Handles saves of documents whose file the session has changed since. Such a save fails at once, so VS Code keeps the
 * document unsaved. The person resolves the conflict whenever they like, for each file or for all.
 */
export class SaveConflicts implements Disposable {
  readonly #files: SessionFiles;
  readonly #bases: DocumentBases;
  readonly #recent: RecentStats;
  readonly #comparisons: Comparisons;
  readonly #merger: SaveMerger;
  readonly #conflicts = new Map<string, Conflict>();
  /** Why VS Code saves each document. */
  readonly #reasons = new Map<string, TextDocumentSaveReason>();
  /** Files that the session deleted and that a person wants to recreate. */
  readonly #recreated = new Set<string>();
  readonly #owned = new DisposableStore();
  readonly #item = this.#owned.add(
    window.createStatusBarItem('holdfast.conflicts', StatusBarAlignment.Left, 0),
  );
  #report: NodeJS.Timeout | undefined;
  /** Documents that a person has just tried to save by hand. */
  readonly #savedByHand = new Set<string>();

  constructor(options: {
    readonly connection: Connection;
    readonly files: SessionFiles;
    readonly bases: DocumentBases;
    readonly recent: RecentStats;
  }) {
    const { connection, files, bases, recent } = options;
    this.#files = files;
    this.#bases = bases;
    this.#recent = recent;
    this.#comparisons = this.#owned.add(new Comparisons(files));
    this.#owned.add(
      workspace.onWillSaveTextDocument(({ document: { uri }, reason }) => {
        if (uri.scheme === SCHEME) this.#reasons.set(uri.toString(), reason);
      }),
    );
    this.#merger = this.#owned.add(
      new SaveMerger({
        connection,
        files,
        bases,
        recent,
        isCompared: (uri) => this.#comparisons.shownVersion(uri) !== undefined,
      }),
    );
    this.#owned.add(workspace.onDidSaveTextDocument(({ uri }) => this.#settled(uri)));
    this.#owned.add(
      workspace.onDidCloseTextDocument(({ uri }) => {
        // VS Code fires this also when the language of a document changes.
        if (openDocumentOf(uri) === undefined) this.#settled(uri);
      }),
    );
    this.#owned.add(
      workspace.onDidChangeTextDocument(({ document }) => {
        // The document was reverted, or undone to its base.
        if (!document.isDirty) this.#settled(document.uri);
      }),
    );
    this.#owned.onDispose(() => clearTimeout(this.#report));
    this.#item.name = 'Save conflicts with the session';
    this.#item.command = 'holdfast.reviewConflicts';
    this.#item.backgroundColor = new ThemeColor('statusBarItem.warningBackground');
  }

  get handlers() {
    return {
      'holdfast.reviewConflicts': () => this.#review(),
      'holdfast.compareConflict': (target) => this.#onTarget(target, 'compare'),
      'holdfast.overwriteConflict': (target) => this.#onTarget(target, 'overwrite'),
      'holdfast.useSessionVersion': (target) => this.#onTarget(target, 'useSessionVersion'),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /**
   * Saves a document over its base version. Errors: `SaveConflict` where the file has another version; the person is
   * then asked.
   */
  async save(uri: Uri, file: WorkspaceFile, content: Uint8Array, base: string | undefined): Promise<void> {
    const key = uri.toString();
    const isManual = (this.#reasons.get(key) ?? MANUAL) === MANUAL;
    // A person merges by editing the right side of the comparison: saving that replaces the version on the left.
    const compared = isManual ? this.#comparisons.shownVersion(uri)?.version : undefined;
    const expected = this.#recreated.delete(key) ? undefined : (compared ?? base);
    // A document without a base (its state was lost) may only create the file.
    const precondition = expected === undefined ? { create: true } : { ifVersion: expected };
    try {
      await this.#write(uri, file, content, precondition);
    } catch (error) {
      const isDeleted = this.#conflictKind(error, expected) === 'deleted';
      this.#recent.recordConflict(key);
      if (!isDeleted && (await this.#saveMerged(uri, file))) return;
      this.#add({ uri, kind: isDeleted ? 'deleted' : 'changed' }, isManual);
      throw new SaveConflict(sanitize(baseName(file.path)), isDeleted);
    }
  }

  /** The kind of conflict that made a write fail. Throws `error` if it failed for another reason. */
  #conflictKind(error: unknown, expected: string | undefined): Conflict['kind'] {
    if (isVersionConflict(error)) return error.details?.['version'] === null ? 'deleted' : 'changed';
    const exists = error instanceof Error && 'code' in error && error.code === 'file_exists';
    if (expected === undefined && exists) return 'changed';
    throw asFileSystemError(error);
  }

  /**
   * The session changed other lines too late for an edit before the save: merges them into the document now, and writes
   * it. False if they cannot be merged.
   */
  async #saveMerged(uri: Uri, file: WorkspaceFile): Promise<boolean> {
    const document = openDocumentOf(uri);
    if (document === undefined || !(await this.#merger.merge(document).catch(() => false))) return false;
    const { base } = this.#bases.dirtyBaseOf(uri);
    if (base === undefined) return false;
    try {
      const content = await workspace.encode(document.getText(), { encoding: document.encoding });
      await this.#write(uri, file, content, { ifVersion: base.version });
    } catch (error) {
      this.#conflictKind(error, base.version);
      return false;
    }
    // VS Code still reports the document as unsaved, because it was edited during its save. Another save writes the
    // same text.
    setTimeout(() => void document.save(), 0);
    return true;
  }

  async #write(
    uri: Uri,
    { session, path }: WorkspaceFile,
    content: Uint8Array,
    precondition: WritePrecondition,
  ): Promise<void> {
    const written = await this.#files.write(session, path, content, precondition);
    this.#recent.recordWritten(uri.toString(), written);
    // The comparison now shows an outdated version.
    this.#comparisons.forget(uri);
    this.#bases.recordWrite(uri, written, await decodeText(uri, content));
  }

  #add(conflict: Conflict, isManual: boolean): void {
    const key = conflict.uri.toString();
    const isNew = !this.#conflicts.has(key);
    this.#conflicts.set(key, conflict);
    this.#show();
    if (!isNew && !isManual) return;
    if (isManual) this.#savedByHand.add(key);
    clearTimeout(this.#report);
    const isOne = isManual && this.#savedByHand.size === 1;
    this.#report = setTimeout(() => void this.#reportConflicts(), isOne ? REPORT_ONE_MS : REPORT_ALL_MS);
  }

  async #reportConflicts(): Promise<void> {
    // Hides VS Code's own notifications of the failed saves. They stay in its list until the files are saved.
    await commands.executeCommand('notifications.hideToasts');
    const all = [...this.#conflicts.values()];
    const savedByHand = all.filter(({ uri }) => this.#savedByHand.has(uri.toString()));
    this.#savedByHand.clear();
    const [one, ...others] = savedByHand.length === 1 ? savedByHand : all;
    if (one === undefined) return;
    if (others.length > 0) {
      if (await offerReview()) await commands.executeCommand('holdfast.reviewConflicts');
      return;
    }
    const answer = await askAboutConflict(one);
    if (answer !== undefined) await commands.executeCommand(RESOLUTIONS[answer].command, one.uri);
  }

  async #review(): Promise<void> {
    const answer = await reviewConflicts([...this.#conflicts.values()]);
    if (answer === undefined) return;
    for (const { uri } of answer.conflicts) await this.#decide(uri, answer.answer);
  }

  /** `target`: the URI of the document that a button or menu belongs to; else the active document. */
  async #onTarget(target: unknown, answer: ConflictResolution): Promise<void> {
    const uri = target instanceof Uri ? target : window.activeTextEditor?.document.uri;
    if (uri !== undefined) await this.#decide(uri, answer);
  }

  async #decide(uri: Uri, answer: ConflictResolution): Promise<void> {
    const conflict = this.#conflicts.get(uri.toString());
    const document = openDocumentOf(uri);
    // The conflict was resolved meanwhile.
    if (conflict === undefined || document === undefined) return;
    if (answer === 'compare') {
      if (conflict.kind === 'changed') await this.#comparisons.open(uri);
      else await window.showTextDocument(document, { preview: false });
      return;
    }
    if (answer === 'useSessionVersion') {
      await window.showTextDocument(document, { preview: false });
      const command = conflict.kind === 'changed' ? 'revert' : 'revertAndClose';
      await commands.executeCommand(REVERTS[command]);
    } else {
      await this.#rebase(conflict);
      await document.save();
    }
    if (!document.isDirty || document.isClosed) await this.#comparisons.close(uri);
  }

  /** The next save replaces the version in the person's comparison, else the session's current version. */
  async #rebase({ uri }: Conflict): Promise<void> {
    const location = locate(uri);
    if (location.kind !== 'workspace') return;
    const { session, path } = location;
    const compared = this.#comparisons.shownVersion(uri);
    if (compared !== undefined) {
      this.#bases.rebase(uri, compared);
      return;
    }
    try {
      const { version, mtimeMs } = await this.#files.versionedStat(session, path);
      if (version !== null) this.#bases.rebase(uri, { version, mtimeMs });
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'file_not_found')) throw error;
      this.#recreated.add(uri.toString());
    }
  }

  #settled(uri: Uri): void {
    const key = uri.toString();
    this.#recreated.delete(key);
    if (this.#conflicts.delete(key)) this.#show();
  }

  #show(): void {
    const count = this.#conflicts.size;
    // The context key shows the buttons in the title bars of these documents.
    const changed = [...this.#conflicts.values()].filter(({ kind }) => kind === 'changed');
    const uris = changed.map(({ uri }) => uri.toString());
    void commands.executeCommand('setContext', 'holdfast.conflicts', uris);
    void commands.executeCommand('setContext', 'holdfast.hasConflicts', count > 0);
    this.#item.text = `$(warning) ${count === 1 ? '1 conflict' : `${String(count)} conflicts`}`;
    this.#item.tooltip =
      'The session changed these files while you were editing them. Your changes are not saved yet.';
    if (count > 0) this.#item.show();
    else this.#item.hide();
  }
}

const MANUAL = TextDocumentSaveReason.Manual;
const REVERTS = {
  revert: 'workbench.action.files.revert',
  revertAndClose: 'workbench.action.revertAndCloseActiveEditor',
} as const;

/** VS Code shows the name of an error before its message, so this one has none. */
class SaveConflict extends Error {
  override readonly name = '';

  constructor(name: string, isDeleted: boolean) {
    super(`The session ${isDeleted ? 'deleted' : 'changed'} ${name} while you were editing it`);
  }
}
