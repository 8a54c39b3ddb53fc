import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { TestHome } from '../setup/test-home.ts';
import { writeProject } from '../setup/profiles.ts';
import { runInExtensionHost } from './harness/extension-host.ts';
import { checkout } from './harness/editor-paths.ts';

// The runner is what is tested here; with VS Code for the desktop itself every other file of this folder tests it.
test.skipIf(process.env['HOLDFAST_TEST_VSCODE'] !== undefined)(
  'the runner for VS Code on the desktop runs the suites and tells how they went',
  async () => {
    const home = await TestHome.create();
    try {
      const folder = await writeProject(home.projects, { 'readme.txt': 'a local file\n' });
      const program = join(home.projects, 'code');
      const standIn = join(import.meta.dirname, 'harness/desktop-stand-in.ts');
      await writeFile(program, `#!/bin/sh\nexec "${process.execPath}" "${standIn}" "$@"\n`);
      await chmod(program, 0o755);
      vi.stubEnv('HOLDFAST_TEST_VSCODE', program);
      const options = {
        name: 'desktop',
        open: (to: { remote(path: string): string }) => ({ folder: to.remote(folder) }),
        suites: ['activation'],
        env: { HOLDFAST_HOME: home.path },
      };

      // One of them needs a profile that is not there yet.
      const { outcomes } = await runInExtensionHost(options);
      expect(outcomes.map(({ state }) => state)).toEqual(['passed', 'passed', 'passed', 'failed']);

      await home.runOk(['deploy', join(checkout().root, 'examples/counter')]);
      await home.runOk(['supervisor', 'stop']);
      const again = await runInExtensionHost(options);
      expect(again.outcomes.map(({ state }) => state)).toEqual(['passed', 'passed', 'passed', 'passed']);

      await writeFile(program, '#!/bin/sh\necho no display >&2\nexit 7\n');
      await expect(runInExtensionHost(options)).rejects.toThrow(/the suites ended with 7.*no display/s);
    } finally {
      await home.dispose();
    }
  },
);
