import type { Disposable, Webview } from 'vscode';
import type { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { EnvelopeToExtensionSchema } from '../../webview/link.ts';
import type { HandlersOf, MessageMap, NameOf, RequestMap } from '../../webview/link.ts';

/** The extension's end of the connection to a page: parses what the page asks, and answers it. */
export class WebviewLink<R extends RequestMap, M extends MessageMap> implements Disposable {
  readonly #webview: Webview;
  readonly #requests: R;
  readonly #handlers: HandlersOf<R>;
  readonly #listener: Disposable;

  constructor(webview: Webview, requests: R, handlers: HandlersOf<R>) {
    this.#webview = webview;
    this.#requests = requests;
    this.#handlers = handlers;
    this.#listener = webview.onDidReceiveMessage((message) => void this.#receive(message));
  }

  send<N extends NameOf<M>>(name: N, value: z.input<M[N]>): void {
    void this.#webview.postMessage({ kind: 'message', name, value });
  }

  dispose(): void {
    this.#listener.dispose();
  }

  async #receive(message: unknown): Promise<void> {
    const envelope = EnvelopeToExtensionSchema.safeParse(message);
    if (!envelope.success || !Object.hasOwn(this.#requests, envelope.data.name)) return;
    const { id, name, params } = envelope.data;
    try {
      const shape = this.#requests[name];
      const handle = this.#handlers[name] as (params: unknown) => Promise<unknown>;
      const value = shape?.result.parse(await handle(shape.params.parse(params)));
      await this.#webview.postMessage({ kind: 'result', id, value });
    } catch (error) {
      const { sentence } = HoldfastError.from(error, 'The page could not do this');
      await this.#webview.postMessage({ kind: 'error', id, sentence });
    }
  }
}
