import { SavedPageSchema } from './messages.ts';
import type { SavedPage } from './messages.ts';

export interface DraftOptions {
  /** Of the session. */
  readonly session: string;
  /** What VS Code keeps of the page. */
  readonly read: () => unknown;
  readonly save: (page: SavedPage) => void;
  /** Sends a prompt. */
  readonly request: (params: { text: string; opId: string }) => Promise<{ hasEnded: boolean }>;
}

/** The prompt that a person writes, which survives a reload. */
export class Draft {
  readonly #options: DraftOptions;

  constructor(options: DraftOptions) {
    this.#options = options;
  }

  get text(): string {
    return this.#saved?.draft ?? '';
  }

  set text(draft: string) {
    if (draft !== this.#saved?.draft) this.#save({ draft });
  }

  /**
   * The id of the request stays the same while the draft does, also over a reload: a prompt that is sent again because its answer was
   * lost is the same turn. If that turn has ended meanwhile, this fails, and the draft is another prompt from then on.
   */
  async send(draft: string): Promise<void> {
    const saved = this.#saved;
    const known = saved?.draft === draft ? saved.opId : undefined;
    const opId = known ?? randomId();
    this.#save({ draft, opId });
    const { hasEnded } = await this.#options.request({ text: draft, opId });
    if (known === undefined || !hasEnded) return;
    this.#save({ draft });
    throw new Error(
      'This prompt was sent before, and its turn has ended. To have it run again, send it again.',
    );
  }

  /** A prompt that waited was taken back. If it is the draft, whose answer was lost, it is another prompt from now on. */
  forgetSent(prompt: string | null): void {
    const draft = this.text;
    if (draft !== '' && draft === prompt) this.#save({ draft });
  }

  get #saved(): SavedPage | undefined {
    return SavedPageSchema.safeParse(this.#options.read()).data;
  }

  #save(state: Omit<SavedPage, 'session'>): void {
    const { tab, snapshot } = this.#saved ?? {};
    this.#options.save({ session: this.#options.session, tab, snapshot, ...state });
  }
}

/** Not `randomUUID`, which pages have only behind TLS or on this machine. */
function randomId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
}
