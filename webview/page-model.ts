import type { Snapshot } from '../protocol/snapshots.ts';
import { Bridge } from './bridge.ts';
import { Conversation } from './conversation.ts';
import type { RequestResult } from './link.ts';
import { MAX_COPY, REQUESTS, SavedPageSchema, TO_PAGE } from './messages.ts';
import type { MessageHandlers, PageState, Picker, RequestName, Requests, ToPage } from './messages.ts';
import type { z } from 'zod';

type SavedPage = z.infer<typeof SavedPageSchema>;
export type TurnLines = NonNullable<RequestResult<Requests, 'turnLines'>['lines']>;

const INITIAL: PageState = {
  session: null,
  isDeleted: false,
  host: 'connecting',
  why: null,
  input: 'prompt',
};

/** What the page shows, and what it asks of the extension. Components draw it and call it. */
export class PageModel {
  readonly bridge = new Bridge<Requests, ToPage>(REQUESTS, TO_PAGE);
  readonly conversation = new Conversation();
  state: PageState = INITIAL;
  snapshots: readonly Snapshot[] | null = null;
  pickers: readonly Picker[] = [];
  /** What turns changed on disk, by id. */
  readonly #lines = new Map<string, TurnLines>();
  /** The last request that failed; null once it is dismissed. */
  failure: string | null = null;
  #onChange: () => void = () => undefined;
  #isScheduled = false;
  #isReading = false;
  readonly #session: string;

  /** `session`: its id. */
  constructor(session: string) {
    this.#session = session;
    this.bridge.listen(this.#handlers);
  }

  /** The draft of the prompt, which survives a reload. */
  get draft(): string {
    return this.#saved?.draft ?? '';
  }

  set draft(draft: string) {
    if (draft !== this.#saved?.draft) this.#save({ draft });
  }

  /**
   * The id to send the draft with. It stays the same while the draft does, also over a reload: a prompt that is sent again
   * because its answer was lost is the same turn.
   */
  opIdOf(draft: string): string {
    const saved = this.#saved;
    const opId = (saved?.draft === draft ? saved.opId : undefined) ?? randomId();
    this.#save({ draft, opId });
    return opId;
  }

  /** Calls `listener` at most once per frame after changes. */
  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  start(): void {
    void this.ask('ready', {});
  }

  /** Sends a request and shows its error, if it fails. Resolves with whether it succeeded. */
  async ask<N extends RequestName>(name: N, params: z.input<Requests[N]['params']>): Promise<boolean> {
    try {
      await this.bridge.request(name, params);
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
      const { lines } = await this.bridge.request('turnLines', { turnId });
      if (lines !== null) this.#lines.set(turnId, lines);
      return lines;
    } catch {
      // There is no snapshot before the turn. *See Changes* says so.
      return null;
    }
  }

  fail(error: unknown): void {
    this.failure = error instanceof Error ? error.message : String(error);
    this.changed();
  }

  dismiss(): void {
    this.failure = null;
    this.changed();
  }

  /** Reads what is before or after the window, one page at a time. */
  async readMore(direction: 'before' | 'after'): Promise<void> {
    const cursor = this.conversation.cursors[direction];
    if (cursor === null || this.#isReading) return;
    this.#isReading = true;
    try {
      const page = await this.bridge.request('read', { [direction]: cursor });
      if (direction === 'before') this.conversation.addOlder(page);
      else this.conversation.addNewer(page);
      this.changed();
    } catch (error) {
      this.fail(error);
    } finally {
      this.#isReading = false;
    }
  }

  /** Back to the end of the conversation. */
  async readEnd(): Promise<void> {
    try {
      this.conversation.begin(await this.bridge.request('read', {}));
      this.changed();
    } catch (error) {
      this.fail(error);
    }
  }

  changed(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      this.#onChange();
    });
  }

  get #saved(): SavedPage | undefined {
    return SavedPageSchema.safeParse(this.bridge.saved).data;
  }

  #save(state: Omit<SavedPage, 'session'>): void {
    this.bridge.save({ session: this.#session, ...state });
  }

  get #handlers(): MessageHandlers {
    return {
      state: (state) => {
        this.state = state;
        this.changed();
      },
      begin: (page) => {
        this.conversation.begin(page);
        this.changed();
      },
      changed: ({ batch, items, chunks }) => {
        this.conversation.change(items, chunks);
        this.changed();
        // After the frame, so that a page that cannot keep up gets fewer and larger batches.
        requestAnimationFrame(() => void this.ask('shown', { batch }));
      },
      snapshots: ({ snapshots }) => {
        this.snapshots = snapshots;
        this.changed();
      },
      pickers: ({ pickers }) => {
        this.pickers = pickers;
        this.changed();
      },
    };
  }
}

/** Not `randomUUID`, which pages have only behind TLS or on this machine. */
function randomId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
}
