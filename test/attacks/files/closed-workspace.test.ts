import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const CreatedSchema = z.object({ id: z.string() });

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
  const profile = shellProject('closed', 'persistence: persistent\n');
  await home.runOk(['deploy', await writeProject(home.projects, profile)]);
  await home.runOk(['session', 'create', 'closed', '--name', 'own']);
});
afterAll(() => home.dispose());

/** A turn, as the agent's command. */
const turn = (script: string): Promise<string> => home.runOk(['run', 'closed', script, '--session', 'own']);
const modeOf = async (path: string): Promise<string> => (await turn(`stat -c %a ${path}`)).trim();

test('an agent that takes all rights from /workspace locks nobody out', async () => {
  const close = 'chmod 0 /workspace';
  await turn(`echo kept > /workspace/file; ${close}`);
  expect(await home.runOk(['workspace', 'ls', 'own'])).toContain('file');
  await turn(close);
  expect(await home.runOk(['workspace', 'cat', 'own', 'file'])).toBe('kept\n');
  await turn(close);
  await home.runOk(['snapshot', 'create', 'own']);
  await turn(close);
  expect(await turn('cat file')).toBe('kept\n');
  // The next sandbox starts with it.
  await turn(close);
  await home.runOk(['session', 'stop', 'own']);
  expect(await turn('cat file; stat -c %a /workspace')).toBe('kept\n700\n');
});

test('a folder below it keeps its mode, and is in the snapshot with what it holds', async () => {
  await turn('mkdir -p sub/deep; echo hidden > sub/deep/file; chmod 0 sub/deep sub');
  const { id } = CreatedSchema.parse(await home.runJson(['snapshot', 'create', 'own']));
  expect(await modeOf('sub')).toBe('0');
  await turn('chmod 700 sub; chmod 700 sub/deep; rm -r sub');
  await home.runOk(['snapshot', 'restore', 'own', id]);
  expect(await modeOf('sub')).toBe('0');
  expect(await turn('chmod 700 sub; chmod 700 sub/deep; cat sub/deep/file; rm -r sub')).toBe('hidden\n');
});

test('a workspace that is only read-only stays so', async () => {
  await turn('chmod 555 /workspace');
  expect(await home.runOk(['workspace', 'ls', 'own'])).toContain('file');
  expect(await modeOf('/workspace')).toBe('555');
  expect((await home.run(['workspace', 'rm', 'own', 'file'])).stderr).toContain('permission_denied');
  await turn('chmod 755 /workspace');
});
