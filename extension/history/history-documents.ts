import { EventEmitter, Uri, window, workspace } from 'vscode';
import type { Disposable, Event, TextDocumentContentProvider } from 'vscode';
import type { Session, SessionEvent } from '../../protocol/entities.ts';
import { Disposal } from '../disposal.ts';
import { inert } from '../inert.ts';
import { titleOf } from '../sessions/listing.ts';
import { eventText } from './history-text.ts';
import type { SessionEvents } from './session-events.ts';

const SCHEME = 'holdfast-history';
/** Events that a document shows; the command line has all. */
const MOST_EVENTS = 2_000;
const REDRAW_MS = 150;

interface OpenHistory {
  readonly texts: string[];
  left: number;
  redraw: NodeJS.Timeout | undefined;
  readonly following: Disposable;
}

/** Histories as documents that nobody can change and that go on by themselves. */
export class HistoryDocuments implements TextDocumentContentProvider, Disposable {
  readonly #events: SessionEvents;
  readonly #owned = new Disposal();
  readonly #changed = this.#owned.own(new EventEmitter<Uri>());
  readonly #open = new Map<string, OpenHistory>();

  constructor(events: SessionEvents) {
    this.#events = events;
    this.#owned.own(workspace.registerTextDocumentContentProvider(SCHEME, this));
    // What was told while VS Code was still making the document it has dropped.
    this.#owned.own(
      workspace.onDidOpenTextDocument(({ uri }) => {
        if (uri.scheme === SCHEME) this.#changed.fire(uri);
      }),
    );
    this.#owned.own(
      workspace.onDidCloseTextDocument(({ uri }) => {
        if (uri.scheme === SCHEME) this.#close(uri.toString());
      }),
    );
  }

  get onDidChange(): Event<Uri> {
    return this.#changed.event;
  }

  dispose(): void {
    for (const key of [...this.#open.keys()]) this.#close(key);
    this.#owned.dispose();
  }

  async show(session: Session): Promise<void> {
    const title = inert(titleOf(session)).replaceAll('/', '_');
    const uri = Uri.from({ scheme: SCHEME, authority: session.id, path: `/${title} history.log` });
    await window.showTextDocument(await workspace.openTextDocument(uri), { preview: false });
  }

  provideTextDocumentContent(uri: Uri): string {
    const key = uri.toString();
    const history = this.#open.get(key) ?? this.#follow(key, uri);
    const earlier =
      history.left === 0
        ? []
        : [`… ${history.left} earlier events: holdfast session events ${uri.authority}`];
    return `${[...earlier, ...history.texts].join('\n')}\n`;
  }

  #follow(key: string, uri: Uri): OpenHistory {
    const history: OpenHistory = {
      texts: [],
      left: 0,
      redraw: undefined,
      following: this.#events.follow(uri.authority, 0, (event) => this.#hear(history, uri, event)),
    };
    this.#open.set(key, history);
    return history;
  }

  #hear(history: OpenHistory, uri: Uri, event: SessionEvent): void {
    history.texts.push(eventText(event));
    if (history.texts.length > MOST_EVENTS) {
      history.texts.shift();
      history.left += 1;
    }
    // At once or a moment later, however fast events come.
    history.redraw ??= setTimeout(() => {
      history.redraw = undefined;
      this.#changed.fire(uri);
    }, REDRAW_MS);
  }

  #close(key: string): void {
    const history = this.#open.get(key);
    if (history === undefined) return;
    this.#open.delete(key);
    clearTimeout(history.redraw);
    void history.following.dispose();
  }
}
