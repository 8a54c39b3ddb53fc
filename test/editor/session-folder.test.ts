import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';
import { hostileFiles, marksFolder } from './hostile.ts';

let home: TestHome;
let session: string;
let marks: string;

beforeAll(async () => {
  home = await TestHome.create();
  await home.succeed(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  ({ id: session } = z
    .object({ session: z.object({ id: z.string() }) })
    .parse(await home.json(['session', 'create', 'shell'])).session);
});
afterAll(() => home.end());

/** The agent has been there before the window is opened. */
async function hostile(): Promise<void> {
  marks = await marksFolder(home.projects);
  const folder = await writeProject(home.projects, hostileFiles(marks));
  await home.succeed(['exec', session, '--', 'sh', '-c', 'rm -rf /workspace/* /workspace/.[!.]*']);
  const files = (await readdir(folder)).map((name) => join(folder, name));
  await home.succeed(['workspace', 'put', session, ...files, '/workspace']);
}

/** Half a minute where nobody else is at work; what is wrong shows sooner, in the suites' own limits. */
const RUN_MS = 300_000;

test('in a window of a session the suites pass', { timeout: RUN_MS + 60_000 }, async () => {
  await hostile();
  const { outcomes } = await runInExtensionHost({
    name: 'session-folder',
    timeoutMs: RUN_MS,
    open: () => ({ folder: `holdfast://${session}/` }),
    suites: ['hostile-workspace', 'sessions', 'file-system', 'documents'],
    env: { HOLDFAST_HOME: home.path, HOLDFAST_TEST_SESSION: session, HOLDFAST_TEST_MARKS: marks },
  });
  expect(failures(outcomes)).toBe('');
});

test(
  'in a window of a session and a local folder the suites pass',
  { timeout: RUN_MS + 60_000 },
  async () => {
    await hostile();
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
      env: { HOLDFAST_HOME: home.path, HOLDFAST_TEST_SESSION: session, HOLDFAST_TEST_MARKS: marks },
    });
    expect(failures(outcomes)).toBe('');
  },
);
