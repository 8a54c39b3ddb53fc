import { Disposable, FileSystemError } from 'vscode';
import type { Event, FileChangeEvent, FileStat, FileSystemProvider, FileType, Uri } from 'vscode';
import { sanitize } from '../base/sanitize.ts';
import { MARK_SUFFIX } from './configuration-paths.ts';
import { configurationNameIn, otherHomeOf } from './location.ts';
import type { Homes } from './location.ts';
import type { ImportedConfiguration } from './imported-configuration.ts';
import { unknownHomeError } from './offer-host.ts';
import type { WindowGuard } from './window-guard.ts';

/**
 * Limits what VS Code can read of an agent's files: nothing under a configuration name, and nothing at all in a window
 * that was opened on a folder that an agent can write. A file of another home gets an error that says so. There is no exception for windows that look safe, because VS
 * Code reads the configuration of a folder that a person adds before it notifies the extension.
 */
export class GuardedFiles implements FileSystemProvider {
  readonly #files: FileSystemProvider;
  readonly #guard: WindowGuard;
  readonly #homes: Pick<Homes, 'at'>;
  /** The homes whose hosts were offered. */
  readonly #offered = new Set<string>();
  readonly #imports: ImportedConfiguration | undefined;
  /** Absent where the wrapped provider has none: VS Code then copies by reading and writing. */
  readonly copy?: NonNullable<FileSystemProvider['copy']>;

  /**
   * `imports` accepts files with a configuration name that a person copies into the workspace. Without it they are
   * refused.
   */
  constructor(
    files: FileSystemProvider,
    guard: WindowGuard,
    homes: Pick<Homes, 'at'>,
    imports?: ImportedConfiguration,
  ) {
    this.#files = files;
    this.#guard = guard;
    this.#homes = homes;
    this.#imports = imports;
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
    const refusal = this.#refusal(uri);
    if (refusal === undefined) return this.#files.stat(uri);
    if (this.#imports === undefined) throw refusal;
    return this.#imports.stat(uri, refusal);
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
    const refusal = this.#refusal(uri);
    if (refusal === undefined) await this.#files.writeFile(uri, content, options);
    else if (this.#imports !== undefined && options.create) await this.#imports.writeFile(uri, content);
    else throw refusal;
  }

  async createDirectory(uri: Uri): Promise<void> {
    const refusal = this.#refusal(uri);
    if (refusal === undefined) await this.#files.createDirectory(uri);
    else if (this.#imports !== undefined) await this.#imports.createDirectory(uri);
    else throw refusal;
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
    for (const uri of uris) {
      const refusal = this.#refusal(uri);
      if (refusal !== undefined) throw refusal;
    }
  }

  /**
   * Why VS Code must not access this URI; undefined where it may. Throws while the window must not access any file, and
   * for a file of another home.
   */
  #refusal(uri: Uri): FileSystemError | undefined {
    this.#guard.assertFilesAllowed();
    return refusalOf(uri, this.#homes, this.#offered);
  }
}

/**
 * Why a file has no text for VS Code: it reads such a name as its own configuration. Throws for a file of another home, whose host
 * is offered once if `offered` is given.
 */
export function refusalOf(
  uri: Uri,
  homes: Pick<Homes, 'at'>,
  offered?: Set<string>,
): FileSystemError | undefined {
  const other = otherHomeOf(uri, homes);
  if (other !== undefined) throw unknownHomeError(other, offered);
  const name = configurationNameIn(uri);
  if (name === undefined) return undefined;
  return FileSystemError.NoPermissions(
    `VS Code reads ${sanitize(name)} as its own configuration. ` +
      `In a session it is named “${sanitize(name)}${MARK_SUFFIX}” instead`,
  );
}
