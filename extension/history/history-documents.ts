import { EventEmitter, Uri, window, workspace } from 'vscode';
import type { Disposable, Event, TextDocumentContentProvider } from 'vscode';
import type { Session, SessionEvent } from '../../protocol/entities.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { formatEvent } from './history-text.ts';
import { formatTranscript } from './transcript-text.ts';
import type { SessionEvents } from './session-events.ts';

const SCHEME = 'holdfast-history';
/** Events that a document shows; the command line has all. */
const MOST_EVENTS = 2_000;
const REDRAW_MS = 150;

/**
 * Two ways to read what happened: every event, or what was asked and what came of it. Functions of their own: to name those of the other modules
 * here would load them, and the second bundle with them, into every window.
 */
interface Reading {
  readonly ending: string;
  readonly text: (event: SessionEvent) => string;
  readonly between: string;
}
const READINGS = {
  history: { ending: ' history.log', text: (event: SessionEvent) => formatEvent(event), between: '\n' },
  transcript: {
    ending: ' transcript.txt',
    text: (event: SessionEvent) => formatTranscript(event),
    between: '',
  },
} as const satisfies Record<string, Reading>;

interface OpenHistory {
  readonly reading: Reading;
  readonly texts: string[];
  /** A history begins with its session: without an event it is still being asked for. */
  isHere: boolean;
  left: number;
  redraw: NodeJS.Timeout | undefined;
  readonly following: Disposable;
}

/** Histories as documents that nobody can change and that go on by themselves. */
export class HistoryDocuments implements TextDocumentContentProvider, Disposable {
  readonly #events: SessionEvents;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri>());
  readonly #open = new Map<string, OpenHistory>();

  constructor(events: SessionEvents) {
    this.#events = events;
    this.#owned.add(workspace.registerTextDocumentContentProvider(SCHEME, this));
    // What was told while VS Code was still making the document it has dropped.
    this.#owned.add(
      workspace.onDidOpenTextDocument(({ uri }) => {
        if (uri.scheme === SCHEME) this.#changed.fire(uri);
      }),
    );
    this.#owned.add(
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

  async show(
    session: Session,
    reading: keyof typeof READINGS,
    how: { readonly preview: boolean; readonly preserveFocus: boolean } = {
      preview: false,
      preserveFocus: false,
    },
  ): Promise<void> {
    const title = sanitize(sessionTitle(session)).replaceAll('/', '_');
    const uri = Uri.from({
      scheme: SCHEME,
      authority: session.id,
      path: `/${title}${READINGS[reading].ending}`,
    });
    await window.showTextDocument(await workspace.openTextDocument(uri), how);
  }

  provideTextDocumentContent(uri: Uri): string {
    const key = uri.toString();
    const history = this.#open.get(key) ?? this.#follow(key, uri);
    const earlier =
      history.left === 0
        ? []
        : [`… ${history.left} earlier events: holdfast session events ${uri.authority}`];
    const text = [...earlier, ...history.texts].join(history.reading.between);
    if (text !== '') return `${text.trimStart()}\n`;
    return history.isHere ? 'Nothing has been asked of this session yet.\n' : 'Loading…\n';
  }

  #follow(key: string, uri: Uri): OpenHistory {
    const reading = uri.path.endsWith(READINGS.transcript.ending) ? READINGS.transcript : READINGS.history;
    const history: OpenHistory = {
      reading,
      texts: [],
      isHere: false,
      left: 0,
      redraw: undefined,
      following: this.#events.follow(uri.authority, 0, (event) => this.#hear(history, uri, event)),
    };
    this.#open.set(key, history);
    return history;
  }

  #hear(history: OpenHistory, uri: Uri, event: SessionEvent): void {
    const text = history.reading.text(event);
    const isNews = text !== '' || !history.isHere;
    history.isHere = true;
    if (!isNews) return;
    if (text !== '') history.texts.push(text);
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
