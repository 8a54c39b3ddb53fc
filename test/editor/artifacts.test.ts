import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';

test('results of a session are kept, listed, opened, exported, verified and deleted', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const { session } = z
      .object({ session: z.object({ id: z.string() }) })
      .parse(await home.runJson(['session', 'create', 'shell']));
    const { outcomes } = await runInExtensionHost({
      name: 'artifacts',
      open: () => ({ folder: `holdfast://${session.id}.${home.id}/` }),
      suites: ['artifacts'],
      env: {
        HOLDFAST_HOME: home.path,
        HOLDFAST_TEST_SESSION: session.id,
        HOLDFAST_TEST_AUTHORITY: `${session.id}.${home.id}`,
      },
    });
    expect(failures(outcomes)).toBe('');
  } finally {
    await home.dispose();
  }
});
