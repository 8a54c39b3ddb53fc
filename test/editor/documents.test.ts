import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';

const RUN_MS = 300_000;

let home: TestHome;
let session: string;

beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  ({ id: session } = z
    .object({ session: z.object({ id: z.string() }) })
    .parse(await home.runJson(['session', 'create', 'shell'])).session);
});
afterAll(() => home.dispose());

test('the document suites pass in a window of a session', { timeout: RUN_MS + 60_000 }, async () => {
  const { outcomes } = await runInExtensionHost({
    name: 'documents',
    timeoutMs: RUN_MS,
    open: () => ({ folder: `holdfast://${session}/` }),
    suites: ['moved-documents', 'conflicts', 'documents', 'transfer'],
    env: { HOLDFAST_HOME: home.path, HOLDFAST_TEST_SESSION: session },
  });
  expect(failures(outcomes)).toBe('');
});
