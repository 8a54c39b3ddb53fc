import { join } from 'node:path';
import { expect, test } from 'vitest';
import { TestHome } from '../setup/test-home.ts';
import { writeProject } from '../setup/profiles.ts';
import { checkout } from './harness/editor-paths.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';

// Elsewhere the test of the runner for the desktop has the same window.
test.skipIf(process.env['HOLDFAST_TEST_VSCODE'] === undefined)(
  'in a window with a local folder the suites pass',
  async () => {
    const home = await TestHome.create();
    try {
      await home.runOk(['deploy', join(checkout().root, 'examples/counter')]);
      await home.runOk(['supervisor', 'stop']);
      const folder = await writeProject(home.projects, { 'readme.txt': 'a local file\n' });
      const { outcomes } = await runInExtensionHost({
        name: 'local-folder',
        open: (server) => ({ folder: server.remote(folder) }),
        suites: ['activation'],
        env: { HOLDFAST_HOME: home.path },
      });
      expect(failures(outcomes)).toBe('');
    } finally {
      await home.dispose();
    }
  },
);
