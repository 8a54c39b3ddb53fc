import type { z } from 'zod';
import { attachmentName } from '../../protocol/attachment-names.ts';
import { Bridge } from '../bridge.ts';
import { readInParts } from '../file-parts.ts';
import { HOME_REQUESTS, SavedHomeSchema, TO_HOME } from '../home-messages.ts';
import type {
  HomeFile,
  HomeListeners,
  HomeRequests,
  HomeSession,
  HomeState,
  LastMessage,
  Need,
  SavedHome,
} from '../home-messages.ts';
import type { NameOf } from '../link.ts';
import { RedrawnModel } from '../redrawn-model.ts';

/** Conversations that are read at a time. */
const MAX_READS = 4;

interface Words {
  /** The `seq` of the session that they belong to. */
  readonly seq: number;
  /** Null until they are read. */
  readonly value: LastMessage | null;
}

/** What the home page shows, and what it asks of the extension. Components draw it and call it. */
export class HomeModel extends RedrawnModel {
  readonly #bridge = new Bridge();
  /** Null before the extension has said anything. */
  state: HomeState | null = null;
  /** By id. */
  readonly #sessions = new Map<string, HomeSession>();
  /** Sessions that the page does not know. */
  left = 0;
  /** Files of the draft whose bytes are gone. */
  lost: ReadonlySet<string> = new Set();
  /** The session that was started here last. */
  started: string | null = null;
  readonly #words = new Map<string, Words>();
  readonly #wanted = new Set<string>();
  #reads = 0;

  constructor() {
    super();
    this.#bridge.listen(TO_HOME, this.#listeners);
  }

  /** Files that the extension has lost, as after a reload of the window, are no part of the draft any more. */
  async start(): Promise<void> {
    const { files } = this.draft;
    const answer = await this.ask('ready', { files });
    const lost = files.filter(({ upload }) => answer?.uploads.includes(upload) === false);
    if (lost.length === 0) return;
    this.lost = new Set(lost.map(({ upload }) => upload));
    this.fail('The files are gone. Attach them again.');
  }

  /** Has the extension keep a file for the first prompt. Fails with a sentence. */
  async attach(file: File): Promise<HomeFile> {
    const upload = await readInParts(file, async (part) =>
      (await this.#bridge.request(HOME_REQUESTS, 'upload', part)).isWhole ? part.upload : null,
    );
    return { upload, name: attachmentName(file.name), bytes: file.size };
  }

  /** Of one need, the latest first. */
  sessionsOf(need: Need): HomeSession[] {
    return [...this.#sessions.values()]
      .filter((session) => session.need === need)
      .sort((a, b) => (a.lastActiveAt < b.lastActiveAt ? 1 : a.lastActiveAt > b.lastActiveAt ? -1 : 0));
  }

  get count(): number {
    return this.#sessions.size;
  }

  /** As last read; undefined where that has not happened. */
  wordsOf({ id }: HomeSession): LastMessage | undefined {
    return this.#words.get(id)?.value ?? undefined;
  }

  /** For a session that is on the screen: reads its last words, if they may have changed. */
  wantWords({ id, seq }: HomeSession): void {
    if (this.#words.get(id)?.seq === seq) return;
    this.#wanted.add(id);
    this.#readNext();
  }

  /** Sends a request and shows its error, if it fails. Resolves with whether it succeeded. */
  async ask<N extends NameOf<HomeRequests>>(
    name: N,
    params: z.input<HomeRequests[N]['params']>,
  ): Promise<z.output<HomeRequests[N]['result']> | undefined> {
    try {
      return await this.#bridge.request(HOME_REQUESTS, name, params);
    } catch (error) {
      this.fail(error);
      return undefined;
    }
  }

  /** The first prompt as it is written, which survives a reload. */
  get draft(): SavedHome {
    return SavedHomeSchema.safeParse(this.#bridge.saved).data ?? { draft: '', files: [] };
  }

  set draft(saved: SavedHome) {
    this.#bridge.save(saved);
  }

  #readNext(): void {
    for (const id of this.#wanted) {
      if (this.#reads >= MAX_READS) return;
      this.#wanted.delete(id);
      const session = this.#sessions.get(id);
      if (session !== undefined) void this.#readWords(session);
    }
  }

  async #readWords({ id, seq }: HomeSession): Promise<void> {
    const before = this.#words.get(id)?.value ?? null;
    this.#words.set(id, { seq, value: before });
    this.#reads += 1;
    try {
      const value = await this.#bridge.request(HOME_REQUESTS, 'words', { session: id });
      // A later read may have been faster.
      if (this.#words.get(id)?.seq === seq) this.#words.set(id, { seq, value });
      this.changed();
    } catch {
      // The card stays without them; the state of the host says what is wrong.
    } finally {
      this.#reads -= 1;
      this.#readNext();
    }
  }

  get #listeners(): HomeListeners {
    return {
      state: (state) => {
        this.state = state;
        this.changed();
      },
      sessions: ({ isSnapshot, changed, removed, left }) => {
        if (isSnapshot) this.#sessions.clear();
        for (const id of removed) {
          this.#sessions.delete(id);
          this.#words.delete(id);
        }
        for (const session of changed) this.#sessions.set(session.id, session);
        this.left = left;
        this.changed();
      },
    };
  }
}
