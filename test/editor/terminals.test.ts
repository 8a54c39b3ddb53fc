import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';

const CHECKED =
  "persistence: persistent\nchecks:\n  compile: 'cat findings; test ! -s findings'\n  test: 'test ! -e wait || sleep 100'\n";

test('terminals, checks and the origin of lines work in a window of a session', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell', CHECKED))]);
    const { session } = z
      .object({ session: z.object({ id: z.string() }) })
      .parse(await home.runJson(['session', 'create', 'shell']));
    const { outcomes } = await runInExtensionHost({
      name: 'terminals',
      open: () => ({ folder: `holdfast://${session.id}/` }),
      suites: ['terminals', 'checks', 'check-tests', 'why-line'],
      env: { HOLDFAST_HOME: home.path, HOLDFAST_TEST_SESSION: session.id },
    });
    expect(failures(outcomes)).toBe('');
  } finally {
    await home.dispose();
  }
});
