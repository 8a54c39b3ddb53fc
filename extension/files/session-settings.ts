import { EventEmitter, FilePermission, FileType } from 'vscode';
import type { Disposable, FileStat, Uri } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Connection } from '../connection/connection.ts';
import { fileNotFound } from './file-errors.ts';
import { SETTINGS_PATH, folderSettings, isFolderSettings } from './folder-settings.ts';
import { locate, workspaceUri } from './location.ts';

type Named = Pick<Session, 'id' | 'name' | 'profile'>;

interface Served {
  readonly text: string;
  /** Time of the last change, ms. */
  readonly at: number;
}

/**
 * Serves `holdfast://<session>.<home id>/.vscode/settings.json`, where VS Code looks for the settings of a session's folder and
 * where no agent can write. It sets the title of the window and turns off features that are unsafe in a session. No
 * listing shows it.
 *
 * The safety settings do not depend on the supervisor: without one the file has no title, and it gets its title later.
 */
export class SessionSettings implements Disposable {
  readonly #connection: Connection;
  readonly #served = new Map<string, Served>();
  readonly #changed = new EventEmitter<Uri>();
  /** Sessions that were served without a title. */
  readonly #untitled = new Set<string>();
  readonly #listener: Disposable;
  readonly onDidChange = this.#changed.event;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#listener = connection.onDidConnect(() => {
      for (const id of this.#untitled) void this.#findTitle(id);
    });
  }

  dispose(): void {
    this.#listener.dispose();
    this.#changed.dispose();
  }

  isSettingsFile(uri: Uri): boolean {
    return isFolderSettings(uri);
  }

  async stat(uri: Uri): Promise<FileStat> {
    const { text, at } = await this.#serve(uri);
    const size = Buffer.byteLength(text);
    return { type: FileType.File, ctime: at, mtime: at, size, permissions: FilePermission.Readonly };
  }

  async read(uri: Uri): Promise<Uint8Array> {
    return Buffer.from((await this.#serve(uri)).text);
  }

  /** Updates the titles of sessions that were renamed. */
  updateTitles(sessions: readonly Named[]): void {
    for (const session of sessions) {
      if (this.#served.has(session.id)) this.#update(session);
    }
  }

  /** Errors: `not_found` where the supervisor knows no such session. */
  async #serve(uri: Uri): Promise<Served> {
    const location = locate(uri.with({ path: '/' }));
    if (location.kind === 'nowhere') throw fileNotFound(uri);
    const id = location.session;
    const host = this.#connection.of(id);
    if (host.peer === undefined) {
      // VS Code applies no setting of the folder before this answer, and the supervisor may take a while to start.
      host.ensureConnecting();
      return this.#withoutSupervisor(id);
    }
    try {
      return this.#set(id, settingsOf(await this.#session(id)));
    } catch (error) {
      if (HoldfastError.from(error).code === 'not_found') throw error;
      return this.#withoutSupervisor(id);
    }
  }

  #withoutSupervisor(id: string): Served {
    const served = this.#served.get(id);
    if (served !== undefined) return served;
    this.#untitled.add(id);
    return this.#set(id, settingsOf(null));
  }

  async #findTitle(id: string): Promise<void> {
    try {
      this.#update(await this.#session(id));
    } catch (error) {
      // A deleted session needs no title. Others get theirs after the next connect.
      if (HoldfastError.from(error).code === 'not_found') this.#untitled.delete(id);
    }
  }

  async #session(id: string): Promise<Named> {
    return (await this.#connection.call('session/show', { session: id })).session;
  }

  #update(session: Named): void {
    this.#untitled.delete(session.id);
    const before = this.#served.get(session.id);
    if (this.#set(session.id, settingsOf(session)) !== before)
      this.#changed.fire(workspaceUri(this.#connection, session.id, SETTINGS_PATH));
  }

  #set(id: string, text: string): Served {
    const before = this.#served.get(id);
    if (before?.text === text) return before;
    const served = { text, at: Date.now() };
    this.#served.set(id, served);
    return served;
  }
}

/** The content of the file. `session` is null while its names are not known. */
function settingsOf(session: Named | null): string {
  return folderSettings(session === null ? undefined : windowTitle(session));
}

function windowTitle({ id, name, profile }: Named): string {
  // VS Code expands variables, which start with a dollar sign.
  const title = (name === id ? profile : `${profile}/${name}`).replaceAll('$', '');
  return ['${dirty}${activeEditorShort}', title, '${appName}'].join('${separator}');
}
