import { EventEmitter, Uri, window, workspace } from 'vscode';
import type { Disposable, Event, TextDocumentContentProvider } from 'vscode';
import type { Session, SessionEvent } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import { HISTORY_SCHEME } from '../files/location.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { readEventText } from './content-reader.ts';
import { formatEvent } from './format-event.ts';
import { formatTranscript } from './format-transcript.ts';
import type { SessionEvents } from './session-events.ts';

/** Events that a document shows; `holdfast session events` has all. */
const MAX_EVENTS = 2_000;
const REDRAW_MS = 150;

interface Format {
  /** How the name of a document in this format ends. */
  readonly suffix: string;
  readonly text: (event: SessionEvent, content: string | undefined) => string;
  readonly separator: string;
}
/**
 * The history shows every event; the transcript shows prompts, output, and how turns ended. Each `text` is a function
 * of its own: a reference to the imported function would load the second bundle into every window.
 */
const FORMATS = {
  history: {
    suffix: ' history.log',
    text: (event: SessionEvent, content: string | undefined) => formatEvent(event, content),
    separator: '\n',
  },
  transcript: {
    suffix: ' transcript.txt',
    text: (event: SessionEvent, content: string | undefined) => formatTranscript(event, content),
    separator: '',
  },
} as const satisfies Record<string, Format>;

interface OpenHistory {
  readonly format: Format;
  readonly texts: string[];
  /** Ends when the events so far are shown: contents are read one after the other, in the order of events. */
  shown: Promise<void>;
  /** Every session has an event: until one arrives the document is loading. */
  isLoaded: boolean;
  /** How many earlier events the document no longer shows. */
  droppedCount: number;
  redraw: NodeJS.Timeout | undefined;
  readonly subscription: Disposable;
}

/** Histories and transcripts as read-only documents that grow while the session runs. */
export class HistoryDocuments implements TextDocumentContentProvider, Disposable {
  readonly #events: SessionEvents;
  readonly #connection: Pick<Connection, 'callWithBytes'>;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri>());
  readonly #open = new Map<string, OpenHistory>();

  constructor(events: SessionEvents, connection: Pick<Connection, 'callWithBytes'>) {
    this.#events = events;
    this.#connection = connection;
    this.#owned.add(workspace.registerTextDocumentContentProvider(HISTORY_SCHEME, this));
    // VS Code ignores changes that were reported while it was creating the document.
    this.#owned.add(
      workspace.onDidOpenTextDocument(({ uri }) => {
        if (uri.scheme === HISTORY_SCHEME) this.#changed.fire(uri);
      }),
    );
    this.#owned.add(
      workspace.onDidCloseTextDocument(({ uri }) => {
        if (uri.scheme === HISTORY_SCHEME) this.#close(uri.toString());
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
    format: keyof typeof FORMATS,
    options: { readonly preview: boolean; readonly preserveFocus: boolean } = {
      preview: false,
      preserveFocus: false,
    },
  ): Promise<void> {
    const title = sanitize(sessionTitle(session)).replaceAll('/', '_');
    const uri = Uri.from({
      scheme: HISTORY_SCHEME,
      authority: session.id,
      path: `/${title}${FORMATS[format].suffix}`,
    });
    await window.showTextDocument(await workspace.openTextDocument(uri), options);
  }

  provideTextDocumentContent(uri: Uri): string {
    const key = uri.toString();
    const history = this.#open.get(key) ?? this.#follow(key, uri);
    const earlier =
      history.droppedCount === 0
        ? []
        : [`… ${history.droppedCount} earlier events: holdfast session events ${uri.authority}`];
    const text = [...earlier, ...history.texts].join(history.format.separator);
    if (text !== '') return `${text.trimStart()}\n`;
    return history.isLoaded ? 'No turn has run in this session yet.\n' : 'Loading…\n';
  }

  #follow(key: string, uri: Uri): OpenHistory {
    const format = uri.path.endsWith(FORMATS.transcript.suffix) ? FORMATS.transcript : FORMATS.history;
    const history: OpenHistory = {
      format,
      texts: [],
      shown: Promise.resolve(),
      isLoaded: false,
      droppedCount: 0,
      redraw: undefined,
      subscription: this.#events.follow(uri.authority, 0, (event) => {
        history.shown = history.shown.then(() => this.#onEvent(history, uri, event));
      }),
    };
    this.#open.set(key, history);
    return history;
  }

  /** Never rejects. */
  async #onEvent(history: OpenHistory, uri: Uri, event: SessionEvent): Promise<void> {
    if (this.#open.get(uri.toString()) !== history) return;
    const content = await readEventText(this.#connection, event).catch(
      (error: unknown) => `(${HoldfastError.from(error).message})`,
    );
    if (this.#open.get(uri.toString()) !== history) return;
    const text = history.format.text(event, content);
    const isChanged = text !== '' || !history.isLoaded;
    history.isLoaded = true;
    if (!isChanged) return;
    if (text !== '') history.texts.push(text);
    if (history.texts.length > MAX_EVENTS) {
      history.texts.shift();
      history.droppedCount += 1;
    }
    // Redraws at most once per interval, however fast events arrive.
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
    void history.subscription.dispose();
  }
}
