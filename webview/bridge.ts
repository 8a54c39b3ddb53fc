import { EnvelopeToPageSchema, REQUESTS, SavedPageSchema, TO_PAGE } from './messages.ts';
import type { MessageHandlers, RequestName, RequestResult, Requests } from './messages.ts';
import type { z } from 'zod';

/** What VS Code gives to a webview. */
interface Host {
  postMessage(message: unknown): void;
  getState(): unknown;
  setState(state: unknown): void;
}
declare function acquireVsCodeApi(): Host;

/** The page's end of the connection to the extension. */
export class Bridge {
  readonly #host = acquireVsCodeApi();
  readonly #pending = new Map<number, (envelope: { value: unknown } | { sentence: string }) => void>();
  #next = 1;
  #session = '';

  constructor(session: string) {
    this.#session = session;
  }

  listen(handlers: MessageHandlers): void {
    window.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
      const envelope = EnvelopeToPageSchema.parse(data);
      if (envelope.kind === 'message') dispatch(handlers, envelope.name, envelope.value);
      else {
        this.#pending.get(envelope.id)?.(envelope);
        this.#pending.delete(envelope.id);
      }
    });
  }

  /** Fails with a sentence that says what was not done, why, and what to do. */
  async request<N extends RequestName>(
    name: N,
    params: z.input<Requests[N]['params']>,
  ): Promise<RequestResult<N>> {
    const id = this.#next++;
    const answer = await new Promise<{ value: unknown } | { sentence: string }>((resolve) => {
      this.#pending.set(id, resolve);
      this.#host.postMessage({ id, name, params });
    });
    if ('sentence' in answer) throw new Error(answer.sentence);
    return REQUESTS[name].result.parse(answer.value) as RequestResult<N>;
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

  get #saved(): z.infer<typeof SavedPageSchema> | undefined {
    return SavedPageSchema.safeParse(this.#host.getState()).data;
  }

  #save(state: Omit<z.infer<typeof SavedPageSchema>, 'session'>): void {
    this.#host.setState({ session: this.#session, ...state });
  }
}

function dispatch(handlers: MessageHandlers, name: string, value: unknown): void {
  if (!isMessage(name)) return;
  const handle = handlers[name] as (value: unknown) => void;
  handle(TO_PAGE[name].parse(value));
}

/** Not `randomUUID`, which pages have only behind TLS or on this machine. */
function randomId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
}

function isMessage(name: string): name is keyof MessageHandlers {
  return Object.hasOwn(TO_PAGE, name);
}
