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

test(
  'the document suites pass in a window of a session, opened by a link with the id of its home',
  { timeout: RUN_MS + 60_000 },
  async () => {
    const authority = `${session}.${home.id}`;
    const { outcomes } = await runInExtensionHost({
      name: 'documents',
      timeoutMs: RUN_MS,
      open: () => ({ folder: `holdfast://${authority}/` }),
      suites: ['moved-documents', 'conflicts', 'documents', 'transfer'],
      env: { HOLDFAST_HOME: home.path, HOLDFAST_TEST_SESSION: session, HOLDFAST_TEST_AUTHORITY: authority },
    });
    expect(failures(outcomes)).toBe('');
  },
);
