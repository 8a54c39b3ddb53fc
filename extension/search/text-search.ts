import { randomUUID } from 'node:crypto';
import { EventEmitter, Range, ThemeIcon, TreeItem, TreeItemCollapsibleState, commands, window } from 'vscode';
import type { Disposable, Event, TreeDataProvider, TreeView } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { SearchLine, SearchSummary } from '../../protocol/search.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { baseName, workspaceUri } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { openFile } from './find-file.ts';
import { ReplacePreview } from './replace-preview.ts';
import type { ReplaceSummary } from './replace-preview.ts';
import { SearchInput } from './search-input.ts';
import { DEFAULT_OPTIONS, formatOptions, parseQuery, searchParams, formatSummary } from './search-query.ts';
import type { SearchOptions, SearchQuery, SearchToggle } from './search-query.ts';
import { SearchResults, resultLabel } from './search-results.ts';
import type { FileResult } from './search-results.ts';

const VIEW = 'holdfast.search';
const REDRAW_MS = 100;

interface FileNode extends FileResult {
  readonly kind: 'file';
}
interface LineNode {
  readonly kind: 'line';
  readonly line: SearchLine;
}
type Node = FileNode | LineNode;

/** A search and its results so far. */
interface Search {
  readonly session: Session;
  readonly query: SearchQuery;
  readonly results: SearchResults;
  readonly running: AbortController;
}

/** Searches text in a workspace. The view shows the results as a tree while they arrive. */
export class TextSearch implements TreeDataProvider<Node>, Disposable {
  readonly #connection: Connection;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<undefined>());
  readonly #replace: ReplacePreview;
  readonly #input = new SearchInput();
  readonly #view: TreeView<Node>;
  #search: Search | undefined;
  #redraw: NodeJS.Timeout | undefined;
  #pattern = '';
  /** Of the last search; undefined before the first one: the defaults are in the bundle that is loaded late. */
  #options: SearchOptions | undefined;
  #replacement = '';
  #summary = '';

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#replace = this.#owned.add(new ReplacePreview(connection));
    this.#view = this.#owned.add(
      window.createTreeView<Node>(VIEW, { treeDataProvider: this, showCollapseAll: true }),
    );
    this.#owned.onDispose(() => this.#stop());
  }

  get onDidChangeTreeData(): Event<undefined> {
    return this.#changed.event;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** Asks for a pattern where a program gives none. Returns how much was found; undefined where the person cancels. */
  async search(session: Session, given?: unknown): Promise<SearchSummary | undefined> {
    const query = given === undefined ? await this.#ask(session) : parseQuery(given);
    return query === undefined ? undefined : this.#run(session, query);
  }

  /** Toggles an option and searches again; while the input box is open, toggles it there. */
  async toggle(option: SearchToggle): Promise<SearchSummary | undefined> {
    if (this.#input.toggle(option) || this.#search === undefined) return undefined;
    const { session, query } = this.#search;
    this.#options = { ...(this.#options ?? DEFAULT_OPTIONS), [option]: !query[option] };
    return this.#run(session, { ...query, [option]: !query[option] });
  }

  async refresh(): Promise<SearchSummary | undefined> {
    return this.#search === undefined ? undefined : this.#run(this.#search.session, this.#search.query);
  }

  get hasResults(): boolean {
    return (this.#search?.results.files.length ?? 0) > 0;
  }

  /** Shows what a replacement would change. Asks for the text where none is given. */
  async replace(session: Session | undefined, given: unknown): Promise<ReplaceSummary | undefined> {
    if (session !== undefined && (await this.search(session)) === undefined) return undefined;
    const search = this.#search;
    if (search === undefined) return undefined;
    const text = typeof given === 'string' ? given : await this.#askReplacement(search);
    if (text === undefined) return undefined;
    this.#replacement = text;
    const count = await this.#replace.show(search.session, search.results.files, search.query, text);
    if (this.#replace.isPending) {
      this.#view.message = 'Review the changes, then apply (✓) or discard (✗) them above.';
    }
    return count;
  }

  /** Applies the changes that were shown, and searches again. */
  async applyReplace(): Promise<ReplaceSummary | undefined> {
    const count = await this.#replace.apply();
    if (count !== undefined) await this.refresh();
    return count;
  }

  async discardReplace(): Promise<void> {
    await this.#replace.discard();
    this.#view.message = this.#summary;
  }

  /** Clears the results and hides the view. */
  async clear(): Promise<void> {
    this.#stop();
    this.#search = undefined;
    this.#draw();
    await this.#replace.discard();
    await commands.executeCommand('setContext', 'holdfast.searched', false);
  }

  getChildren(parent?: Node): Node[] {
    if (parent === undefined) {
      return (this.#search?.results.files ?? []).map((file) => ({ kind: 'file', ...file }));
    }
    return parent.kind === 'line' ? [] : parent.lines.map((line) => ({ kind: 'line', line }));
  }

  getTreeItem(node: Node): TreeItem {
    if (node.kind === 'file') {
      const { path, lines } = node;
      const item = new TreeItem(sanitize(baseName(path)), TreeItemCollapsibleState.Expanded);
      if (this.#search !== undefined)
        item.resourceUri = workspaceUri(this.#connection, this.#search.session.id, path);
      item.iconPath = ThemeIcon.File;
      const folder = path.slice(WORKSPACE.length + 1, -baseName(path).length - 1);
      item.description = `${folder === '' ? '' : `${sanitize(folder)} · `}${lines.length}`;
      return item;
    }
    const item = new TreeItem(
      resultLabel(node.line, (text) => sanitize(text, 1_000)),
      TreeItemCollapsibleState.None,
    );
    item.command = { title: 'Open', command: 'holdfast.openResult', arguments: [node] };
    return item;
  }

  /**
   * Opens a result and selects its first match. Any program can run the command, so it opens only results in the tree.
   */
  async openResult(node: unknown): Promise<void> {
    const search = this.#search;
    if (search === undefined || typeof node !== 'object' || node === null || !('line' in node)) return;
    const { line } = node;
    if (!search.results.has(line)) return;
    const [first] = line.ranges;
    const at = line.line - 1;
    await openFile(
      this.#connection,
      search.session.id,
      line.path,
      new Range(at, first?.start ?? 0, at, first?.end ?? 0),
    );
  }

  async #ask(session: Session): Promise<SearchQuery | undefined> {
    const pattern = selectedText() ?? this.#pattern;
    const asked = await this.#input.ask(`Search in ${sanitize(sessionTitle(session))}`, {
      pattern,
      options: this.#options ?? DEFAULT_OPTIONS,
    });
    if (asked === undefined) return undefined;
    this.#pattern = asked.pattern;
    this.#options = asked.options;
    return { ...asked.options, pattern: asked.pattern };
  }

  #askReplacement({ session, query }: Search): Thenable<string | undefined> {
    return window.showInputBox({
      title: `Replace “${sanitize(query.pattern, 60)}” in ${sanitize(sessionTitle(session))}`,
      value: this.#replacement,
      placeHolder: 'Replace',
      prompt: query.regex
        ? 'Press Enter to preview the changes. $1 is the first group, $& the match'
        : 'Press Enter to preview the changes',
    });
  }

  async #run(session: Session, query: SearchQuery): Promise<SearchSummary> {
    const params = searchParams(query);
    this.#stop();
    await this.#replace.discard();
    const running = new AbortController();
    const search = (this.#search = { session, query, results: new SearchResults(), running });
    await commands.executeCommand('setContext', 'holdfast.searched', true);
    const options = formatOptions(query);
    const suffix = options === '' ? '' : ` (${sanitize(options, 100)})`;
    this.#view.description = `${sanitize(query.pattern, 60)} in ${sanitize(sessionTitle(session))}${suffix}`;
    this.#view.message = 'Searching…';
    this.#changed.fire(undefined);
    void commands.executeCommand(`${VIEW}.focus`);
    try {
      const summary = await this.#request(search, params);
      if (this.#search === search) this.#view.message = this.#summary = formatSummary(summary);
      return summary;
    } catch (error) {
      const failure = HoldfastError.from(error, 'The search failed');
      if (this.#search === search) this.#view.message = sanitize(failure.sentence, 400);
      throw failure;
    } finally {
      if (this.#search === search) this.#draw();
    }
  }

  async #request(
    { session, results, running: { signal } }: Search,
    params: ReturnType<typeof searchParams>,
  ): Promise<SearchSummary> {
    const peer = await this.#connection.of(session.id).ready();
    const token = randomUUID();
    const stop = peer.onNotification('files/found', (found) => {
      if (found.token !== token || signal.aborted) return;
      results.add(found.lines);
      this.#redraw ??= setTimeout(() => this.#draw(), REDRAW_MS);
    });
    try {
      return await peer.call('files/search', { session: session.id, token, ...params }, { signal });
    } finally {
      stop();
    }
  }

  #draw(): void {
    clearTimeout(this.#redraw);
    this.#redraw = undefined;
    this.#changed.fire(undefined);
  }

  #stop(): void {
    this.#search?.running.abort();
    clearTimeout(this.#redraw);
    this.#redraw = undefined;
  }
}

/** The selected text of the active editor, if it is within one line. */
function selectedText(): string | undefined {
  const editor = window.activeTextEditor;
  if (editor === undefined || editor.selection.isEmpty || !editor.selection.isSingleLine) return undefined;
  const text = editor.document.getText(editor.selection);
  return text.length <= 1_000 ? text : undefined;
}
