import { readdir, readFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { ConfigurationListSchema } from '../../protocol/agent-config.ts';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const DeployedSchema = z.object({
  unchanged: z.boolean(),
  configuration: ConfigurationListSchema.nullable(),
  profile: z.object({ files: z.number() }),
});
const KEY = 'a1B2c3D4e5F6a7B8c9D0e1F2';
const SETTINGS = { mcpServers: { search: { command: 'npx', env: { TOKEN: KEY, DEBUG: '1' } } } };
const CODEX =
  '[mcp_servers.web]\nurl = "https://example.com/"\n[mcp_servers.web.http_headers]\nAuthorization = "Bearer ' +
  KEY +
  '"\n';

const FILES: Readonly<Record<string, string>> = {
  'mine/.claude/CLAUDE.md': 'be brief\n',
  'mine/.claude/settings.json': JSON.stringify(SETTINGS),
  'mine/.claude/.credentials.json': JSON.stringify({ token: KEY }),
  'mine/.codex/config.toml': CODEX,
  'mine/.env': `TOKEN=${KEY}\n`,
  'mine/.bashrc': 'echo mine\n',
  'code.txt': 'code\n',
};

describe("a person's configuration (agent.config)", () => {
  let home: TestHome;
  beforeAll(async () => {
    home = await TestHome.create();
  });
  afterAll(async () => {
    await home.dispose();
  });
  const project = (name: string, files = FILES): Promise<string> =>
    writeProject(home.projects, {
      'holdfast.yaml':
        `name: ${name}\npersistence: persistent\n` +
        'agent: { protocol: command, command: [sh], state: [.claude], config: mine }\n',
      ...files,
    });
  const read =
    'cd; cat .claude/CLAUDE.md .claude/settings.json .codex/config.toml .bashrc 2>&1; ls -A . .claude';

  test('is listed, and is what HOME begins with in every new sandbox; what the agent keeps stays its own', async () => {
    const folder = await project('config');
    const shown = await home.run(['deploy', folder]);
    expect(shown.code).toBe(0);
    expect(shown.stderr).toContain('.claude/CLAUDE.md');
    expect(shown.stderr).toContain('left out: .claude/.credentials.json');
    expect(shown.stderr).toContain('left out: .claude/settings.json: mcpServers.search.env.TOKEN');
    expect(shown.stderr + shown.stdout).not.toContain(KEY);

    const found = await home.runOk([
      'run',
      'config',
      `${read}; echo changed > .claude/CLAUDE.md; rm .codex/config.toml`,
    ]);
    expect(found).toContain('be brief');
    expect(found).toContain('"DEBUG": "1"');
    expect(found).toContain('https://example.com/');
    expect(found).toContain('echo mine');
    expect(found).not.toContain(KEY);
    expect(found).not.toMatch(/\.credentials\.json|\.env/);

    await home.runOk(['session', 'stop', 'config/default']);
    const again = await home.runOk(['run', 'config', read]);
    expect(again).toContain('changed');
    expect(again).not.toContain('be brief');
    expect(again).toContain('https://example.com/');
  });

  test('is no part of the code, the workspace, or a snapshot; its keys are nowhere in the home', async () => {
    const folder = await project('hidden');
    const deployed = DeployedSchema.parse(await home.runJson(['deploy', folder]));
    expect(deployed.profile.files).toBe(2);
    expect(deployed.configuration?.leftOut.map(({ path }) => path).sort()).toEqual([
      '.claude/.credentials.json',
      '.claude/settings.json: mcpServers.search.env.TOKEN',
      '.codex/config.toml: mcp_servers.web.http_headers.Authorization',
      '.env',
    ]);
    expect(
      await home.runOk(['run', 'hidden', 'ls -A /workspace /agent; grep -r . ~ /workspace /agent | wc -l']),
    ).not.toMatch(/mine/);
    await home.runOk(['snapshot', 'create', 'hidden/default']);
    const holding: string[] = [];
    for (const entry of await readdir(home.path, { recursive: true, withFileTypes: true })) {
      const path = join(entry.parentPath, entry.name);
      if (entry.isFile() && !path.startsWith(home.projects) && (await readFile(path)).includes(KEY))
        holding.push(path);
    }
    expect(holding).toEqual([]);
  });

  test('that changes makes a new version; an equal one does not', async () => {
    const folder = await project('again');
    await home.runOk(['deploy', folder]);
    expect(DeployedSchema.parse(await home.runJson(['deploy', folder])).unchanged).toBe(true);
    const { writeFile } = await import('node:fs/promises');
    await writeFile(join(folder, 'mine/.codex/config.toml'), 'model = "other"\n');
    expect(DeployedSchema.parse(await home.runJson(['deploy', folder])).unchanged).toBe(false);
    expect(await home.runOk(['run', 'again', 'cat ~/.codex/config.toml'])).toBe('model = "other"\n');
  });

  test('follows no link: not out of the project, and not in HOME where an agent left one', async () => {
    const folder = await project('links');
    await symlink('/etc/passwd', join(folder, 'mine/passwd'));
    await symlink('/etc', join(folder, 'mine/.codex/etc'));
    await home.runOk(['deploy', folder]);
    const evil =
      'ls -A ~ ~/.codex; mkdir -p /workspace/canary; rm -rf ~/.claude; ln -s /workspace/canary ~/.claude';
    const listed = await home.runOk(['run', 'links', evil]);
    expect(listed).not.toMatch(/passwd|etc/);
    await home.runOk(['session', 'stop', 'links/default']);
    expect(
      await home.runOk([
        'run',
        'links',
        'ls -A /workspace/canary; readlink ~/.claude; cat ~/.codex/config.toml',
      ]),
    ).toMatch(/^\/workspace\/canary\n\[mcp_servers/);
  });

  test('is refused with no such folder, and with ~ without a preset', async () => {
    const none = await home.run(['deploy', await project('none', {})]);
    expect(none.stderr).toContain('there is no such folder in the project');
    const own = await writeProject(home.projects, {
      'holdfast.yaml': 'name: own\nagent: { protocol: command, command: [sh], config: "~" }\n',
    });
    expect((await home.run(['deploy', own])).stderr).toContain('preset');
  });
});
