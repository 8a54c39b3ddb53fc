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
import { SCHEME, baseName, locate, workspaceUri } from './location.ts';
import { SaveMerger } from './save-merger.ts';
import { isVersionConflict } from './session-files.ts';
import type { WritePrecondition, SessionFiles } from './session-files.ts';

/**
 * Saves that fail one after the other, as those of an autosave do, are reported together. VS Code shows at most three notifications
 * within 800 ms, and it has one of its own for each of these saves: ours has to come later, or it goes unseen.
 */
const GATHER_MS = 1_200;
/** A person who pressed keys waits for the answer. */
const ASK_MS = 100;

/**
 * Saves of documents whose file has changed in the session since. Such a save fails at once, so that the document stays unsaved in
 * the eyes of VS Code too; the person decides when they like, for each file or for all, and nothing is lost meanwhile.
 */
export class SaveConflicts implements Disposable {
  readonly #files: SessionFiles;
  readonly #bases: DocumentBases;
  readonly #comparisons: Comparisons;
  readonly #merging: SaveMerger;
  readonly #conflicts = new Map<string, Conflict>();
  /** Why VS Code is saving a document. */
  readonly #reasons = new Map<string, TextDocumentSaveReason>();
  /** Deleted files that a person wants back. */
  readonly #recreated = new Set<string>();
  readonly #owned = new DisposableStore();
  readonly #item = this.#owned.add(
    window.createStatusBarItem('holdfast.conflicts', StatusBarAlignment.Left, 0),
  );
  #telling: NodeJS.Timeout | undefined;
  /** Documents that a person has just tried to save. */
  readonly #asked = new Set<string>();

  constructor(connection: Connection, files: SessionFiles, bases: DocumentBases) {
    this.#files = files;
    this.#bases = bases;
    this.#comparisons = this.#owned.add(new Comparisons(files));
    this.#owned.add(
      workspace.onWillSaveTextDocument(({ document: { uri }, reason }) => {
        if (uri.scheme === SCHEME) this.#reasons.set(uri.toString(), reason);
      }),
    );
    this.#merging = this.#owned.add(
      new SaveMerger({
        connection,
        files,
        bases,
        isCompared: (uri) => this.#comparisons.shownVersion(uri) !== undefined,
      }),
    );
    this.#owned.add(workspace.onDidSaveTextDocument(({ uri }) => this.#settled(uri)));
    this.#owned.add(
      workspace.onDidCloseTextDocument(({ uri }) => {
        // VS Code also says so when a document gets another language.
        if (openDocumentOf(uri) === undefined) this.#settled(uri);
      }),
    );
    this.#owned.add(
      workspace.onDidChangeTextDocument(({ document }) => {
        // Reverted, or undone to what it began from.
        if (!document.isDirty) this.#settled(document.uri);
      }),
    );
    this.#owned.onDispose(() => clearTimeout(this.#telling));
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

  /** Writes what an editor holds over what it began from. Where the file is another one by now it throws, and the person is asked. */
  async save(session: string, path: string, content: Uint8Array, base: string | undefined): Promise<void> {
    const uri = workspaceUri(session, path);
    const key = uri.toString();
    const isManual = (this.#reasons.get(key) ?? MANUAL) === MANUAL;
    // Merging is editing the right side of the comparison: what is saved then takes the place of what is shown on its left.
    const seen = isManual ? this.#comparisons.shownVersion(uri)?.version : undefined;
    const expected = this.#recreated.delete(key) ? undefined : (seen ?? base);
    // An editor that does not know what it began from (its state was lost) may only make the file anew.
    const expectation = expected === undefined ? { create: true } : { ifVersion: expected };
    try {
      await this.#write(session, path, content, expectation);
    } catch (error) {
      const isDeleted = this.#conflictIn(error, expected) === 'deleted';
      if (!isDeleted && (await this.#savedMerged(session, path))) return;
      this.#found({ uri, kind: isDeleted ? 'deleted' : 'changed' }, isManual);
      throw new SaveConflict(sanitize(baseName(path)), isDeleted);
    }
  }

  /** Throws where the write failed for another reason. */
  #conflictIn(error: unknown, expected: string | undefined): Conflict['kind'] {
    if (isVersionConflict(error)) return error.details?.['version'] === null ? 'deleted' : 'changed';
    const exists = error instanceof Error && 'code' in error && error.code === 'file_exists';
    if (expected === undefined && exists) return 'changed';
    throw asFileSystemError(error);
  }

  /** The session changed other lines, and too late for an edit before the save: the document takes them in now, and is written with them. */
  async #savedMerged(session: string, path: string): Promise<boolean> {
    const uri = workspaceUri(session, path);
    const document = openDocumentOf(uri);
    if (document === undefined || !(await this.#merging.merge(document).catch(() => false))) return false;
    const { base } = this.#bases.dirtyBaseOf(uri);
    if (base === undefined) return false;
    try {
      const content = await workspace.encode(document.getText(), { encoding: document.encoding });
      await this.#write(session, path, content, { ifVersion: base.version });
    } catch (error) {
      this.#conflictIn(error, base.version);
      return false;
    }
    // It was edited while VS Code saved it, so VS Code goes on calling it unsaved: another save finds nothing to do but that.
    setTimeout(() => void document.save(), 0);
    return true;
  }

  async #write(
    session: string,
    path: string,
    content: Uint8Array,
    expectation: WritePrecondition,
  ): Promise<void> {
    const uri = workspaceUri(session, path);
    const written = await this.#files.write(session, path, content, expectation);
    // From here on the text is that of the session: what the comparison shows on its left is an earlier one.
    this.#comparisons.forget(uri);
    this.#bases.recordWrite(uri, written, await decodeText(uri, content));
  }

  #found(conflict: Conflict, isManual: boolean): void {
    const key = conflict.uri.toString();
    const isNew = !this.#conflicts.has(key);
    this.#conflicts.set(key, conflict);
    this.#show();
    if (!isNew && !isManual) return;
    if (isManual) this.#asked.add(key);
    clearTimeout(this.#telling);
    const isOne = isManual && this.#asked.size === 1;
    this.#telling = setTimeout(() => void this.#tell(), isOne ? ASK_MS : GATHER_MS);
  }

  async #tell(): Promise<void> {
    // VS Code says of each file that it could not be saved. That stays in its list of notifications until the file is saved.
    await commands.executeCommand('notifications.hideToasts');
    const all = [...this.#conflicts.values()];
    const asked = all.filter(({ uri }) => this.#asked.has(uri.toString()));
    this.#asked.clear();
    const [one, ...others] = asked.length === 1 ? asked : all;
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

  /** `target`: the address of a document, of a button or menu; else the document in front. */
  async #onTarget(target: unknown, answer: ConflictResolution): Promise<void> {
    const uri = target instanceof Uri ? target : window.activeTextEditor?.document.uri;
    if (uri !== undefined) await this.#decide(uri, answer);
  }

  async #decide(uri: Uri, answer: ConflictResolution): Promise<void> {
    const conflict = this.#conflicts.get(uri.toString());
    const document = openDocumentOf(uri);
    // Somebody has settled it meanwhile.
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
      await this.#expectNow(conflict);
      await document.save();
    }
    if (!document.isDirty || document.isClosed) await this.#comparisons.close(uri);
  }

  /** From here on a save takes the place of what the person has seen in a comparison, else of what the session has at this moment. */
  async #expectNow({ uri }: Conflict): Promise<void> {
    const location = locate(uri);
    if (location.kind !== 'workspace') return;
    const { session, path } = location;
    const seen = this.#comparisons.shownVersion(uri);
    if (seen !== undefined) {
      this.#bases.rebase(uri, seen);
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
    // VS Code offers its buttons for these documents.
    const compared = [...this.#conflicts.values()].filter(({ kind }) => kind === 'changed');
    const uris = compared.map(({ uri }) => uri.toString());
    void commands.executeCommand('setContext', 'holdfast.conflicts', uris);
    void commands.executeCommand('setContext', 'holdfast.hasConflicts', count > 0);
    this.#item.text = `$(warning) ${count === 1 ? '1 conflict' : `${String(count)} conflicts`}`;
    this.#item.tooltip = 'Files that the session changed while you edited them. They are not saved yet.';
    if (count > 0) this.#item.show();
    else this.#item.hide();
  }
}

const MANUAL = TextDocumentSaveReason.Manual;
const REVERTS = {
  revert: 'workbench.action.files.revert',
  revertAndClose: 'workbench.action.revertAndCloseActiveEditor',
} as const;

/** VS Code shows the sentence as it is where the error has no name, and would put the name of its class before it. */
class SaveConflict extends Error {
  override readonly name = '';

  constructor(name: string, isDeleted: boolean) {
    super(`The session has ${isDeleted ? 'deleted' : 'changed'} ${name} while you edited it`);
  }
}
