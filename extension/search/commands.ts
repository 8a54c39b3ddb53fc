import type { Disposable } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { SearchSummary } from '../../protocol/search.ts';
import type { CommandWork } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import type { KnownSessions } from '../sessions/known-sessions.ts';
import { onlySessionHere, pickSession } from '../sessions/pick.ts';
import { findFile } from './find-file.ts';
import { TextSearch } from './text-search.ts';

/** Looking for files and text in a workspace. */
export class SearchCommands implements Disposable {
  readonly #connection: Connection;
  readonly #sessions: KnownSessions;
  readonly #search: TextSearch;

  constructor(connection: Connection, sessions: KnownSessions) {
    this.#connection = connection;
    this.#sessions = sessions;
    this.#search = new TextSearch(connection);
  }

  get works() {
    return {
      'holdfast.findFile': (target) => this.#findFile(target),
      'holdfast.searchText': (target, pattern) => this.#searchText(target, pattern),
      'holdfast.openResult': (result) => this.#search.openResult(result),
      'holdfast.clearSearch': () => this.#search.clear(),
    } as const satisfies Partial<Record<CommandId, CommandWork>>;
  }

  dispose(): void {
    this.#search.dispose();
  }

  async #findFile(target: unknown): Promise<void> {
    const session = await this.#pick(target, 'Find File');
    if (session !== undefined) findFile(this.#connection, session);
  }

  async #searchText(target: unknown, pattern: unknown): Promise<SearchSummary | undefined> {
    const session = await this.#pick(target, 'Search Text');
    return session === undefined ? undefined : this.#search.search(session, pattern);
  }

  #pick(target: unknown, title: string): Promise<Session | undefined> {
    return pickSession(this.#sessions, target ?? onlySessionHere(), { title });
  }
}
