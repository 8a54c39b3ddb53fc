import { randomUUID } from 'node:crypto';
import { EventEmitter, Range, ThemeIcon, TreeItem, TreeItemCollapsibleState, commands, window } from 'vscode';
import type { Disposable, Event, TreeDataProvider, TreeView } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import type { SearchLine, SearchSummary } from '../../protocol/search.ts';
import type { Connection } from '../connection/connection.ts';
import { Disposal } from '../disposal.ts';
import { lastName, uriOf } from '../files/location.ts';
import { inert } from '../inert.ts';
import { titleOf } from '../sessions/listing.ts';
import { open } from './find-file.ts';

const VIEW = 'holdfast.search';
const REDRAW_MS = 100;

interface FileNode {
  readonly kind: 'file';
  readonly session: string;
  readonly path: string;
  readonly lines: SearchLine[];
}
interface LineNode {
  readonly kind: 'line';
  readonly session: string;
  readonly line: SearchLine;
}
type Node = FileNode | LineNode;

/** What a pattern is: between slashes a regular expression (`i` behind: letters of either case), else the text itself. */
export function parsePattern(text: string): {
  readonly pattern: string;
  readonly syntax: 'regex' | 'fixed';
  readonly letterCase: 'smart' | 'ignore';
} {
  const regex = /^\/(.+)\/(i?)$/.exec(text);
  if (regex?.[1] === undefined) return { pattern: text, syntax: 'fixed', letterCase: 'smart' };
  return { pattern: regex[1], syntax: 'regex', letterCase: regex[2] === 'i' ? 'ignore' : 'smart' };
}

/** Text search in a workspace, and its results as a tree that fills while the sidecar looks. */
export class TextSearch implements TreeDataProvider<Node>, Disposable {
  readonly #connection: Connection;
  readonly #owned = new Disposal();
  readonly #changed = this.#owned.own(new EventEmitter<undefined>());
  readonly #view: TreeView<Node>;
  #files = new Map<string, FileNode>();
  #running: AbortController | undefined;
  #redraw: NodeJS.Timeout | undefined;
  #last = '';

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#view = this.#owned.own(
      window.createTreeView<Node>(VIEW, { treeDataProvider: this, showCollapseAll: true }),
    );
    this.#owned.onEnd(() => this.#stop());
  }

  get onDidChangeTreeData(): Event<undefined> {
    return this.#changed.event;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** Asks for a pattern where none is given; gives how much was found. */
  async search(session: Session, given: unknown): Promise<SearchSummary | undefined> {
    const text = typeof given === 'string' ? given : await this.#ask(session);
    if (text === undefined || text === '') return undefined;
    this.#last = text;
    this.#stop();
    this.#files = new Map();
    await commands.executeCommand('setContext', 'holdfast.searched', true);
    this.#view.description = `${inert(text, 60)} in ${inert(titleOf(session))}`;
    this.#view.message = 'Searching …';
    this.#changed.fire(undefined);
    void commands.executeCommand(`${VIEW}.focus`);
    const running = (this.#running = new AbortController());
    try {
      const summary = await this.#run(session.id, text, running.signal);
      if (this.#running === running) this.#view.message = summaryText(summary);
      return summary;
    } catch (error) {
      const failure = HoldfastError.from(error, 'The search failed');
      if (this.#running === running) this.#view.message = inert(failure.sentence, 400);
      if (failure.code === 'cancelled') return undefined;
      throw failure;
    } finally {
      this.#draw();
    }
  }

  /** Forgets the results, and the view goes. */
  clear(): void {
    this.#stop();
    this.#files = new Map();
    this.#draw();
    void commands.executeCommand('setContext', 'holdfast.searched', false);
  }

  getChildren(parent?: Node): Node[] {
    if (parent === undefined) return [...this.#files.values()];
    if (parent.kind === 'line') return [];
    return parent.lines.map((line) => ({ kind: 'line', session: parent.session, line }));
  }

  getTreeItem(node: Node): TreeItem {
    if (node.kind === 'file') {
      const { path, lines } = node;
      const item = new TreeItem(inert(lastName(path)), TreeItemCollapsibleState.Expanded);
      item.resourceUri = uriOf(node.session, path);
      item.iconPath = ThemeIcon.File;
      item.description = `${inert(path.slice(0, -lastName(path).length - 1))} · ${lines.length}`;
      return item;
    }
    const { line } = node;
    const item = new TreeItem(labelOf(line), TreeItemCollapsibleState.None);
    item.description = String(line.line);
    item.command = {
      title: 'Open',
      command: 'holdfast.openResult',
      arguments: [node],
    };
    return item;
  }

  /** Shows the line of a result, the first match selected. */
  async openResult(node: unknown): Promise<void> {
    const line = this.#lineOf(node);
    if (line === undefined) return;
    const [first] = line.line.ranges;
    const at = line.line.line - 1;
    await open(line.session, line.line.path, new Range(at, first?.start ?? 0, at, first?.end ?? 0));
  }

  /** Only what is in the tree is opened: commands can be called by anybody with anything. */
  #lineOf(node: unknown): LineNode | undefined {
    if (typeof node !== 'object' || node === null || !('line' in node)) return undefined;
    for (const { lines, session } of this.#files.values()) {
      const line = lines.find((one) => one === node.line);
      if (line !== undefined) return { kind: 'line', session, line };
    }
    return undefined;
  }

  async #ask(session: Session): Promise<string | undefined> {
    return window.showInputBox({
      title: `Search in ${inert(titleOf(session))}`,
      value: this.#last,
      prompt: 'Text as it stands, or a regular expression between slashes (/x+/, /x+/i)',
    });
  }

  async #run(session: string, text: string, signal: AbortSignal): Promise<SearchSummary> {
    const peer = await this.#connection.ready();
    const token = randomUUID();
    const stop = peer.onNotification('files/found', (found) => {
      if (found.token !== token || signal.aborted) return;
      for (const line of found.lines) this.#add(session, line);
      this.#redraw ??= setTimeout(() => this.#draw(), REDRAW_MS);
    });
    try {
      return await peer.call(
        'files/search',
        { session, token, hidden: true, ...parsePattern(text) },
        { signal },
      );
    } finally {
      stop();
    }
  }

  #add(session: string, line: SearchLine): void {
    const known = this.#files.get(line.path);
    if (known !== undefined) known.lines.push(line);
    else this.#files.set(line.path, { kind: 'file', session, path: line.path, lines: [line] });
  }

  #draw(): void {
    clearTimeout(this.#redraw);
    this.#redraw = undefined;
    this.#changed.fire(undefined);
  }

  #stop(): void {
    this.#running?.abort();
    this.#running = undefined;
    clearTimeout(this.#redraw);
    this.#redraw = undefined;
  }
}

function labelOf(line: SearchLine): { label: string; highlights: [number, number][] } {
  const shown = line.preview.trimStart();
  const from = line.previewStart + line.preview.length - shown.length;
  const label = inert(shown, 1_000);
  // What had to be made visible has other columns.
  if (label !== shown) return { label, highlights: [] };
  const highlights = line.ranges
    .map(({ start, end }): [number, number] => [
      Math.max(0, start - from),
      Math.min(shown.length, end - from),
    ])
    .filter(([start, end]) => end > start);
  return { label, highlights };
}

/** How much there is, and why there may be more. */
export function summaryText({ matches, files, stopped, skipped }: SearchSummary): string {
  if (matches === 0 && stopped === null) return 'Nothing found.';
  const found = `${matches.toLocaleString('en-US')} ${matches === 1 ? 'line' : 'lines'} in ${files.toLocaleString('en-US')} ${files === 1 ? 'file' : 'files'}`;
  const more =
    stopped === 'limit'
      ? '; there are more: narrow the search'
      : stopped === 'time'
        ? '; it took too long and was ended: narrow the search'
        : '';
  const left = skipped === 0 ? '' : `; ${skipped} left out (too long, or just changed)`;
  return `${found}${more}${left}.`;
}
