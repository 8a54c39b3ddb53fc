import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import type { Browser, Page } from 'playwright-core';
import type { CodeServer } from './code-server.ts';

// Continuous integration runs as root, where Chromium's own sandbox cannot be had.
const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // Not by looking at each request, which would switch the cache off.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
];

/** A browser whose pages reach this machine only. */
export class Workbench {
  readonly page: Page;
  readonly #browser: Browser;
  readonly #shots: string;

  private constructor(browser: Browser, page: Page, shots: string) {
    this.#browser = browser;
    this.page = page;
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
      // Without a locale the browser opens no file whose name is not ASCII.
      env: { ...process.env, LC_ALL: 'C.UTF-8' },
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
      const page = await context.newPage();
      // A workbench on a busy machine is slow, not broken; what hangs is told by the time of the test.
      page.setDefaultTimeout(60_000);
      await mkdir(options.shots, { recursive: true });
      return new Workbench(browser, page, options.shots);
    } catch (error) {
      await browser.close();
      throw error;
    }
  }

  /** `height`: of the top part that the picture shows, pixels; all of it if it is not given. */
  async screenshot(name: string, height?: number): Promise<void> {
    const { width } = this.page.viewportSize() ?? { width: 0 };
    await this.page.screenshot({
      path: join(this.#shots, `${name}.png`),
      ...(height === undefined ? {} : { clip: { x: 0, y: 0, width, height } }),
    });
  }

  async close(): Promise<void> {
    await this.#browser.close();
  }
}
