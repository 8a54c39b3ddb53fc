import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, expect } from 'vitest';
import { z } from 'zod';
import { pageDocument } from '../../../extension/page/page-document.ts';
import { HOME_REQUESTS, TO_HOME } from '../../../webview/home-messages.ts';
import type { HomeRequests, ToHome } from '../../../webview/home-messages.ts';
import { EnvelopeToExtensionSchema } from '../../../webview/link.ts';
import type { MessageMap, NameOf, RequestMap } from '../../../webview/link.ts';
import { LATE_REQUESTS, TO_LATE } from '../../../webview/late-messages.ts';
import type { LateRequests, ToLate } from '../../../webview/late-messages.ts';
import { REQUESTS, TO_PAGE } from '../../../webview/messages.ts';
import type { Requests, ToPage } from '../../../webview/messages.ts';
import axe from 'axe-core';
import { THEMES } from './themes.ts';
import type { Theme } from './themes.ts';

const ORIGIN = 'http://page.test';
const BUNDLE = join(import.meta.dirname, '../../../dist/webview');
const TYPES: Readonly<Record<string, string>> = {
  js: 'text/javascript',
  css: 'text/css',
  ttf: 'font/ttf',
};

const FaultsSchema = z.object({
  violations: z.array(
    z.object({
      id: z.string(),
      impact: z.string().nullable(),
      nodes: z.array(z.object({ html: z.string(), failureSummary: z.string().optional() })),
    }),
  ),
});

type Answers<R extends RequestMap> = Readonly<Partial<Record<NameOf<R>, (params: unknown) => unknown>>>;

/** A page: its bundle in `dist/webview`, and what it says and hears. */
interface Kind<R extends RequestMap, M extends MessageMap> {
  readonly bundle: string;
  readonly session?: string;
  readonly requests: R;
  readonly messages: M;
}

interface Options<R extends RequestMap> {
  readonly chromium: string;
  readonly theme?: Theme;
  readonly width?: number;
  readonly height?: number;
  readonly reducedMotion?: boolean;
  readonly answers?: Answers<R>;
}

/** One for the tests of a file; each page has a context of its own. */
let browser: Promise<Browser> | undefined;
afterAll(async () => {
  await (await browser)?.close();
});

/** The bundle of a page in a browser, with this test in the place of the extension. */
export class PageHarness<
  R extends RequestMap = Requests & LateRequests,
  M extends MessageMap = ToPage & ToLate,
> {
  readonly page: Page;
  /** What the page asked for, in order. */
  readonly requests: { readonly name: string; readonly params: unknown }[] = [];
  /** What the policy refused, addresses outside of the bundle, and errors of scripts. */
  readonly violations: string[] = [];
  readonly #context: BrowserContext;
  readonly #kind: Kind<R, M>;
  readonly #answers: Answers<R>;
  #onReady: () => void = () => undefined;

  private constructor(context: BrowserContext, page: Page, kind: Kind<R, M>, answers: Answers<R>) {
    this.#context = context;
    this.page = page;
    this.#kind = kind;
    this.#answers = answers;
  }

  /** The session page. Requests without an answer get an empty result. An answer that throws is an error. */
  static open(options: Options<Requests & LateRequests>): Promise<PageHarness> {
    const session = 'ses-aaaaaaaaaaaaaaaa';
    return PageHarness.#open(
      {
        bundle: 'session-page',
        session,
        requests: { ...REQUESTS, ...LATE_REQUESTS },
        messages: { ...TO_PAGE, ...TO_LATE },
      },
      options,
    );
  }

  /** The home page. */
  static openHome(options: Options<HomeRequests>): Promise<PageHarness<HomeRequests, ToHome>> {
    return PageHarness.#open({ bundle: 'home-page', requests: HOME_REQUESTS, messages: TO_HOME }, options);
  }

  static async #open<R extends RequestMap, M extends MessageMap>(
    kind: Kind<R, M>,
    options: Options<R>,
  ): Promise<PageHarness<R, M>> {
    const { theme = 'dark', width = 900, height = 900 } = options;
    browser ??= chromium.launch({
      executablePath: options.chromium,
      // Without a locale the browser opens no file whose name is not ASCII.
      env: { ...process.env, LC_ALL: 'C.UTF-8' },
      headless: true,
      args: ['--no-sandbox', '--disable-gpu', '--host-resolver-rules=MAP * ~NOTFOUND'],
    });
    const context = await (
      await browser
    ).newContext({
      viewport: { width, height },
      reducedMotion: options.reducedMotion === true ? 'reduce' : 'no-preference',
    });
    const page = await context.newPage();
    const harness = new PageHarness<R, M>(context, page, kind, (options.answers ?? {}) as Answers<R>);
    page.on('pageerror', (error) => harness.violations.push(`error: ${error.message}`));
    await page.route('**/*', async (route) => {
      const url = new URL(route.request().url());
      if (url.origin === ORIGIN && url.pathname === '/') {
        await route.fulfill({ contentType: 'text/html', body: harness.#document() });
        return;
      }
      const name = url.pathname.slice(1);
      const type = TYPES[name.slice(name.lastIndexOf('.') + 1)];
      if (url.origin !== ORIGIN || type === undefined || name.includes('/')) {
        harness.violations.push(`request: ${url.href}`);
        await route.abort();
        return;
      }
      await route.fulfill({ contentType: type, body: await readFile(join(BUNDLE, name)) });
    });
    await page.exposeFunction('fromPage', (message: unknown) => void harness.#receive(message));
    await page.exposeFunction('violated', (what: string) => void harness.violations.push(what));
    await page.addInitScript({ content: browserScript(theme) });
    await harness.#load(() => page.goto(`${ORIGIN}/`));
    return harness;
  }

  async reload(): Promise<void> {
    await this.#load(() => this.page.reload());
  }

  /** Sends a message as the extension does. */
  async send<N extends NameOf<M>>(name: N, value: z.input<M[N]>): Promise<void> {
    this.#kind.messages[name]?.parse(value);
    await this.#post({ kind: 'message', name, value });
  }

  /** Resolves when the page has drawn what it was sent. */
  async drawn(): Promise<void> {
    await this.page.evaluate(
      'new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))',
    );
  }

  /** What people with assistive technology would stumble over: rules of axe-core, and the elements that break them. */
  async faults(): Promise<string[]> {
    await this.drawn();
    // Evaluated, because the policy of the page lets no script in.
    await this.page.evaluate(axe.source);
    const found: unknown = await this.page.evaluate(`axe.run(document, { resultTypes: ['violations'] })`);
    return FaultsSchema.parse(found)
      .violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .flatMap(({ id, nodes }) =>
        nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
      );
  }

  /** Closes the page, and fails if it had a serious fault of accessibility or did what it must not. */
  async closeWithoutFaults(): Promise<void> {
    const faults = await this.faults();
    await this.close();
    expect(faults).toEqual([]);
    expect(this.violations).toEqual([]);
  }

  async close(): Promise<void> {
    await this.#context.close();
  }

  async #load(load: () => Promise<unknown>): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#onReady = () => resolve(undefined);
    await load();
    await promise;
  }

  #document(): string {
    const { bundle, session } = this.#kind;
    return pageDocument({
      source: ORIGIN,
      script: `${ORIGIN}/${bundle}.js`,
      style: `${ORIGIN}/${bundle}.css`,
      nonce: 'dGVzdA==',
      title: 'Page',
      ...(session === undefined ? {} : { session }),
    });
  }

  async #receive(message: unknown): Promise<void> {
    const { id, name, params } = EnvelopeToExtensionSchema.parse(message);
    const shape = this.#kind.requests[name];
    if (shape === undefined) throw new Error(`The page asked for ${name}`);
    const parsed = shape.params.parse(params);
    this.requests.push({ name, params: parsed });
    if (name === 'ready') this.#onReady();
    try {
      const value = (await this.#answers[name as NameOf<R>]?.(parsed)) ?? {};
      await this.#post({ kind: 'result', id, value });
    } catch (error) {
      await this.#post({ kind: 'error', id, sentence: (error as Error).message });
    }
  }

  async #post(message: unknown): Promise<void> {
    await this.page
      .evaluate(`window.postMessage(${JSON.stringify(message)}, '*')`)
      .catch((error: unknown) => {
        if (!this.page.isClosed()) throw error;
      });
  }
}

/** What VS Code gives to a page, and a report of what its policy refuses. */
function browserScript(theme: Theme): string {
  const { variables, kind } = THEMES[theme];
  return `
    globalThis.acquireVsCodeApi = () => ({
      postMessage: (message) => void fromPage(message),
      // As in VS Code, it is there again after a reload.
      getState: () => JSON.parse(sessionStorage.getItem('state') ?? 'null') ?? undefined,
      setState: (next) => sessionStorage.setItem('state', JSON.stringify(next)),
    });
    document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) => {
      void violated('policy: ' + violatedDirective + ' ' + blockedURI);
    });
    document.addEventListener('DOMContentLoaded', () => {
      document.body.classList.add(${JSON.stringify(kind)});
      for (const [name, value] of Object.entries(${JSON.stringify(variables)})) {
        document.documentElement.style.setProperty(name, value);
      }
    });
  `;
}
