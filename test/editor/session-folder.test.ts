import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';
import { plantHostileFiles } from './hostile.ts';

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

/** Half a minute where nobody else is at work; what is wrong shows sooner, in the suites' own limits. */
const RUN_MS = 300_000;

test('the suites pass in a window of a session', { timeout: RUN_MS + 60_000 }, async () => {
  const marks = await plantHostileFiles(home, session);
  const authority = `${session}.${home.id}`;
  const { outcomes } = await runInExtensionHost({
    name: 'session-folder',
    timeoutMs: RUN_MS,
    open: () => ({ folder: `holdfast://${authority}/` }),
    suites: ['hostile-workspace', 'links', 'sessions', 'file-system'],
    env: {
      HOLDFAST_HOME: home.path,
      HOLDFAST_TEST_SESSION: session,
      HOLDFAST_TEST_AUTHORITY: authority,
      HOLDFAST_TEST_MARKS: marks,
    },
  });
  expect(failures(outcomes)).toBe('');
});

test(
  'in a window of a session and a local folder the suites pass',
  { timeout: RUN_MS + 60_000 },
  async () => {
    const marks = await plantHostileFiles(home, session);
    const local = await writeProject(home.projects, { 'readme.txt': 'a local file\n' });
    const file = join(home.projects, 'mixed.code-workspace');
    await writeFile(
      file,
      JSON.stringify({ folders: [{ path: local }, { uri: `holdfast://${session}/`, name: 'the session' }] }),
    );
    const { outcomes } = await runInExtensionHost({
      name: 'mixed',
      timeoutMs: RUN_MS,
      open: (server) => ({ workspace: server.remote(file) }),
      suites: ['hostile-workspace', 'file-system'],
      trust: true,
      settings: { 'task.allowAutomaticTasks': 'on' },
      env: { HOLDFAST_HOME: home.path, HOLDFAST_TEST_SESSION: session, HOLDFAST_TEST_MARKS: marks },
    });
    expect(failures(outcomes)).toBe('');
  },
);

test(
  'in a window whose own workspace file names a folder that the agent can write the suites pass',
  { timeout: RUN_MS + 60_000 },
  async () => {
    const marks = await plantHostileFiles(home, session);
    const local = await writeProject(home.projects, { 'readme.txt': 'a local file\n' });
    const file = join(home.projects, 'unsafe.code-workspace');
    const folders = [{ path: local }, { uri: `holdfast://${session}/workspace`, name: 'the session' }];
    await writeFile(file, JSON.stringify({ folders }));
    const { outcomes } = await runInExtensionHost({
      name: 'unsafe',
      timeoutMs: RUN_MS,
      open: (server) => ({ workspace: server.remote(file) }),
      suites: ['hostile-workspace'],
      trust: true,
      // The person has agreed once, on this machine, that tasks may start with a folder.
      settings: { 'task.allowAutomaticTasks': 'on' },
      env: { HOLDFAST_HOME: home.path, HOLDFAST_TEST_SESSION: session, HOLDFAST_TEST_MARKS: marks },
    });
    expect(failures(outcomes)).toBe('');
  },
);
