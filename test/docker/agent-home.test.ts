import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const TurnSchema = z.object({
  sessionId: z.string(),
  status: z.string(),
  stdout: z.string().optional(),
  sandbox: z.object({ case: z.string() }),
});
const HOME_STATE = 'state: [.memory, .local/share/agent], caches: [.npm]';

describe("the agent's HOME (P2, W4)", () => {
  let home: TestHome;
  beforeAll(async () => {
    home = await TestHome.create();
  });
  afterAll(async () => {
    await home.dispose();
  });
  const deploy = async (name: string, more = '', agent = HOME_STATE): Promise<void> => {
    await home.runOk([
      'deploy',
      await writeProject(home.projects, {
        'holdfast.yaml':
          `name: ${name}\npersistence: persistent\nworkspace: { seed: false }\n` +
          `agent: { protocol: command, command: [sh], ${agent} }\n${more}`,
      }),
    ]);
  };
  const run = async (profile: string, script: string) =>
    TurnSchema.parse(await home.runJson(['run', profile, script]));

  test('is on disk, closed to others, and begins with our start files', async () => {
    await deploy('disk');
    const { sessionId } = await run('disk', 'echo kept > ~/.memory');
    const facts = await stat(join(home.path, 'homes', sessionId));
    expect(facts.mode & 0o777).toBe(0o700);
    const found = await home.runOk(['exec', sessionId, '--', 'sh', '-c', 'ls -A ~; stat -c %u ~; id -u']);
    const lines = found.trim().split('\n');
    expect(lines.slice(0, 3)).toEqual(['.bashrc', '.memory', '.profile']);
    expect(lines[3]).toBe(lines[4]);
  });

  test('a new sandbox keeps state and caches, and nothing else; a running one keeps everything', async () => {
    await deploy('p2');
    const leave =
      'mkdir -p ~/.memory ~/.local/share/agent ~/.npm ~/.config; echo "evil" >> ~/.bashrc; ' +
      'for f in .memory/a .local/share/agent/b .npm/c .config/d loose; do echo x > ~/$f; done';
    const look = 'cd; find . -type f | sort | tr "\\n" " "; grep -c evil .bashrc; true';
    const { sessionId } = await run('p2', leave);
    const all = './.bashrc ./.config/d ./.local/share/agent/b ./.memory/a ./.npm/c ./.profile ./loose 1\n';
    const kept = './.bashrc ./.local/share/agent/b ./.memory/a ./.npm/c ./.profile 0\n';
    expect(await home.runOk(['run', 'p2', look])).toBe(all);

    // A supervisor that was killed finds the sandbox as it is, and a paused one goes on.
    process.kill(await home.supervisorPid(), 'SIGKILL');
    expect(await home.runOk(['run', 'p2', look])).toBe(all);
    await home.runOk(['session', 'pause', sessionId]);
    expect(await home.runOk(['run', 'p2', look])).toBe(all);

    await home.runOk(['session', 'stop', sessionId]);
    expect(await home.runOk(['run', 'p2', look])).toBe(kept);
    await home.runOk(['run', 'p2', 'echo y > ~/loose']);
    await home.killContainer(sessionId, 'agent');
    expect(await home.runOk(['run', 'p2', look])).toBe(kept);

    // What a later version of the profile does not name is gone with the next sandbox.
    await deploy('p2', '', 'state: [.memory]');
    expect(await home.runOk(['run', 'p2', look])).toBe('./.bashrc ./.memory/a ./.profile 0\n');
  });

  test('over its limit the session refuses turns, says what to do, and that helps', async () => {
    await deploy('full', 'limits: { home: 1MiB }\n');
    const { sessionId } = await run('full', 'head -c 3000000 /dev/zero > ~/big');
    const refused = async () => (await home.run(['run', 'full', 'true'])).stderr;
    await expect.poll(refused, { timeout: 20_000 }).toMatch(/storage_limit.*HOME holds/s);
    await home.runOk(['session', 'stop', sessionId]);
    expect(await home.runOk(['run', 'full', 'ls ~'])).toBe('');
  });

  test('is gone with its session', async () => {
    await deploy('gone');
    const { sessionId } = await run('gone', 'mkdir -p ~/.memory/a/b; chmod 000 ~/.memory/a');
    await home.runOk(['session', 'delete', sessionId, '--force']);
    await expect(stat(join(home.path, 'homes', sessionId))).rejects.toThrow('ENOENT');
  });
});
