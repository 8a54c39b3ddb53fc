import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import type { CodeServer } from './code-server.ts';

// Continuous integration runs as root, where Chromium's own sandbox cannot be had.
const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** A browser whose pages reach this machine only. */
export class Workbench {
  readonly page: Page;
  readonly #browser: Browser;
  /** Hosts outside that the page asked for in vain. */
  readonly blocked: ReadonlySet<string>;
  readonly #shots: string;

  private constructor(browser: Browser, page: Page, blocked: ReadonlySet<string>, shots: string) {
    this.#browser = browser;
    this.page = page;
    this.blocked = blocked;
    this.#shots = shots;
  }

  /** `shots`: the folder for pictures. */
  static async open(options: {
    readonly chromium: string;
    readonly server: CodeServer;
    readonly shots: string;
    readonly colorScheme?: 'dark' | 'light';
  }): Promise<Workbench> {
    const browser = await chromium.launch({
      executablePath: options.chromium,
      headless: true,
      args: ARGUMENTS,
    });
    try {
      const context = await browser.newContext({
        viewport: { width: 1400, height: 900 },
        colorScheme: options.colorScheme ?? 'dark',
      });
      await context.grantPermissions(['clipboard-read', 'clipboard-write'], {
        origin: options.server.origin,
      });
      const blocked = await keepInside(context);
      const page = await context.newPage();
      // A workbench on a busy machine is slow, not broken; what hangs is told by the time of the test.
      page.setDefaultTimeout(60_000);
      await mkdir(options.shots, { recursive: true });
      return new Workbench(browser, page, blocked, options.shots);
    } catch (error) {
      await browser.close();
      throw error;
    }
  }

  async shot(name: string): Promise<void> {
    await this.page.screenshot({ path: join(this.#shots, `${name}.png`) });
  }

  async close(): Promise<void> {
    await this.#browser.close();
  }
}

async function keepInside(context: BrowserContext): Promise<ReadonlySet<string>> {
  const blocked = new Set<string>();
  const isOutside = ({ protocol, hostname }: URL): boolean =>
    /^(https?|wss?):$/.test(protocol) && hostname !== '127.0.0.1' && hostname !== 'localhost';
  await context.route(isOutside, (route) => {
    blocked.add(new URL(route.request().url()).host);
    return route.abort();
  });
  return blocked;
}
