import { ATTACHMENT_LIMITS } from '../protocol/attachment-names.ts';
import type { Attachment } from '../protocol/attachments.ts';
import { MAX_PROMPT, SavedPageSchema } from './messages.ts';
import type { SavedPage } from './messages.ts';

export interface DraftOptions {
  /** Of the session. */
  readonly session: string;
  /** What VS Code keeps of the page. */
  readonly read: () => unknown;
  readonly save: (page: SavedPage) => void;
  /** Sends a prompt. */
  readonly request: (params: Written & { opId: string }) => Promise<{ hasEnded: boolean }>;
}

/** What a person sends. */
export interface Written {
  readonly text: string;
  readonly attachments: Attachment[];
}

/** The prompt that a person writes, which survives a reload. */
export class Draft {
  readonly #options: DraftOptions;

  constructor(options: DraftOptions) {
    this.#options = options;
  }

  get written(): Written {
    const { draft = '', attachments = [] } = this.#saved ?? {};
    return { text: draft, attachments };
  }

  set written(written: Written) {
    if (!this.#isSaved(written)) this.#save(written);
  }

  /**
   * The id of the request stays the same while the draft does, also over a reload: a prompt that is sent again because its answer was
   * lost is the same turn. If that turn has ended meanwhile, this fails, and the draft is another prompt from then on.
   */
  async send(written: Written): Promise<void> {
    const known = this.#isSaved(written) ? this.#saved?.opId : undefined;
    const opId = known ?? randomId();
    this.#save(written, opId);
    const { hasEnded } = await this.#options.request({ ...written, opId });
    if (known === undefined || !hasEnded) return;
    this.#save(written);
    throw new Error(
      'This prompt was sent before, and its turn has ended. To have it run again, send it again.',
    );
  }

  /** A prompt that waited was taken back. If it is the draft, whose answer was lost, it is another prompt from now on. */
  forgetSent(prompt: string | null): void {
    const { written } = this;
    if (written.text !== '' && written.text === prompt) this.#save(written);
  }

  get #saved(): SavedPage | undefined {
    return SavedPageSchema.safeParse(this.#options.read()).data;
  }

  #isSaved({ text, attachments }: Written): boolean {
    const { written } = this;
    return text === written.text && JSON.stringify(attachments) === JSON.stringify(written.attachments);
  }

  /** More than a prompt can have would make all of it unreadable. */
  #save({ text: draft, attachments: all }: Written, opId?: string): void {
    const attachments = all.slice(0, ATTACHMENT_LIMITS.count);
    const { session } = this.#options;
    // With what else is kept of the page.
    this.#options.save({ ...this.#saved, session, draft: draft.slice(0, MAX_PROMPT), attachments, opId });
  }
}

/** Not `randomUUID`, which pages have only behind TLS or on this machine. */
function randomId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
}
