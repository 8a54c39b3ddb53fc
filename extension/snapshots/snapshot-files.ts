import { EventEmitter, FileSystemError, FileType } from 'vscode';
import type { Disposable, FileChangeEvent, FileStat, FileSystemProvider, Uri } from 'vscode';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Connection } from '../connection/connection.ts';
import { displayName } from '../files/configuration-paths.ts';
import { withFileSystemErrors, fileNotFound } from '../files/file-errors.ts';
import { ROOT_STAT, entryType, statType } from '../files/file-types.ts';
import { folderSettings, isFolderSettings } from '../files/folder-settings.ts';
import { locateSnapshot } from '../files/location.ts';
import { SessionFiles } from '../files/session-files.ts';

const SETTINGS = Buffer.from(folderSettings());

/**
 * The read-only file system `holdfast-snapshot://<snapshot>.<home id>/`, whose only folder is `workspace/`. It serves the same
 * folder settings as a session, so that VS Code's Git and others do not use the folder's path as a path of this
 * machine.
 */
export class SnapshotFiles implements FileSystemProvider, Disposable {
  readonly #connection: Connection;
  readonly #never = new EventEmitter<FileChangeEvent[]>();
  readonly onDidChangeFile = this.#never.event;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  dispose(): void {
    this.#never.dispose();
  }

  watch(): Disposable {
    return this.#never.event(() => undefined);
  }

  async stat(uri: Uri): Promise<FileStat> {
    if (isSettings(uri)) return { ...ROOT_STAT, type: FileType.File, size: SETTINGS.length };
    const location = locateSnapshot(uri);
    if (location.kind === 'root') return ROOT_STAT;
    if (location.kind === 'nowhere') throw fileNotFound(uri);
    const { stat, isLink } = await withFileSystemErrors(
      this.#filesOf(uri).stat({ snapshot: location.session }, location.path),
    );
    return { type: statType(stat, isLink), ctime: stat.mtimeMs, mtime: stat.mtimeMs, size: stat.size };
  }

  async readDirectory(uri: Uri): Promise<[string, FileType][]> {
    const location = locateSnapshot(uri);
    if (location.kind === 'root') return [[WORKSPACE.slice(1), ROOT_STAT.type]];
    if (location.kind === 'nowhere') throw fileNotFound(uri);
    const entries = await withFileSystemErrors(
      this.#filesOf(uri).list({ snapshot: location.session }, location.path),
    );
    return entries.map(({ name, type, linkType }) => [displayName(name), entryType(type, linkType)]);
  }

  async readFile(uri: Uri): Promise<Uint8Array> {
    if (isSettings(uri)) return SETTINGS;
    const location = locateSnapshot(uri);
    if (location.kind === 'root') throw FileSystemError.FileIsADirectory(uri);
    if (location.kind === 'nowhere') throw fileNotFound(uri);
    return (
      await withFileSystemErrors(this.#filesOf(uri).read({ snapshot: location.session }, location.path))
    ).bytes;
  }

  #filesOf(uri: Uri): SessionFiles {
    return new SessionFiles(this.#connection.at(uri) ?? this.#connection.local);
  }

  // VS Code does not call these, because the provider is registered as read-only.
  createDirectory(): never {
    throw readOnly();
  }
  writeFile(): never {
    throw readOnly();
  }
  delete(): never {
    throw readOnly();
  }
  rename(): never {
    throw readOnly();
  }
}

function isSettings(uri: Uri): boolean {
  return isFolderSettings(uri) && locateSnapshot(uri.with({ path: '/' })).kind === 'root';
}

function readOnly(): FileSystemError {
  return FileSystemError.NoPermissions('A snapshot is read-only');
}
