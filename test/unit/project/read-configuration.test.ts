import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { readConfiguration } from '../../../project/configuration/read-configuration.ts';
import { wantedConfiguration } from '../../../project/profile-text.ts';
import { ConfigFolderSchema } from '../../../protocol/agent-config.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

function write(root: string, files: Readonly<Record<string, string>>): string {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}
const at = (directory: string, folder: string, preset: string | null = null) =>
  readConfiguration({ directory, folder, preset, ownHome: directory });
async function sent(configuration: Awaited<ReturnType<typeof readConfiguration>>): Promise<string[]> {
  const found: string[] = [];
  for await (const item of configuration.items()) found.push(`${item.kind} ${item.path}`);
  return found;
}

test('a folder is laid out as HOME; sign-in files, links and git data are left out and named', async () => {
  const project = write(temporaryDirectory(), {
    'mine/.claude/CLAUDE.md': 'be brief',
    'mine/.claude/skills/a/SKILL.md': 'a',
    'mine/.claude/.credentials.json': '{}',
    'mine/other/.credentials.json.bak': '{}',
    'mine/.codex/auth.json~': '{}',
    'mine/sub/.git/config': '[core]',
    secret: 'outside',
  });
  symlinkSync('../secret', join(project, 'mine/link'));
  symlinkSync('/etc', join(project, 'mine/etc'));
  const found = await at(project, 'mine');
  expect(found.list.files.map(({ path }) => path)).toEqual([
    '.claude/CLAUDE.md',
    '.claude/skills/a/SKILL.md',
  ]);
  expect(found.list.leftOut.map(({ path }) => path).sort()).toEqual([
    '.claude/.credentials.json',
    '.codex/auth.json~',
    'etc',
    'link',
    'other/.credentials.json.bak',
    'sub/.git',
  ]);
  expect(await sent(found)).toEqual([
    'folder .claude',
    'file .claude/CLAUDE.md',
    'folder .claude/skills',
    'folder .claude/skills/a',
    'file .claude/skills/a/SKILL.md',
  ]);
});

test('~ is the files of the preset and nothing else, and follows no link', async () => {
  const home = write(temporaryDirectory(), {
    '.ssh/id_ed25519': 'key',
    '.claude/CLAUDE.md': 'a',
    '.claude/projects/x.jsonl': 'private',
    '.codex/config.toml': 'model = "o3"\n',
    'dotfiles/GEMINI.md': 'b',
  });
  symlinkSync('dotfiles', join(home, '.gemini'));
  expect((await at(home, '~', 'claude')).list.files).toEqual([{ path: '.claude/CLAUDE.md', bytes: 1 }]);
  expect((await at(home, '~', 'codex')).list.files.map(({ path }) => path)).toEqual(['.codex/config.toml']);
  expect((await at(home, '~', 'gemini')).list).toMatchObject({
    files: [],
    leftOut: [{ path: '.gemini', why: 'it is a link' }],
  });
  await expect(at(home, '~')).rejects.toMatchObject({ code: 'profile_invalid' });
});

test('a folder that is missing, a link, or too large is refused', async () => {
  const project = write(temporaryDirectory(), { 'real/a': 'x', file: 'x' });
  symlinkSync('/etc', join(project, 'away'));
  for (const folder of ['none', 'away', 'away/ssh', 'file'])
    await expect(at(project, folder)).rejects.toMatchObject({ code: 'profile_invalid' });
  for (let n = 0; n <= 2000; n += 1) writeFileSync(join(project, `real/f${n}`), '');
  await expect(at(project, 'real')).rejects.toMatchObject({
    why: expect.stringContaining('2000 files') as string,
  });
});

test('only ~ and folders inside the project can be named', () => {
  for (const folder of ['~', 'agent-home', 'a/.b'])
    expect(ConfigFolderSchema.safeParse(folder).success).toBe(true);
  for (const folder of [
    '',
    '.',
    '..',
    '../x',
    'a/../b',
    '/etc',
    '~/.ssh',
    'a//b',
    'a/',
    'a\\b',
    'a b',
    'a\0',
  ])
    expect(ConfigFolderSchema.safeParse(folder).success).toBe(false);
});

test('the client reads from holdfast.yaml itself what to send', async () => {
  const yaml = (agent: string) => wantedConfiguration(`name: a\nagent: ${agent}\n`);
  expect(await yaml('{ preset: claude, config: "~" }')).toEqual({ folder: '~', preset: 'claude' });
  expect(await yaml('{ protocol: acp, command: [a], config: mine }')).toEqual({
    folder: 'mine',
    preset: null,
  });
  expect(await yaml('{ preset: claude }')).toBeNull();
  expect(await yaml('{ config: ../.. }')).toBeNull();
  expect(await yaml('[')).toBeNull();
});
