import type { Disposable, Memento } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { SearchSummary } from '../../protocol/search.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { pickSession } from '../sessions/pick-session.ts';
import { FileFinder } from './find-file.ts';
import { RecentFiles } from './recent-files.ts';
import type { ReplaceSummary } from './replace-preview.ts';
import { TextSearch } from './text-search.ts';

/** The commands that find files and text in a workspace, and replace text. */
export class SearchCommands implements Disposable {
  readonly #sessions: SessionList;
  readonly #owned = new DisposableStore();
  readonly #search: TextSearch;
  readonly #finder: FileFinder;

  constructor(connection: Connection, sessions: SessionList, state: Memento) {
    this.#sessions = sessions;
    this.#search = this.#owned.add(new TextSearch(connection));
    const recent = this.#owned.add(new RecentFiles(state));
    this.#finder = this.#owned.add(new FileFinder(connection, recent));
  }

  get handlers() {
    return {
      'holdfast.findFile': (target) => this.#findFile(target),
      'holdfast.searchText': (target, query) => this.#searchText(target, query),
      'holdfast.openResult': (result) => this.#search.openResult(result),
      'holdfast.refreshSearch': () => this.#search.refresh(),
      'holdfast.clearSearch': () => this.#search.clear(),
      'holdfast.toggleSearchCase': () => this.#search.toggle('matchCase'),
      'holdfast.toggleSearchWord': () => this.#search.toggle('wholeWord'),
      'holdfast.toggleSearchRegex': () => this.#search.toggle('regex'),
      'holdfast.replaceText': (target, text) => this.#replaceText(target, text),
      'holdfast.applyReplace': () => this.#search.applyReplace(),
      'holdfast.discardReplace': () => this.#search.discardReplace(),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  async #findFile(target: unknown): Promise<void> {
    const session = await this.#pick(target, 'Find File');
    if (session !== undefined) this.#finder.show(session);
  }

  async #searchText(target: unknown, query: unknown): Promise<SearchSummary | undefined> {
    const session = await this.#pick(target, 'Search Text');
    return session === undefined ? undefined : this.#search.search(session, query);
  }

  /** Replaces in the results of the last search; where there are none, searches first. */
  async #replaceText(target: unknown, text: unknown): Promise<ReplaceSummary | undefined> {
    if (target === undefined && this.#search.hasResults) return this.#search.replace(undefined, text);
    const session = await this.#pick(target, 'Replace Text');
    return session === undefined ? undefined : this.#search.replace(session, text);
  }

  #pick(target: unknown, title: string): Promise<Session | undefined> {
    return pickSession(this.#sessions, target, { title, here: true });
  }
}
