import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { AgentWithState } from '../fixtures/agent-home/agent-with-state.ts';
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

  test('a run directory that the agent fills counts, and is gone with the sandbox', async () => {
    await deploy('filler', 'limits: { output: 1MiB }\n');
    const { sessionId } = await run('filler', 'truncate -s 3G /run/holdfast/big');
    const refused = async () => (await home.run(['run', 'filler', 'true'])).stderr;
    await expect.poll(refused, { timeout: 20_000 }).toMatch(/storage_limit.*\/run\/holdfast/s);
    await home.runOk(['session', 'stop', sessionId]);
    expect(await home.runOk(['run', 'filler', 'ls /run/holdfast/big 2>&1 | wc -l; echo ok'])).toContain('ok');
  });

  test('is gone with its session', async () => {
    await deploy('gone');
    const { sessionId } = await run('gone', 'mkdir -p ~/.memory/a/b; chmod 000 ~/.memory/a');
    await home.runOk(['session', 'delete', sessionId, '--force']);
    await expect(stat(join(home.path, 'homes', sessionId))).rejects.toThrow('ENOENT');
  });
});

// Each has sessions of its own.
describe.concurrent("the agent's state in snapshots", () => {
  let agent: AgentWithState;
  let home: TestHome;
  beforeAll(async () => {
    agent = await AgentWithState.create('mind');
    ({ home } = agent);
  });
  afterAll(() => agent.dispose());
  const run = (session: string, script: string) => agent.run(session, script);
  const snapshot = (session: string) => agent.snapshot(session);
  const REMEMBER =
    'mkdir -p ~/.claude/projects ~/.local/share/mind ~/.npm; echo "$1"; ' +
    'echo NAME > ~/.claude/projects/a.jsonl; echo NAME > ~/.local/share/mind/db; echo NAME > ~/.npm/c; echo NAME > file';
  const remember = (session: string, name: string) => run(session, REMEMBER.replaceAll('NAME', name));
  const READ =
    'cat file ~/.claude/projects/a.jsonl ~/.local/share/mind/db ~/.npm/c 2>/dev/null | tr "\\n" " "';

  test('a restore takes the files, or the files and the memory; a comparison shows only files', async () => {
    await remember('r', 'one');
    const one = await snapshot('r');
    expect(one.files).toBe(1);
    expect(one.stateRoot).toMatch(/^[0-9a-f]{64}$/);
    await remember('r', 'two');
    const two = await snapshot('r');
    expect(two.stateRoot).not.toBe(one.stateRoot);
    const diff = await home.runOk(['snapshot', 'diff', one.id, two.id]);
    expect(diff).toContain('file');
    expect(diff).not.toContain('jsonl');

    await home.runOk(['snapshot', 'restore', 'r', one.id]);
    expect(await run('r', READ)).toBe('one two two two ');
    await home.runOk(['snapshot', 'restore', 'r', two.id]);
    const restored = z
      .object({ undo: z.string(), stateRoot: z.string().nullable() })
      .parse(await home.runJson(['snapshot', 'restore', 'r', one.id, '--with-state']));
    expect(restored.stateRoot).toBe(one.stateRoot);
    expect(await run('r', READ)).toBe('one one one two ');
    await home.runOk(['snapshot', 'restore', 'r', restored.undo, '--with-state']);
    expect(await run('r', READ)).toBe('two two two two ');

    const part = await home.run(['snapshot', 'restore', 'r', one.id, '--with-state', '--path', 'file']);
    expect(part.stderr).toContain('invalid_params');
  });

  test('only the memory changed: that is a snapshot too, and an unchanged one is reused', async () => {
    await remember('m', 'one');
    const one = await snapshot('m');
    await run('m', 'echo more >> ~/.claude/projects/a.jsonl');
    const two = await snapshot('m');
    expect(two.id).not.toBe(one.id);
    // Neither caches nor anything else of HOME.
    await run('m', 'echo more >> ~/.npm/c; echo more > ~/loose');
    expect((await snapshot('m')).stateRoot).toBe(two.stateRoot);
  });

  test('a fork has the memory and no caches; verification and collection know it', async () => {
    await remember('f', 'one');
    const one = await snapshot('f');
    await home.runOk(['gc']);
    expect(await home.runJson(['snapshot', 'verify', one.id])).toMatchObject({ ok: true });
    await agent.fork(one.id, 'fork-of-f');
    expect(await run('fork-of-f', READ)).toBe('one one one ');
    await home.runOk(['session', 'delete', await agent.idOf('f'), '--force']);
    await home.runOk(['gc']);
    await run('fork-of-f', 'rm -r ~/.claude');
    await home.runOk(['snapshot', 'restore', 'fork-of-f', one.id, '--with-state']);
    expect(await run('fork-of-f', READ)).toBe('one one one ');
  });

  test('reset forgets, and can be undone; clean does not forget', async () => {
    await remember('c', 'one');
    await home.runOk(['workspace', 'clean', 'c', '--force']);
    expect(await run('c', READ)).toBe('one one one ');
    await run('c', 'echo one > file');
    const { undo } = z.object({ undo: z.string() }).parse(await home.runJson(['session', 'reset', 'c']));
    expect(await run('c', READ)).toBe('');
    await home.runOk(['snapshot', 'restore', 'c', undo, '--with-state']);
    expect(await run('c', READ)).toBe('one one one ');
  });

  test('sign-in files are in no snapshot and no fork, and a restore leaves them alone', async () => {
    await remember('s', 'one');
    const secret = `key-${'0'.repeat(24)}-${String(process.pid)}`;
    await run(
      's',
      `echo ${secret} > ~/.claude/.credentials.json; ln ~/.claude/.credentials.json ~/.claude/hard; ` +
        `cp ~/.claude/.credentials.json ~/.claude/.credentials.json.tmp; mkdir ~/.claude/old; cp ~/.claude/.credentials.json ~/.claude/old/`,
    );
    const one = await snapshot('s');
    await agent.fork(one.id, 'fork-of-s');
    expect(await run('fork-of-s', `grep -rl ${secret} ~ /workspace; ls -A ~/.claude`)).toBe(
      'old\nprojects\n',
    );
    await run('s', 'echo changed > ~/.claude/projects/a.jsonl');
    await home.runOk(['snapshot', 'restore', 's', one.id, '--with-state']);
    expect(await run('s', 'cat ~/.claude/.credentials.json ~/.claude/projects/a.jsonl')).toBe(
      `${secret}\none\n`,
    );
  });
});
