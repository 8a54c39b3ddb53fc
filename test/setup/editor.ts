import { join } from 'node:path';
import { build } from 'esbuild';
import { packageExtension } from '../../scripts/setup/package.mjs';
import { Progress } from '../../scripts/setup/progress.mjs';
import { ensureEditor } from '../../scripts/setup/vscode.mjs';
import { installExtension } from '../editor/harness/extensions-folder.ts';
import { checkout } from '../editor/harness/editor-paths.ts';

const SHARED = Symbol.for('holdfast.test.editor');
const place = globalThis as typeof globalThis & { [SHARED]?: Promise<void> | undefined };

/** Before the suites that need an editor: VS Code and a browser are here, the suite for its extension host and the .vsix are built. */
export default async function setup(): Promise<void> {
  await (place[SHARED] ??= prepare());
}

async function prepare(): Promise<void> {
  const progress = new Progress();
  // Where the suites run in VS Code for the desktop, that one is there already (scripts/test-electron.mjs).
  let server: string | undefined;
  if (process.env['HOLDFAST_TEST_VSCODE'] === undefined) {
    const { codeServer, chromium } = await progress.step(
      'VS Code and Chromium',
      ensureEditor,
      ({ installed }) => (installed ? 'installed' : 'there'),
    );
    // Workers of the test runner are started later and inherit them.
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
      // Mocha finds its parts by path, so it stays in node_modules.
      external: ['vscode', 'mocha'],
      logLevel: 'warning',
    });
  });
  await progress.step('package', async () => {
    await packageExtension(vsix);
    if (server !== undefined) await installExtension(server, vsix, extensions);
  });
}
