import { Workbench } from './browser.ts';
import { CodeServer } from './code-server.ts';
import type { HostEnd, SuiteOptions } from './extension-host.ts';
import { editorPlaces } from './places.ts';
import { within } from './within.ts';

/** Runs the suite in the extension host of code-server, with its window in a browser. */
export async function runInBrowser(options: SuiteOptions): Promise<HostEnd> {
  const { codeServer, chromium, root, suite, shots } = editorPlaces();
  const server = await CodeServer.start({
    codeServer,
    developer: true,
    settings: options.settings ?? {},
    env: options.env,
  });
  try {
    const workbench = await Workbench.open({ chromium, server, shots });
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
      const code = await within(options.timeoutMs ?? 120_000, ended);
      await workbench.shot(`host-${options.name}`);
      return { code, said: server.said };
    } finally {
      await workbench.close();
    }
  } finally {
    await server.stop();
  }
}
