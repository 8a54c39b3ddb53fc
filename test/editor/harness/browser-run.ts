import type { Page } from 'playwright-core';
import { Workbench } from './browser.ts';
import { CodeServer } from './code-server.ts';
import type { HostExit, SuiteOptions } from './extension-host.ts';
import { editorPaths } from './editor-paths.ts';
import { within } from './within.ts';

/** Presses the button where VS Code shows it, as long as the window is there. */
async function trust(page: Page): Promise<void> {
  const button = page.locator('.workspace-trust-editor .monaco-button').getByText('Trust', { exact: true });
  // The window may go without having asked.
  await button
    .first()
    .click({ timeout: 0 })
    .catch(() => undefined);
}

/** Runs the suite in the extension host of code-server, with its window in a browser. */
export async function runInBrowser(options: SuiteOptions): Promise<HostExit> {
  const { codeServer, chromium, root, suite, screenshots } = editorPaths();
  const server = await CodeServer.start({
    codeServer,
    developer: true,
    settings: options.settings ?? {},
    env: { ...options.env, ...(options.trust === true ? { HOLDFAST_TEST_TRUST: '1' } : {}) },
  });
  try {
    const workbench = await Workbench.open({ chromium, server, shots: screenshots });
    try {
      const { page } = workbench;
      const ended = new Promise<number>((resolve, reject) => {
        page.exposeFunction('codeAutomationExit', (code: number) => resolve(code)).catch(reject);
        page.exposeFunction('codeAutomationLog', () => undefined).catch(reject);
      });
      const opening = await options.open(server);
      await page.goto(
        server.url({
          ...opening,
          payload: [
            ['extensionDevelopmentPath', server.remote(root)],
            ['extensionTestsPath', server.remote(suite)],
            ['skipWelcome', 'true'],
            ...(opening.payload ?? []),
          ],
        }),
      );
      if (options.trust === true) void trust(page);
      const code = await within(options.timeoutMs ?? 240_000, ended);
      await workbench.screenshot(`host-${options.name}`);
      return { code, output: server.output };
    } finally {
      await workbench.close();
    }
  } finally {
    await server.stop();
  }
}
