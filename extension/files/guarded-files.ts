import { Disposable, FileSystemError } from 'vscode';
import type { Event, FileChangeEvent, FileStat, FileSystemProvider, FileType, Uri } from 'vscode';
import { inert } from '../inert.ts';
import { MARK } from './configuration-paths.ts';
import { configurationNameIn } from './location.ts';
import type { WindowGuard } from './window-guard.ts';

/**
 * Files of an agent as VS Code may have them: nothing under a name that it takes for configuration, and nothing at all in a window that was opened on
 * something an agent can write. There is no exception for windows that look safe: VS Code reads the configuration of a folder that a
 * person adds before the extension hears of the folder.
 */
export class GuardedFiles implements FileSystemProvider {
  readonly #files: FileSystemProvider;
  readonly #guard: WindowGuard;
  /** Absent where the files behind cannot: VS Code then copies by reading and writing. */
  readonly copy?: NonNullable<FileSystemProvider['copy']>;

  constructor(files: FileSystemProvider, guard: WindowGuard) {
    this.#files = files;
    this.#guard = guard;
    if (files.copy !== undefined) {
      const copy = files.copy.bind(files);
      this.copy = async (from, to, options) => {
        this.#assert(from, to);
        await copy(from, to, options);
      };
    }
  }

  get onDidChangeFile(): Event<FileChangeEvent[]> {
    return this.#files.onDidChangeFile;
  }

  watch(
    uri: Uri,
    options: { readonly recursive: boolean; readonly excludes: readonly string[] },
  ): Disposable {
    try {
      this.#assert(uri);
    } catch {
      return new Disposable(() => undefined);
    }
    return this.#files.watch(uri, options);
  }

  async stat(uri: Uri): Promise<FileStat> {
    this.#assert(uri);
    return this.#files.stat(uri);
  }

  async readDirectory(uri: Uri): Promise<[string, FileType][]> {
    this.#assert(uri);
    return this.#files.readDirectory(uri);
  }

  async readFile(uri: Uri): Promise<Uint8Array> {
    this.#assert(uri);
    return this.#files.readFile(uri);
  }

  async writeFile(
    uri: Uri,
    content: Uint8Array,
    options: { readonly create: boolean; readonly overwrite: boolean },
  ): Promise<void> {
    this.#assert(uri);
    await this.#files.writeFile(uri, content, options);
  }

  async createDirectory(uri: Uri): Promise<void> {
    this.#assert(uri);
    await this.#files.createDirectory(uri);
  }

  async delete(uri: Uri, options: { readonly recursive: boolean }): Promise<void> {
    this.#assert(uri);
    await this.#files.delete(uri, options);
  }

  async rename(from: Uri, to: Uri, options: { readonly overwrite: boolean }): Promise<void> {
    this.#assert(from, to);
    await this.#files.rename(from, to, options);
  }

  #assert(...uris: readonly Uri[]): void {
    this.#guard.assertOpen();
    for (const uri of uris) {
      const name = configurationNameIn(uri);
      if (name === undefined) continue;
      throw FileSystemError.NoPermissions(
        `VS Code takes ${inert(name)} for its own configuration, so a session’s is found under the name “${inert(name)}${MARK}” instead`,
      );
    }
  }
}
