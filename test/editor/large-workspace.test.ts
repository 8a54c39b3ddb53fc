import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';

/** 100,000 files in 100 folders. */
const GROW = `
import os
for folder in range(100, 200):
    os.makedirs(f'/workspace/many/{folder}')
    for file in range(1000):
        os.close(os.open(f'/workspace/many/{folder}/{file}.txt', os.O_CREAT))
`;
const RUN_MS = 360_000;

test(
  'in a window of a workspace of 100,000 files little is asked',
  { timeout: RUN_MS + 60_000 },
  async () => {
    const home = await TestHome.create();
    try {
      await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
      const { session } = z
        .object({ session: z.object({ id: z.string() }) })
        .parse(await home.runJson(['session', 'create', 'shell']));
      await home.runOk(['exec', session.id, '--', 'python3', '-c', GROW]);
      const { outcomes } = await runInExtensionHost({
        name: 'large-workspace',
        timeoutMs: RUN_MS,
        open: () => ({ folder: `holdfast://${session.id}/` }),
        suites: ['round-trips'],
        env: { HOLDFAST_HOME: home.path, HOLDFAST_TEST_SESSION: session.id },
      });
      expect(failures(outcomes)).toBe('');
    } finally {
      await home.dispose();
    }
  },
);
