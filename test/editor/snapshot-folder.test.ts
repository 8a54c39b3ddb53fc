import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';
import { plantHostileFiles } from './hostile.ts';

const PACKAGE = {
  name: 'evil',
  scripts: { evil: 'touch /tmp/evil' },
  dependencies: { 'names-tell-something': '*' },
};

test('a window of a snapshot has the same safe settings as that of a session', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const { session } = z
      .object({ session: z.object({ id: z.string() }) })
      .parse(await home.runJson(['session', 'create', 'shell']));
    const marks = await plantHostileFiles(home, session.id);
    const script = [
      'cd /workspace',
      `echo '${JSON.stringify(PACKAGE)}' > package.json`,
      `echo '{}' > tsconfig.json`,
      'for file in gulpfile.js Gruntfile.js Jakefile.js; do echo "task()" > $file; done',
    ];
    await home.runOk(['exec', session.id, '--', 'sh', '-c', script.join('\n')]);
    const { id } = z.object({ id: z.string() }).parse(await home.runJson(['snapshot', 'create', session.id]));
    const { outcomes } = await runInExtensionHost({
      name: 'snapshot-folder',
      open: () => ({ folder: `holdfast-snapshot://${id}.${home.id}/` }),
      suites: ['snapshot-folder'],
      env: { HOLDFAST_HOME: home.path, HOLDFAST_TEST_MARKS: marks },
    });
    expect(failures(outcomes)).toBe('');
  } finally {
    await home.dispose();
  }
});
