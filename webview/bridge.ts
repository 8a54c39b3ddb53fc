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

/** A page's end of the connection to the extension. Its parts speak over it, each with a map of its own. */
export class Bridge {
  readonly #host = acquireVsCodeApi();
  readonly #hears = new Map<string, (value: unknown) => void>();
  readonly #pending = new Map<number, (envelope: { value: unknown } | { sentence: string }) => void>();
  #next = 1;

  constructor() {
    window.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
      const envelope = EnvelopeToPageSchema.parse(data);
      if (envelope.kind === 'message') this.#hears.get(envelope.name)?.(envelope.value);
      else {
        this.#pending.get(envelope.id)?.(envelope);
        this.#pending.delete(envelope.id);
      }
    });
  }

  listen<M extends MessageMap>(messages: M, listeners: ListenersOf<M>): void {
    for (const [name, shape] of Object.entries(messages)) {
      const hear = listeners[name] as (value: unknown) => void;
      this.#hears.set(name, (value) => hear(shape.parse(value)));
    }
  }

  /** Resolves with the result, which is parsed. Fails with a sentence that says what was not done, why, and what to do. */
  async request<R extends RequestMap, N extends NameOf<R>>(
    requests: R,
    name: N,
    params: z.input<R[N]['params']>,
  ): Promise<RequestResult<R, N>> {
    const id = this.#next++;
    const answer = await new Promise<{ value: unknown } | { sentence: string }>((resolve) => {
      this.#pending.set(id, resolve);
      this.#host.postMessage({ id, name, params });
    });
    if ('sentence' in answer) throw new Error(answer.sentence);
    return requests[name]?.result.parse(answer.value) as RequestResult<R, N>;
  }

  /** What VS Code keeps of the page, so that a reload restores it. */
  get saved(): unknown {
    return this.#host.getState();
  }

  save(state: object): void {
    this.#host.setState(state);
  }
}
