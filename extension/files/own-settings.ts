import { EventEmitter, FilePermission, FileType } from 'vscode';
import type { Disposable, FileStat, Uri } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import { uriOf } from './location.ts';

const PATH = '/.vscode/settings.json';

type Named = Pick<Session, 'id' | 'name' | 'profile'>;

/**
 * Where VS Code looks for the configuration of a session's folder no agent can put a file. It finds there what only a folder's settings can say: whose
 * window it is. (The folder's own name is `/`.) The file is in no listing.
 */
export class OwnSettings implements Disposable {
  readonly #connection: Connection;
  readonly #given = new Map<string, { readonly text: string; readonly at: number }>();
  readonly #changed = new EventEmitter<Uri>();
  readonly onDidChange = this.#changed.event;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  dispose(): void {
    this.#changed.dispose();
  }

  isAt(uri: Uri): boolean {
    return uri.path === PATH;
  }

  async stat(uri: Uri): Promise<FileStat> {
    const { text, at } = await this.#look(uri.authority);
    const size = Buffer.byteLength(text);
    return { type: FileType.File, ctime: at, mtime: at, size, permissions: FilePermission.Readonly };
  }

  async read(uri: Uri): Promise<Uint8Array> {
    return Buffer.from((await this.#look(uri.authority)).text);
  }

  /** A session may have another name now. */
  heard(sessions: readonly Named[]): void {
    for (const session of sessions) {
      const given = this.#given.get(session.id);
      if (given === undefined || given.text === settingsOf(session)) continue;
      this.#keep(session);
      this.#changed.fire(uriOf(session.id, PATH));
    }
  }

  async #look(id: string): Promise<{ readonly text: string; readonly at: number }> {
    const { session } = await this.#connection.call('session/show', { session: id }, { repeatable: true });
    return this.#keep(session);
  }

  #keep(session: Named): { readonly text: string; readonly at: number } {
    const text = settingsOf(session);
    const known = this.#given.get(session.id);
    const kept = known?.text === text ? known : { text, at: Date.now() };
    this.#given.set(session.id, kept);
    return kept;
  }
}

function settingsOf({ id, name, profile }: Named): string {
  // VS Code fills in what begins with a dollar sign.
  const title = (name === id ? profile : `${profile}/${name}`).replaceAll('$', '');
  const parts = ['${dirty}${activeEditorShort}', title, '${appName}'];
  return `${JSON.stringify({ 'window.title': parts.join('${separator}') }, null, 2)}\n`;
}
