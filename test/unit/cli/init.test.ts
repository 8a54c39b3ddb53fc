import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runToEnd } from '../../fixtures/cli/cli-run.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-init-'));
});
afterEach(() => rm(folder, { recursive: true }));

const init = (...words: string[]) => runToEnd(['init', ...words], { home: '/nonexistent/home' });

test('init writes a profile with the agent, and says what a deploy installs', async () => {
  await writeFile(join(folder, 'package.json'), '{"dependencies": {"preact": "10.2.0", "own": "../own"}}');
  const { code: exitCode, stdout, stderr } = await init(folder, '--preset', 'opencode', '--name', 'helper');
  expect(exitCode, stderr).toBe(0);
  expect(stdout).toContain('npm, from package.json: preact@10.2.0');
  expect(stdout).toContain('left out of package.json, because it is no name with a version: own@../own');
  expect(stderr).toContain('holdfast secret set ANTHROPIC_API_KEY');
  const text = await readFile(join(folder, 'holdfast.yaml'), 'utf8');
  expect(text).toMatch(/^name: helper\n[^]*\nagent: \{ preset: opencode \}\n/);

  const again = await init(folder, '--preset', 'claude');
  expect(again.code).toBe(2);
  expect(again.stderr).toContain('exists already');
  expect(await readFile(join(folder, 'holdfast.yaml'), 'utf8')).toBe(text);
});

test('init --json names the file, the secret and the packages', async () => {
  const project = join(folder, 'My App');
  await mkdir(project);
  const { stdout } = await init(project, '--preset', 'gemini', '--json');
  expect(JSON.parse(stdout)).toMatchObject({
    file: join(project, 'holdfast.yaml'),
    profile: 'my-app',
    preset: 'gemini',
    secret: 'GEMINI_API_KEY',
    packages: { npm: [expect.stringContaining('@google/gemini-cli@')] },
  });
});

test.each([
  [[], 2, 'say which agent: --preset claude|'],
  [['--preset', 'nobody'], 2, 'no agent is called nobody'],
  [['--preset', 'none', '--name', '../x'], 2, 'cannot be the name of a profile'],
])('init %j writes nothing', async (words, expected, message) => {
  const { code: exitCode, stderr } = await init(folder, ...words);
  expect([exitCode, stderr]).toEqual([expected, expect.stringContaining(message)]);
  expect(await readdir(folder)).toEqual([]);
});

test('a package.json that cannot be read, or no folder, is an error and no file', async () => {
  await writeFile(join(folder, 'package.json'), '{');
  expect(await init(folder, '--preset', 'qwen')).toMatchObject({ code: 1 });
  expect(await readdir(folder)).toEqual(['package.json']);
  const { code: exitCode, stderr } = await init(join(folder, 'nothing'), '--preset', 'none');
  expect([exitCode, stderr]).toEqual([1, expect.stringContaining('There is no folder')]);
});
