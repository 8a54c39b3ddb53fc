import { Bridge } from './bridge.ts';
import { Conversation } from './conversation.ts';
import { Draft } from './draft.ts';
import type { Written } from './draft.ts';
import type { RequestResult } from './link.ts';
import { MAX_COPY, REQUESTS, SavedPageSchema, TO_PAGE } from './messages.ts';
import type {
  MessageHandlers,
  PageState,
  Picker,
  Place,
  RequestName,
  Requests,
  SavedPage,
} from './messages.ts';
import { RedrawnModel } from './redrawn-model.ts';
import { timeline } from './timeline.ts';
import type { z } from 'zod';

export type TurnLines = NonNullable<RequestResult<Requests, 'turnLines'>['lines']>;

const INITIAL: PageState = {
  session: null,
  isDeleted: false,
  host: 'connecting',
  why: null,
  input: 'prompt',
};

/** What is found so close to the beginning of the window has the page before it read. */
const EDGE_ROWS = 20;

/** What the page shows, and what it asks of the extension. Components draw it and call it. */
export class PageModel extends RedrawnModel {
  readonly bridge = new Bridge();
  readonly conversation = new Conversation();
  state: PageState = INITIAL;
  pickers: readonly Picker[] = [];
  isFinding = false;
  /** Called to show a part of the page. */
  onShow: (tab: NonNullable<SavedPage['tab']>) => void = () => undefined;
  /** The row that was found, by its key; another object for each time that the view should go there. */
  found: { readonly key: string } | null = null;
  /** The row to which the view returns, and how far below the top of the view it was, in pixels. */
  returnsTo: { readonly key: string; readonly top: number } | null = null;
  /** What turns changed on disk, by id. */
  readonly #lines = new Map<string, TurnLines>();
  /** The page that is being read. */
  #reading: Promise<void> | null = null;
  /** How often a person has jumped to an item. */
  #jumps = 0;
  readonly #draft: Draft;
  readonly #session: string;

  /** `session`: its id. */
  constructor(session: string) {
    super();
    this.#session = session;
    this.#draft = new Draft({
      session,
      read: () => this.bridge.saved,
      save: (page) => this.bridge.save(page),
      request: (params) => this.request('prompt', params),
    });
    this.bridge.listen(TO_PAGE, this.#handlers);
  }

  /** The draft of the prompt, which survives a reload. */
  get draft(): Written {
    return this.#draft.written;
  }

  set draft(draft: Written) {
    this.#draft.written = draft;
  }

  /** Sends the draft. Resolves with whether the box can be emptied; if not, the page says why. */
  async send(draft: Written): Promise<boolean> {
    try {
      await this.#draft.send(draft);
      return true;
    } catch (error) {
      this.fail(error);
      return false;
    }
  }

  /** As `Draft.forgetSent`. */
  forgetSent(prompt: string | null): void {
    this.#draft.forgetSent(prompt);
  }

  /** What VS Code kept of the page. */
  get saved(): Partial<SavedPage> {
    return SavedPageSchema.safeParse(this.bridge.saved).data ?? {};
  }

  /** Has VS Code keep which part of the page is shown, because it forgets the document of a page that is hidden. */
  keep(part: Pick<Partial<SavedPage>, 'tab' | 'snapshot' | 'restore' | 'place'>): void {
    this.bridge.save({ session: this.#session, ...this.saved, ...part });
  }

  /** Shows what a restore of this snapshot would change. */
  previewRestore(snapshot: string): void {
    this.keep({ snapshot, restore: true });
    this.onShow('snapshots');
  }

  async previewRestoreBefore(turnId: string): Promise<void> {
    try {
      this.previewRestore((await this.request('snapshotBeforeTurn', { turnId })).snapshot);
    } catch (error) {
      this.fail(error);
    }
  }

  start(): void {
    void this.ask('ready', {});
  }

  /** Fails with a sentence that says what was not done, why, and what to do. */
  request<N extends RequestName>(
    name: N,
    params: z.input<Requests[N]['params']>,
  ): Promise<RequestResult<Requests, N>> {
    return this.bridge.request(REQUESTS, name, params);
  }

  /** Sends a request and shows its error, if it fails. Resolves with whether it succeeded. */
  async ask<N extends RequestName>(name: N, params: z.input<Requests[N]['params']>): Promise<boolean> {
    try {
      await this.request(name, params);
      return true;
    } catch (error) {
      this.fail(error);
      return false;
    }
  }

  /** Puts text on the clipboard. Resolves with whether it is there. */
  async copy(text: string): Promise<boolean> {
    return this.ask('copy', { text: text.slice(0, MAX_COPY) });
  }

  /** What a turn changed on disk; null where nobody knows. Asks once, or until that is known. */
  async linesOf(turnId: string): Promise<TurnLines | null> {
    const known = this.#lines.get(turnId);
    if (known !== undefined) return known;
    try {
      const { lines } = await this.request('turnLines', { turnId });
      if (lines !== null) this.#lines.set(turnId, lines);
      return lines;
    } catch {
      // There is no snapshot before the turn. *See Changes* says so.
      return null;
    }
  }

  /** Reads what is before or after the window, one page at a time. */
  async readMore(direction: 'before' | 'after'): Promise<void> {
    const cursor = this.conversation.cursors[direction];
    if (cursor === null || this.#reading !== null) return;
    this.#reading = this.#readPage(direction, cursor);
    await this.#reading;
  }

  /** Never rejects. */
  async #readPage(direction: 'before' | 'after', cursor: string): Promise<void> {
    try {
      const page = await this.request('read', { [direction]: cursor });
      if (direction === 'before') this.conversation.addOlder(page);
      else this.conversation.addNewer(page);
    } catch (error) {
      this.fail(error);
    } finally {
      this.#reading = null;
    }
    this.changed();
  }

  /** Opens the search in the conversation, or closes it. */
  find(isFinding: boolean): void {
    this.isFinding = isFinding;
    this.found = null;
    this.changed();
  }

  /** Shows an item, wherever it is in the conversation. */
  showItem(item: { readonly id: number; readonly at: number }): Promise<void> {
    return this.#goTo(item, (key) => (this.found = { key }));
  }

  /** Keeps where a person reads, by the row and how far it is below the top of the view; null at the end. */
  keepPlace(row: { readonly key: string; readonly top: number } | null): void {
    // The key of a row ends with the id of its first item; one that has no item yet is the end.
    const item = this.conversation.items.find(({ id }) => String(id) === row?.key.split(' ').at(-1));
    const place =
      row === null || item === undefined ? undefined : { id: item.id, at: item.at, top: Math.round(row.top) };
    if (JSON.stringify(place) !== JSON.stringify(this.saved.place)) this.keep({ place });
  }

  /** Has the window contain an item, and shows the row that begins with it or contains it. */
  async #goTo({ id, at }: Pick<Place, 'id' | 'at'>, show: (key: string) => void): Promise<void> {
    const { conversation } = this;
    const place = (): number => conversation.items.findIndex((item) => item.id === id);
    const mine = ++this.#jumps;
    try {
      // A page that is on its way belongs to the window of now.
      await this.#reading;
      if (this.#jumps !== mine) return;
      if (place() === -1) {
        // What comes after the place before it: the item itself is the first.
        const from = await this.request('read', { after: `${at}.${Math.max(0, id - 1)}` });
        const earlier = from.before === null ? null : await this.request('read', { before: from.before });
        // A person has gone on to another one.
        if (this.#jumps !== mine) return;
        conversation.begin(from);
        if (earlier !== null) conversation.addOlder(earlier);
      }
      show(timeline(conversation.items.slice(0, place() + 1), []).at(-1)?.key ?? '');
      this.changed();
      // The first row of the window may be on the screen already: then nothing scrolls, and nobody else asks for more.
      await this.#reading;
      if (this.#jumps === mine && place() < EDGE_ROWS) await this.readMore('before');
    } catch (error) {
      this.fail(error);
    }
  }

  /** Shows where a person read, if they have not read on from the end. Never rejects. */
  async returnToPlace(): Promise<void> {
    const { place } = this.saved;
    if (place === undefined || !this.conversation.isLoaded) return;
    await this.#goTo(place, (key) => (this.returnsTo = { key, top: place.top }));
  }

  /** Back to the end of the conversation. */
  async readEnd(): Promise<void> {
    try {
      this.conversation.begin(await this.request('read', {}));
      this.changed();
    } catch (error) {
      this.fail(error);
    }
  }

  get #handlers(): MessageHandlers {
    return {
      state: (state) => {
        this.state = state;
        this.changed();
      },
      begin: (page) => {
        this.conversation.begin(page);
        // The end came, at first or again: who reads further up stays there.
        void this.returnToPlace();
        this.changed();
      },
      changed: ({ batch, items, chunks }) => {
        this.conversation.change(items, chunks);
        this.changed();
        // After the frame, so that a page that cannot keep up gets fewer and larger batches.
        requestAnimationFrame(() => void this.ask('shown', { batch }));
      },
      pickers: ({ pickers }) => {
        this.pickers = pickers;
        this.changed();
      },
    };
  }
}
