import { EnvelopeToPageSchema } from './link.ts';
import type { ListenersOf, MessageMap, NameOf, RequestMap, RequestResult } from './link.ts';
import type { z } from 'zod';

/** What VS Code gives to a webview. */
interface Host {
  postMessage(message: unknown): void;
  getState(): unknown;
  setState(state: unknown): void;
}
declare function acquireVsCodeApi(): Host;

/** A page's end of the connection to the extension. */
export class Bridge<R extends RequestMap, M extends MessageMap> {
  readonly #host = acquireVsCodeApi();
  readonly #requests: R;
  readonly #messages: M;
  readonly #pending = new Map<number, (envelope: { value: unknown } | { sentence: string }) => void>();
  #next = 1;

  constructor(requests: R, messages: M) {
    this.#requests = requests;
    this.#messages = messages;
  }

  listen(listeners: ListenersOf<M>): void {
    window.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
      const envelope = EnvelopeToPageSchema.parse(data);
      if (envelope.kind === 'message') this.#dispatch(listeners, envelope.name, envelope.value);
      else {
        this.#pending.get(envelope.id)?.(envelope);
        this.#pending.delete(envelope.id);
      }
    });
  }

  /** Fails with a sentence that says what was not done, why, and what to do. */
  async request<N extends NameOf<R>>(name: N, params: z.input<R[N]['params']>): Promise<RequestResult<R, N>> {
    const id = this.#next++;
    const answer = await new Promise<{ value: unknown } | { sentence: string }>((resolve) => {
      this.#pending.set(id, resolve);
      this.#host.postMessage({ id, name, params });
    });
    if ('sentence' in answer) throw new Error(answer.sentence);
    return this.#requests[name]?.result.parse(answer.value) as RequestResult<R, N>;
  }

  /** What VS Code keeps of the page, so that a reload restores it. */
  get saved(): unknown {
    return this.#host.getState();
  }

  save(state: object): void {
    this.#host.setState(state);
  }

  #dispatch(listeners: ListenersOf<M>, name: string, value: unknown): void {
    if (!Object.hasOwn(this.#messages, name)) return;
    const listen = listeners[name] as (value: unknown) => void;
    listen(this.#messages[name]?.parse(value));
  }
}
