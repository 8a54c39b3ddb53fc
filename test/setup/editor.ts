import { join } from 'node:path';
import { build } from 'esbuild';
import { packageExtension } from '../../scripts/setup/package.mjs';
import { Progress } from '../../scripts/setup/progress.mjs';
import { ensureEditor } from '../../scripts/setup/vscode.mjs';
import { installExtension } from '../editor/harness/extensions-folder.ts';
import { checkout } from '../editor/harness/editor-paths.ts';

const SHARED = Symbol.for('holdfast.test.editor');
const place = globalThis as typeof globalThis & { [SHARED]?: Promise<void> | undefined };

/** Before the suites that need VS Code: ensures VS Code and a browser, and builds the suite for the extension host and the .vsix. */
export default async function setup(): Promise<void> {
  await (place[SHARED] ??= prepare());
}

async function prepare(): Promise<void> {
  const progress = new Progress();
  // In a run with VS Code for the desktop, scripts/test-electron.mjs has ensured it already.
  let server: string | undefined;
  if (process.env['HOLDFAST_TEST_VSCODE'] === undefined) {
    const { codeServer, chromium } = await progress.step(
      'VS Code and Chromium',
      ensureEditor,
      ({ installed }) => (installed ? 'installed' : 'there'),
    );
    // The workers of the test runner start later and inherit them.
    process.env['HOLDFAST_TEST_CODE_SERVER'] = codeServer;
    server = codeServer;
    process.env['HOLDFAST_TEST_CHROMIUM'] = chromium;
  }
  const { root, suite, vsix, extensions } = checkout();
  await progress.step('suite for the extension host', async () => {
    await build({
      absWorkingDir: root,
      entryPoints: [join(root, 'test/editor/suite/index.ts')],
      outfile: suite,
      bundle: true,
      platform: 'node',
      target: 'node22',
      format: 'cjs',
      sourcemap: 'inline',
      // Mocha loads its parts by path, so it stays in node_modules.
      external: ['vscode', 'mocha'],
      logLevel: 'warning',
    });
  });
  await progress.step('package', async () => {
    await packageExtension(vsix);
    if (server !== undefined) await installExtension(server, vsix, extensions);
  });
}
