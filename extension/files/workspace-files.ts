import {
  Disposable,
  EventEmitter,
  FileChangeType,
  FilePermission,
  FileSystemError,
  FileType,
  workspace,
} from 'vscode';
import type { Event, FileChangeEvent, FileStat, FileSystemProvider, Uri } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { FileStat as SessionStat } from '../../protocol/files.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { copyBases } from './copy-bases.ts';
import { displayName } from './configuration-paths.ts';
import type { SaveConflicts } from './save-conflicts.ts';
import type { DocumentBases } from './document-bases.ts';
import { withFileSystemErrors, asFileSystemError, outsideWorkspace, fileNotFound } from './file-errors.ts';
import { ROOT_STAT, entryType, statType } from './file-types.ts';
import type { RecentStats } from './recent-stats.ts';
import { StatCache } from './stat-cache.ts';
import { LargeFiles } from './large-files.ts';
import { SCHEME, locate, siblingUri } from './location.ts';
import type { Location } from './location.ts';
import type { SessionSettings } from './session-settings.ts';
import type { SessionFiles } from './session-files.ts';
import type { ChangeTimes } from './change-times.ts';
import { FileWatches, refreshFolderEvent } from './file-watches.ts';

/** How long the connection may be lost before files become read-only. Replacing a supervisor takes less. */
const LOST_AFTER_MS = 1_000;

/** The file system `holdfast://<session>.<home id>/`, whose only folder is `workspace/`. */
export class WorkspaceFiles implements FileSystemProvider, Disposable {
  readonly #connection: Connection;
  readonly #files: SessionFiles;
  readonly #bases: DocumentBases;
  readonly #conflicts: SaveConflicts;
  readonly #watches: FileWatches;
  readonly #large: LargeFiles;
  readonly #times: ChangeTimes;
  readonly #settings: SessionSettings;
  readonly #recent: RecentStats;
  readonly #stats = new StatCache();
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<FileChangeEvent[]>());
  /** Hosts whose connection is lost, and whether VS Code knows. */
  readonly #lost = new Map<HostConnection, { readonly timer: NodeJS.Timeout; isReported: boolean }>();

  constructor(options: {
    readonly connection: Connection;
    readonly files: SessionFiles;
    readonly bases: DocumentBases;
    readonly conflicts: SaveConflicts;
    readonly times: ChangeTimes;
    readonly settings: SessionSettings;
    readonly recent: RecentStats;
  }) {
    const { connection, files, bases, conflicts, times, settings, recent } = options;
    this.#recent = recent;
    this.#connection = connection;
    this.#files = files;
    this.#bases = bases;
    this.#times = times;
    this.#settings = settings;
    this.#owned.add(
      settings.onDidChange((uri) => this.#changed.fire([{ type: FileChangeType.Changed, uri }])),
    );
    this.#conflicts = conflicts;
    this.#large = this.#owned.add(new LargeFiles(files));
    this.#watches = this.#owned.add(
      new FileWatches({
        connection,
        emit: (events) => {
          for (const { uri } of events) recent.forget(uri.toString());
          this.#changed.fire(events);
          this.#large.refreshTails(events);
          times.recordChanged(
            events.filter(({ type }) => type !== FileChangeType.Deleted).map(({ uri }) => uri),
          );
        },
        rescan: (folder, session) => this.#rescan(folder, session),
      }),
    );
    this.#owned.add(connection.onDidChange(() => this.#onConnection()));
    this.#owned.onDispose(() => {
      for (const { timer } of this.#lost.values()) clearTimeout(timer);
    });
  }

  get onDidChangeFile(): Event<FileChangeEvent[]> {
    return this.#changed.event;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  watch(
    uri: Uri,
    options: { readonly recursive: boolean; readonly excludes: readonly string[] },
  ): Disposable {
    const location = locate(uri);
    switch (location.kind) {
      case 'workspace':
        return this.#watches.watch(uri, location, options);
      case 'root':
        return this.#watches.watch(
          uri,
          { session: location.session, path: WORKSPACE },
          {
            ...options,
            // The globs are relative to the watched folder, which is one level further down.
            excludes: options.excludes.map((glob) => glob.replace(/^workspace\//, '')),
          },
        );
      case 'nowhere':
        return new Disposable(() => undefined);
    }
  }

  async stat(uri: Uri): Promise<FileStat> {
    if (this.#settings.isSettingsFile(uri)) return withFileSystemErrors(this.#settings.stat(uri));
    const location = locate(uri);
    if (location.kind === 'root') return ROOT_STAT;
    if (location.kind === 'nowhere') throw fileNotFound(uri);
    const key = uri.toString();
    const cached = this.#stats.get(key);
    const { state } = this.#connection.of(location.session);
    if (state.kind !== 'connected' && cached !== undefined) {
      return { ...cached, permissions: FilePermission.Readonly };
    }
    this.#watches.recordAccess(location.session);
    const { stat, isLink } = await this.#statOf(key, location);
    const fileStat = this.#toFileStat(uri, location.session, stat, isLink);
    this.#stats.set(key, fileStat);
    return fileStat;
  }

  /** Answered without a request where a save has just had the answer. */
  async #statOf(
    key: string,
    { session, path }: WorkspaceLocation,
  ): Promise<{ stat: SessionStat; isLink: boolean }> {
    const recent = this.#recent.take(key);
    if (recent !== undefined) return { stat: recent, isLink: false };
    const found = await withFileSystemErrors(this.#files.stat({ session }, path));
    this.#recent.recordStat(key, found.stat, found.isLink);
    return found;
  }

  async readDirectory(uri: Uri): Promise<[string, FileType][]> {
    const location = locate(uri);
    if (location.kind === 'root') return [[WORKSPACE.slice(1), FileType.Directory]];
    if (location.kind === 'nowhere') throw fileNotFound(uri);
    this.#watches.recordAccess(location.session);
    const entries = await withFileSystemErrors(
      this.#files.list({ session: location.session }, location.path),
    );
    for (const { name, type, mtimeMs } of entries) {
      if (type === 'file') this.#times.recordListed(siblingUri(uri, `${location.path}/${name}`), mtimeMs);
    }
    return entries.map(({ name, type, linkType }) => [displayName(name), entryType(type, linkType)]);
  }

  async readFile(uri: Uri): Promise<Uint8Array> {
    if (this.#settings.isSettingsFile(uri)) return withFileSystemErrors(this.#settings.read(uri));
    const location = locate(uri);
    if (location.kind === 'root') throw FileSystemError.FileIsADirectory(uri);
    if (location.kind === 'nowhere') throw fileNotFound(uri);
    const { session, path } = location;
    this.#watches.recordAccess(session);
    try {
      const file = await this.#files.read({ session }, path);
      this.#bases.recordRead(uri, file);
      if (!this.#bases.dirtyBaseOf(uri).isDirty) this.#recent.recordRead(uri.toString());
      return file.bytes;
    } catch (error) {
      const failure = HoldfastError.from(error, 'The file could not be read');
      if (failure.code === 'file_too_large') this.#large.showTailInTab(uri);
      throw asFileSystemError(failure);
    }
  }

  async writeFile(
    uri: Uri,
    content: Uint8Array,
    options: { readonly create: boolean; readonly overwrite: boolean },
  ): Promise<void> {
    const { session, path } = workspaceFile(uri);
    const { isDirty, base } = this.#bases.dirtyBaseOf(uri);
    if (isDirty) {
      await this.#conflicts.save(uri, { session, path }, content, base?.version);
      return;
    }
    const { create, overwrite } = options;
    if (!create && !overwrite) throw fileNotFound(uri);
    const written = await withFileSystemErrors(
      this.#files.write(session, path, content, { create, overwrite }),
    );
    this.#recent.recordWritten(uri.toString(), written);
    this.#bases.recordReplacement(uri, { ...written, bytes: Buffer.from(content) });
  }

  async createDirectory(uri: Uri): Promise<void> {
    this.#recent.clear();
    const { session, path } = workspaceFile(uri);
    await withFileSystemErrors(this.#files.createFolder(session, path));
  }

  async delete(uri: Uri, options: { readonly recursive: boolean }): Promise<void> {
    this.#recent.clear();
    const { session, path } = workspaceFile(uri);
    if (path === WORKSPACE) throw outsideWorkspace();
    await withFileSystemErrors(this.#files.remove(session, path, options.recursive));
  }

  async rename(from: Uri, to: Uri, options: { readonly overwrite: boolean }): Promise<void> {
    this.#recent.clear();
    const [source, target] = inOneSession(from, to);
    if (source.path === WORKSPACE || target.path === WORKSPACE) throw outsideWorkspace();
    await copyBases(this.#files, this.#bases, { from, to }, () =>
      withFileSystemErrors(this.#files.rename(source.session, source.path, target.path, options.overwrite)),
    );
  }

  async copy(from: Uri, to: Uri, options: { readonly overwrite: boolean }): Promise<void> {
    this.#recent.clear();
    const [source, target] = inOneSession(from, to);
    await copyBases(this.#files, this.#bases, { from, to }, () =>
      withFileSystemErrors(this.#files.copy(source.session, source.path, target.path, options.overwrite)),
    );
  }

  #isWritable(session: string): boolean {
    return this.#connection.of(session).state.kind === 'connected';
  }

  #toFileStat(uri: Uri, session: string, stat: SessionStat, isLink: boolean): FileStat {
    const { isDirty, base } = this.#bases.dirtyBaseOf(uri);
    // Before a save VS Code compares times and asks a question of its own, which misses changes of equal size. While a
    // document is dirty its file keeps its time, so that only our question is asked.
    const mtime = isDirty && base !== undefined ? Math.min(stat.mtimeMs, base.mtimeMs) : stat.mtimeMs;
    const isReadonly = !this.#isWritable(session) || (stat.type === 'file' && (stat.mode & 0o200) === 0);
    return {
      type: statType(stat, isLink),
      ctime: mtime,
      mtime,
      size: stat.size,
      ...(isReadonly ? { permissions: FilePermission.Readonly } : {}),
    };
  }

  /**
   * Files become read-only while the supervisor does not answer. VS Code notices by reading the stats of open
   * documents.
   */
  #onConnection(): void {
    for (const host of this.#connection.known) this.#onHost(host);
  }

  #onHost(host: HostConnection): void {
    const lost = this.#lost.get(host);
    if (host.state.kind === 'connected') {
      if (lost === undefined) return;
      clearTimeout(lost.timer);
      this.#lost.delete(host);
      if (lost.isReported) this.#refreshHost(host);
    } else if (lost === undefined && this.#stats.size > 0) {
      const timer = setTimeout(() => {
        entry.isReported = true;
        this.#refreshHost(host);
      }, LOST_AFTER_MS);
      const entry = { timer, isReported: false };
      this.#lost.set(host, entry);
    }
  }

  #refreshHost(host: HostConnection): void {
    this.#refresh((uri) => this.#connection.at(uri) === host);
  }

  /** Makes VS Code read the stats of open documents again. */
  #refresh(concerns: (uri: Uri) => boolean): void {
    const events = workspace.textDocuments
      .filter(({ uri }) => uri.scheme === SCHEME && concerns(uri))
      .map(({ uri }) => ({ type: FileChangeType.Changed, uri }));
    if (events.length > 0) this.#changed.fire(events);
  }

  /** After missed changes, makes VS Code read open documents and visible folders again. */
  #rescan(folder: Uri, session: string): void {
    this.#recent.clear();
    this.#refresh((uri) => isOf(session, uri));
    this.#changed.fire([refreshFolderEvent(folder)]);
  }
}

type WorkspaceLocation = Extract<Location, { kind: 'workspace' }>;

function workspaceFile(uri: Uri): WorkspaceLocation {
  const location = locate(uri);
  if (location.kind === 'workspace') return location;
  throw outsideWorkspace();
}

function isOf(session: string, uri: Uri): boolean {
  const location = locate(uri);
  return location.kind !== 'nowhere' && location.session === session;
}

function inOneSession(from: Uri, to: Uri): [WorkspaceLocation, WorkspaceLocation] {
  const source = workspaceFile(from);
  const target = workspaceFile(to);
  if (source.session !== target.session) {
    throw asFileSystemError(
      new HoldfastError('not_supported', 'Files cannot be moved between sessions', {
        next: 'export them to a folder of this machine first',
      }),
    );
  }
  return [source, target];
}
