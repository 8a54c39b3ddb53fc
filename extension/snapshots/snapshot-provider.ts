import { EventEmitter, FileSystemError } from 'vscode';
import type { Disposable, FileChangeEvent, FileStat, FileSystemProvider, FileType, Uri } from 'vscode';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Connection } from '../connection/connection.ts';
import { shownName } from '../files/configuration-paths.ts';
import { answered, notThere } from '../files/file-errors.ts';
import { ROOT_STAT, entryType, statType } from '../files/file-types.ts';
import { locateSnapshot } from '../files/location.ts';
import { SessionFiles } from '../files/session-files.ts';

/** `holdfast-snapshot://<snapshot>/`, which shows `workspace/` as it was. */
export class SnapshotFiles implements FileSystemProvider, Disposable {
  readonly #files: SessionFiles;
  readonly #never = new EventEmitter<FileChangeEvent[]>();
  readonly onDidChangeFile = this.#never.event;

  constructor(connection: Connection) {
    this.#files = new SessionFiles(connection);
  }

  dispose(): void {
    this.#never.dispose();
  }

  watch(): Disposable {
    return this.#never.event(() => undefined);
  }

  async stat(uri: Uri): Promise<FileStat> {
    const location = locateSnapshot(uri);
    if (location.kind === 'root') return ROOT_STAT;
    if (location.kind === 'nowhere') throw notThere(uri);
    const { stat, isLink } = await answered(this.#files.stat({ snapshot: location.session }, location.path));
    return { type: statType(stat, isLink), ctime: stat.mtimeMs, mtime: stat.mtimeMs, size: stat.size };
  }

  async readDirectory(uri: Uri): Promise<[string, FileType][]> {
    const location = locateSnapshot(uri);
    if (location.kind === 'root') return [[WORKSPACE.slice(1), ROOT_STAT.type]];
    if (location.kind === 'nowhere') throw notThere(uri);
    const entries = await answered(this.#files.list({ snapshot: location.session }, location.path));
    return entries.map(({ name, type, linkType }) => [shownName(name), entryType(type, linkType)]);
  }

  async readFile(uri: Uri): Promise<Uint8Array> {
    const location = locateSnapshot(uri);
    if (location.kind === 'root') throw FileSystemError.FileIsADirectory(uri);
    if (location.kind === 'nowhere') throw notThere(uri);
    return (await answered(this.#files.read({ snapshot: location.session }, location.path))).bytes;
  }

  // VS Code refuses these before it asks, as the provider is registered read-only.
  createDirectory(): never {
    throw unchangeable();
  }
  writeFile(): never {
    throw unchangeable();
  }
  delete(): never {
    throw unchangeable();
  }
  rename(): never {
    throw unchangeable();
  }
}

function unchangeable(): FileSystemError {
  return FileSystemError.NoPermissions('A snapshot does not change');
}
