import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../../setup/test-home.ts';
import { handlerProject, shellProject, writeProject } from '../../setup/profiles.ts';

const TurnSchema = z.object({
  sessionId: z.string(),
  turnId: z.string(),
  status: z.string(),
  output: z.unknown(),
  sandbox: z.object({ reused: z.boolean(), case: z.string() }),
  worker: z.object({ id: z.string(), reused: z.boolean() }).nullish(),
});
const MEMORY = `
import os
seen = []
def handler(input):
    if input.get('die'): os._exit(3)
    seen.append(input.get('say'))
    with open('/workspace/said', 'a') as f: f.write(str(input.get('say')) + '\\n')
    return {'seen': seen, 'session': input['session_id'], 'kept': open('/workspace/said').read().split()}
`;

describe('sessions, affinity and lifecycle (A1–A3, P1, P2, P4, L1–L3)', () => {
  let home: TestHome;
  let projects: string;
  beforeAll(async () => {
    home = await TestHome.create();
    projects = home.projects;
  });
  afterAll(async () => {
    await home.dispose();
  });
  const run = async (profile: string, input: string, ...more: string[]) =>
    TurnSchema.parse(await home.runJson(['run', profile, input, ...more]));
  const status = async (session: string): Promise<string> =>
    z
      .object({ session: z.object({ status: z.string() }) })
      .parse(await home.runJson(['session', 'show', session])).session.status;

  test('A1, A3: one session reaches the same warm worker, its memory intact, and knows its name', async () => {
    await home.runOk(['deploy', await writeProject(projects, handlerProject('memory', MEMORY))]);
    const one = await run('memory', '{"say": "a"}', '--session', 'user-123');
    const two = await run('memory', '{"say": "b"}', '--session', 'user-123');
    expect(two.output).toEqual({ seen: ['a', 'b'], session: 'user-123', kept: ['a', 'b'] });
    expect(two.sessionId).toBe(one.sessionId);
    expect(two.worker).toEqual({ id: one.worker?.id, reused: true });
    expect(two.sandbox).toEqual({ case: 'reuse', reused: true });
  });

  test('A2, P4: another session sees neither memory nor files; a dead worker is replaced and the files are still there', async () => {
    const other = await run('memory', '{"say": "x"}', '--session', 'user-456');
    expect(other.output).toEqual({ seen: ['x'], session: 'user-456', kept: ['x'] });

    const died = await home.run(['run', 'memory', '{"die": true}', '--session', 'user-123']);
    expect(died.code).toBe(1);
    expect(died.stderr).toMatch(/^error worker_crashed: /m);
    const after = await run('memory', '{"say": "c"}', '--session', 'user-123');
    expect(after.output).toEqual({ seen: ['c'], session: 'user-123', kept: ['a', 'b', 'c'] });
    expect(after.worker?.reused).toBe(false);
  });

  // At the same time where they wait most of their time, each with a profile of its own.
  test.concurrent(
    'an exception becomes a typed error with its traceback, and the worker lives on',
    async () => {
      const body =
        "n = 0\ndef handler(input):\n    global n\n    n += 1\n    if input.get('boom'): raise ValueError('no such thing')\n    return n\n";
      await home.runOk(['deploy', await writeProject(projects, handlerProject('raises', body))]);
      await run('raises', '{}');
      const failed = await home.run(['run', 'raises', '{"boom": 1}']);
      expect(failed.code).toBe(1);
      expect(failed.stderr).toMatch(/^error agent_failed: .*ValueError: no such thing/m);
      expect(failed.stderr).toContain('line 5, in handler');
      expect((await run('raises', '{}')).output).toBe(3);
    },
  );

  test.concurrent(
    'P1, P2: files survive a turn that timed out; packages, environment, processes and system files do not survive a stop',
    async () => {
      await home.runOk(['deploy', await writeProject(projects, shellProject('p2'))]);
      const timedOut = await home.run(['run', 'p2', 'echo kept > kept; sleep 60', '--timeout', '1']);
      expect(timedOut.code).toBe(1);
      expect(timedOut.stderr).toMatch(/^error timeout: /m);
      const { sessionId } = await run(
        'p2',
        'pip install --no-index x 2>/dev/null; mkdir -p ~/.local/lib; echo 1 > ~/.local/lib/m; export VAR=1; (setsid sleep 1000 &) ; (echo bad >> /etc/hosts) 2>&1 | wc -l',
      );
      await home.runOk(['session', 'stop', sessionId]);
      const after = await home.runOk([
        'run',
        'p2',
        'cat kept; ls -A ~; echo "[$VAR]"; ps ax | grep -c "[s]leep 1000"; true',
      ]);
      expect(after).toBe('kept\n.bashrc\n.profile\n[]\n0\n');
    },
  );

  test.concurrent(
    'L1: idle → paused → resumable → expired on the profile’s times; a live turn is never idle; the workspace stays',
    async ({ expect }) => {
      await home.runOk([
        'deploy',
        await writeProject(
          projects,
          shellProject('l1', 'persistence: persistent\nidle: { pause: 2s, stop: 4s, expire: 6s }\n'),
        ),
      ]);
      const { sessionId } = await run('l1', 'echo kept > f; sleep 3; echo still here');
      await expect.poll(() => status(sessionId), { timeout: 30_000, interval: 500 }).toBe('expired');
      const back = await run('l1', 'cat f', '--session', 'default');
      expect(back.sandbox).toEqual({ case: 'resurrect', reused: false });
      const events = await home.runOk(['session', 'events', sessionId, '--json']);
      const moves = [...events.matchAll(/"from":\s*"(\w+)",\s*"to":\s*"(\w+)"/g)].map((m) => m[2]);
      expect(moves.slice(0, 5)).toEqual(['active', 'idle', 'paused', 'resumable', 'expired']);
    },
  );

  test.concurrent(
    'L3: running → reuse; paused → unpause; stopped → reattach; ephemeral → fresh and empty; unknown → create',
    async () => {
      await home.runOk(['deploy', await writeProject(projects, shellProject('l3'))]);
      const first = await run('l3', 'echo 1 > f');
      expect(first.sandbox).toEqual({ case: 'create', reused: false });
      expect((await run('l3', 'true')).sandbox).toEqual({ case: 'reuse', reused: true });
      await home.runOk(['session', 'pause', first.sessionId]);
      expect(await status(first.sessionId)).toBe('paused');
      expect((await run('l3', 'true')).sandbox).toEqual({ case: 'unpause', reused: true });
      await home.runOk(['session', 'stop', first.sessionId]);
      expect(await status(first.sessionId)).toBe('resumable');
      expect((await run('l3', 'cat f')).sandbox).toEqual({ case: 'reattach', reused: false });

      await home.runOk(['deploy', await writeProject(projects, shellProject('l3e', ''))]);
      const named = await run('l3e', 'echo 1 > f; ls', '--session', 'temp');
      await home.runOk(['session', 'stop', named.sessionId]);
      const fresh = await run('l3e', 'ls | wc -l', '--session', 'temp');
      expect(fresh.sandbox).toEqual({ case: 'fresh', reused: false });
      expect(await home.runOk(['run', 'l3e', 'ls -A | wc -l', '--session', 'temp'])).toBe('0\n');
    },
  );

  test('L2: an ephemeral profile without a session gets a temporary one, deleted after its turn', async () => {
    const one = await run('l3e', 'echo 1 > f');
    const two = await run('l3e', 'ls | wc -l');
    expect(two.sessionId).not.toBe(one.sessionId);
    await expect
      .poll(async () => (await home.runJson(['session', 'list'])) as { sessions: { id: string }[] }, {
        timeout: 10_000,
      })
      .toMatchObject({
        sessions: expect.not.arrayContaining([expect.objectContaining({ id: one.sessionId })]) as unknown,
      });
  });

  test.concurrent(
    'turns of a session run one after the other, visibly; those of another beside them',
    async () => {
      await home.runOk(['deploy', await writeProject(projects, shellProject('queue'))]);
      const start = async (text: string, session: string): Promise<string> =>
        z
          .object({ turnId: z.string() })
          .parse(await home.runJson(['run', 'queue', text, '--session', session, '--no-wait'])).turnId;
      const slow = await start('echo 1 >> order; until [ -e go ]; do sleep 0.1; done; echo 2 >> order', 'a');
      const next = await start('echo 3 >> order', 'a');
      const beside = await run('queue', 'echo at once', '--session', 'b');
      expect(beside.status).toBe('succeeded');
      // A turn that has begun keeps its prompt.
      expect((await home.run(['turn', 'edit', slow, 'echo never'])).stderr).toMatch(
        /^error invalid_state: .*has begun/,
      );
      await home.runOk(['turn', 'edit', next, 'echo never']);
      await home.runOk(['turn', 'edit', next, '-'], 'echo 4 >> order; cat order');
      const turnSchema = z.object({ turn: z.object({ status: z.string(), ahead: z.number() }) });
      expect(turnSchema.parse(await home.runJson(['turn', 'show', next])).turn).toEqual({
        status: 'queued',
        ahead: 1,
      });
      await home.runOk(['exec', 'queue/a', '--', 'touch', '/workspace/go']);
      expect(await home.runOk(['turn', 'wait', next])).toBe('1\n2\n4\n');
      const said = await home.runOk(['session', 'show', 'queue/a', '--conversation']);
      expect(said).toContain('echo 4 >> order');
      expect(said).not.toMatch(/echo 3|never/);
      expect((await home.run(['turn', 'edit', next, 'echo 5'])).stderr).toMatch(
        /^error invalid_state: .*the turn is succeeded/,
      );
      expect(await home.runOk(['session', 'verify', 'queue/a'])).toMatch(/intact/);
      expect(turnSchema.parse(await home.runJson(['turn', 'show', slow])).turn.status).toBe('succeeded');
    },
  );

  test.concurrent(
    'cancel ends the turn and everything it started, also what left its group',
    async ({ expect }) => {
      await home.runOk(['deploy', await writeProject(projects, shellProject('cancel'))]);
      const { turnId, sessionId } = z
        .object({ turnId: z.string(), sessionId: z.string() })
        .parse(
          await home.runJson([
            'run',
            'cancel',
            'setsid sleep 777 & sleep 777 & trap "" TERM; while :; do sleep 1; done',
            '--no-wait',
          ]),
        );
      const sleeping = () =>
        home.runOk(['exec', sessionId, '--', 'sh', '-c', 'ps ax | grep -c "[s]leep 777"; true']);
      await expect.poll(sleeping, { timeout: 20_000, interval: 300 }).toBe('2\n');
      await home.runOk(['turn', 'cancel', turnId]);
      const ended = await home.run(['turn', 'wait', turnId]);
      expect(ended.code).toBe(130);
      expect(await sleeping()).toBe('0\n');
    },
  );

  test.concurrent('the same path from exec, the handler, the sidecar and the host', async () => {
    const body = "def handler(input):\n    open('/workspace/src/ä b.txt', 'w').write('same'); return 1\n";
    await home.runOk(['deploy', await writeProject(projects, handlerProject('paths', body))]);
    const { sessionId } = await run('memory', '{"say": 1}', '--session', 'paths');
    await home.runOk(['exec', sessionId, '--', 'mkdir', '-p', '/workspace/src']);
    await home.runOk(['exec', sessionId, '--', 'sh', '-c', 'printf same > "/workspace/src/ä b.txt"']);
    const handled = await run('memory', '{"say": 2}', '--session', 'paths');
    expect(handled.output).toMatchObject({ kept: ['1', '2'] });
    expect(await home.runOk(['exec', sessionId, '--', 'cat', '/workspace/said'])).toBe('1\n2\n');
    expect(await home.runOk(['exec', sessionId, '--', 'sh', '-c', 'pwd; cat "src/ä b.txt"'])).toBe(
      '/workspace\nsame',
    );
    const info = z
      .object({ files: z.number(), bytes: z.number() })
      .parse(await home.runJson(['workspace', 'info', sessionId]));
    expect(info).toEqual({ files: 2, bytes: 8 });
  });
});
