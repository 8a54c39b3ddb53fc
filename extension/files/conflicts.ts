import { FileSystemError, Uri, commands, window, workspace } from 'vscode';
import type { Disposable } from 'vscode';
import { Disposal } from '../disposal.ts';
import { inert } from '../inert.ts';
import type { DocumentBases } from './document-bases.ts';
import { documentOf } from './document-bases.ts';
import { lastName, uriOf } from './location.ts';
import { isConflict } from './session-files.ts';
import type { SessionFiles, WholeFile } from './session-files.ts';

/** What the session had at the moment of a conflict, for the left side of the comparison. */
const THEIRS = 'holdfast-theirs';
const MOST_TEXTS = 20;

const COMPARE = 'Compare';
const OVERWRITE = 'Overwrite';
const TAKE_THEIRS = 'Take Theirs';

/** Saves of documents whose file has changed in the session since: the person decides, once, and nothing is lost meanwhile. */
export class Conflicts implements Disposable {
  readonly #files: SessionFiles;
  readonly #bases: DocumentBases;
  readonly #owned = new Disposal();
  readonly #asking = new Map<string, Promise<string | undefined>>();
  readonly #texts = new Map<string, string>();
  #number = 0;

  constructor(files: SessionFiles, bases: DocumentBases) {
    this.#files = files;
    this.#bases = bases;
    this.#owned.own(
      workspace.registerTextDocumentContentProvider(THEIRS, {
        provideTextDocumentContent: (uri) => this.#texts.get(uri.query) ?? '',
      }),
    );
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /**
   * Writes what an editor holds over what it began from. Where the file is another one by now it asks; it throws, so that the
   * save fails and the document stays as it is, unless the person said to overwrite.
   */
  async save(session: string, path: string, content: Uint8Array, base: string | undefined): Promise<void> {
    const uri = uriOf(session, path);
    for (let expected = base; ;) {
      try {
        // An editor that does not know what it began from (its state was lost) may only make the file anew.
        const expectation = expected === undefined ? { create: true } : { ifVersion: expected };
        this.#bases.written(uri, await this.#files.write(session, path, content, expectation));
        return;
      } catch (error) {
        const exists = error instanceof Error && 'code' in error && error.code === 'file_exists';
        if (!isConflict(error) && !(expected === undefined && exists)) throw error;
        if (isConflict(error) && error.details?.['version'] === null) {
          // It was deleted. Saving brings it back, and takes nothing from anybody.
          expected = undefined;
          continue;
        }
        expected = await this.#decide(session, path, uri);
      }
    }
  }

  /** The version to write over. Throws where the person wants something else. */
  async #decide(session: string, path: string, uri: Uri): Promise<string> {
    const name = inert(lastName(path));
    const choice = await this.#ask(uri, name);
    switch (choice) {
      case OVERWRITE:
        return (await this.#files.read({ session }, path)).version;
      case COMPARE: {
        const theirs = await this.#files.read({ session }, path);
        await this.#compare(uri, name, theirs);
        throw FileSystemError.Unavailable(
          `${name} has changed in the session. Merge on the right side of the comparison, then save again`,
        );
      }
      case TAKE_THEIRS:
        this.#takeTheirs(uri);
        throw FileSystemError.Unavailable(`${name} is loaded from the session instead`);
      default:
        throw FileSystemError.Unavailable(`${name} has changed in the session. Save again to decide`);
    }
  }

  #ask(uri: Uri, name: string): Promise<string | undefined> {
    const key = uri.toString();
    const asked = this.#asking.get(key);
    if (asked !== undefined) return asked;
    const answer = Promise.resolve(
      window.showWarningMessage(
        `${name} was changed in the session while you were editing it. It is not saved yet.`,
        COMPARE,
        OVERWRITE,
        TAKE_THEIRS,
      ),
    ).finally(() => this.#asking.delete(key));
    this.#asking.set(key, answer);
    return answer;
  }

  async #compare(uri: Uri, name: string, theirs: WholeFile): Promise<void> {
    this.#number += 1;
    const id = String(this.#number);
    this.#texts.set(id, theirs.bytes.toString('utf8'));
    const [oldest] = this.#texts.keys();
    if (this.#texts.size > MOST_TEXTS && oldest !== undefined) this.#texts.delete(oldest);
    const left = Uri.from({ scheme: THEIRS, authority: uri.authority, path: uri.path, query: id });
    await commands.executeCommand('vscode.diff', left, uri, `${name}: in the session ↔ yours`);
    // Seen beside their own: the next save is an edit of it, and asks again only where it has changed once more.
    this.#bases.compared(uri, theirs);
  }

  /** After the failed save, because VS Code loads nothing into a document that is being saved. */
  #takeTheirs(uri: Uri): void {
    const timer = setTimeout(() => {
      const document = documentOf(uri);
      if (document === undefined) return;
      void window
        .showTextDocument(document)
        .then(() => commands.executeCommand('workbench.action.files.revert'));
    }, 0);
    this.#owned.onEnd(() => clearTimeout(timer));
  }
}
