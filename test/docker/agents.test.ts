import { copyFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { MemorySchema as SessionMemorySchema } from '../../protocol/memory.ts';
import { PermissionSchema } from '../../protocol/permissions.ts';
import { waitUntil } from '../fixtures/sidecar/turns.ts';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const AGENT = resolve(import.meta.dirname, '../fixtures/acp-agent/agent.mjs');
const TurnSchema = z.object({
  sessionId: z.string(),
  turnId: z.string(),
  status: z.string(),
  output: z.string().nullable(),
  error: z.object({ message: z.string() }).nullable(),
});
const MemorySchema = z.object({ memory: SessionMemorySchema });
const EventsSchema = z.object({ type: z.string(), data: z.record(z.string(), z.json()) });

describe('agents that stay, in containers (A1, A2)', { timeout: 120_000 }, () => {
  let home: TestHome;
  beforeAll(async () => {
    home = await TestHome.create();
  });
  afterAll(async () => {
    await home.dispose();
  });
  const deploy = async (name: string, flags: string, more = ''): Promise<void> => {
    const project = await writeProject(home.projects, {
      'holdfast.yaml':
        `name: ${name}\npersistence: persistent\nworkspace: { seed: false }\n` +
        `agent: { protocol: acp, command: [node, /agent/agent.mjs${flags}], state: [.acp-agent] }\n${more}`,
    });
    await copyFile(AGENT, join(project, 'agent.mjs'));
    await home.runOk(['deploy', project]);
  };
  const run = async (profile: string, ...lines: string[]) =>
    TurnSchema.parse(await home.runJson(['run', profile, lines.join('\n')]));
  const start = async (profile: string, ...lines: string[]) =>
    TurnSchema.parse(await home.runJson(['run', profile, lines.join('\n'), '--no-wait']));
  const wait = async (turnId: string) => {
    const { stdout } = await home.run(['turn', 'wait', turnId, '--json']);
    return TurnSchema.parse(JSON.parse(stdout));
  };
  const waiting = async (sessionId: string) =>
    z
      .object({ permissions: z.array(PermissionSchema) })
      .parse(await home.runJson(['permission', 'list', sessionId])).permissions;
  const events = async (sessionId: string, type: string) =>
    (await home.runOk(['session', 'events', sessionId, '--type', type, '--json']))
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => EventsSchema.parse(JSON.parse(line)).data);

  test('a conversation: the process stays, and the agent works in the workspace', async () => {
    await deploy('talk', '');
    const first = await run('talk', 'say Hello', 'write notes.txt from the agent');
    expect(first).toMatchObject({ status: 'succeeded', output: 'Hello' });
    expect(await home.runOk(['exec', first.sessionId, '--', 'cat', 'notes.txt'])).toBe('from the agent');
    expect(await home.runOk(['run', 'talk', 'count'])).toBe('prompt 2\n');
    expect((await events(first.sessionId, 'agent.connected')).map(({ how }) => how)).toEqual(['new', 'warm']);
  });

  test('a permission waits over kill -9 of the supervisor, and its answer lets the agent continue', async () => {
    await deploy('asks', '');
    const { sessionId, turnId } = await start('asks', 'say before', 'permission make', 'say after');
    await waitUntil('the agent asks', async () => (await waiting(sessionId)).length === 1, 60_000);
    process.kill(await home.supervisorPid(), 'SIGKILL');
    const [permission] = await waiting(sessionId);
    expect(permission).toMatchObject({ title: 'Run make', kind: 'execute' });
    await home.runOk(['permission', 'answer', permission?.id ?? '', 'reject']);
    expect(await wait(turnId)).toMatchObject({ status: 'succeeded', output: 'before[make: no]after' });
    expect(await waiting(sessionId)).toEqual([]);
    const [answered] = await events(sessionId, 'permission.answered');
    expect(answered).toMatchObject({ option: { id: 'no' }, by: { kind: 'client' } });
  });

  test('kill -9 of the supervisor in the middle of what it says: everything is there once', async () => {
    await deploy('kills', '');
    const lines = Array.from({ length: 20 }, (_, nth) => [`say ${nth},`, 'sleep 150']).flat();
    const { sessionId, turnId } = await start('kills', ...lines);
    for (let nth = 0; nth < 2; nth++) {
      await sleep(900);
      process.kill(await home.supervisorPid(), 'SIGKILL');
      await home.runOk(['turn', 'show', turnId]);
    }
    expect(await wait(turnId)).toMatchObject({
      status: 'succeeded',
      output: Array.from({ length: 20 }, (_, nth) => `${nth},`).join(''),
    });
    expect(await run('kills', 'count')).toMatchObject({ sessionId, output: 'prompt 2' });
  });

  test('cancel kills everything that the agent started, and the next prompt continues with its memory', async () => {
    await deploy('cancels', ', --resume', 'permissions: allow\n');
    const { sessionId, turnId } = await start(
      'cancels',
      'spawn setsid sh -c "while :; do date >> /workspace/beats; sleep 0.2; done"',
      'sleep 60000',
    );
    const beats = async () =>
      (await home.runOk(['exec', sessionId, '--', 'sh', '-c', 'cat beats 2>/dev/null | wc -l'])).trim();
    await waitUntil('the command runs', async () => Number(await beats()) > 1, 60_000);
    await home.runOk(['turn', 'cancel', turnId]);
    expect((await wait(turnId)).status).toBe('cancelled');
    const before = await beats();
    await sleep(1000);
    expect(await beats()).toBe(before);
    expect(await run('cancels', 'count')).toMatchObject({ status: 'succeeded', output: 'prompt 2' });
    expect((await events(sessionId, 'agent.connected')).map(({ how }) => how)).toEqual(['new', 'resumed']);
  });

  test('a new sandbox: the agent loads its own memory', async () => {
    await deploy('loads', ', --load');
    const { sessionId } = await run('loads', 'say first');
    await home.runOk(['session', 'stop', sessionId]);
    expect(await run('loads', 'count')).toMatchObject({ output: 'prompt 2' });
    expect((await events(sessionId, 'agent.connected')).map(({ how }) => how)).toEqual(['new', 'loaded']);
  });

  test('L6: an expired session whose agent has forgotten everything gets its history; the workspace is there', async () => {
    await deploy('expires', '', 'idle: { pause: 1s, stop: 2s, expire: 3s }\n');
    const { sessionId } = await run('expires', 'say the number is 42', 'write notes.txt kept');
    await waitUntil(
      'the session expires',
      async () => {
        const { session } = z
          .object({ session: z.object({ status: z.string() }) })
          .parse(await home.runJson(['session', 'show', sessionId]));
        return session.status === 'expired';
      },
      60_000,
    );
    const back = await run('expires', 'recall');
    expect(back.output).toContain('told: ');
    expect(back.output).toContain('| the number is 42');
    expect((await events(sessionId, 'agent.connected')).map(({ how }) => how)).toEqual(['new', 'handover']);
    expect(await home.runOk(['exec', sessionId, '--', 'cat', 'notes.txt'])).toBe('kept');
  });

  test('tools of Holdfast: the memory is marked, and a host opens when a person says so (kill -9 included)', async () => {
    await deploy('tools', '', 'permissions: allow\n');
    const written = await run('tools', 'tool-of memory_write {"text":"tests pass"}');
    expect(written).toMatchObject({ status: 'succeeded', output: '{"version":1,"bytes":10}' });
    const { sessionId } = written;
    const { memory } = MemorySchema.parse(await home.runJson(['memory', 'show', sessionId]));
    expect(memory).toMatchObject({ author: 'agent', text: 'tests pass' });
    const { output } = await run('tools', 'write a.txt b', 'tool-of snapshot_create {"label":"mine"}');
    expect(JSON.parse(output ?? '')).toMatchObject({ snapshot: { reason: 'agent', label: 'mine' } });

    const { turnId } = await start(
      'tools',
      'tool-of egress_request {"host":"example.com","reason":"a test"}',
    );
    await waitUntil('the agent asks', async () => (await waiting(sessionId)).length === 1, 60_000);
    process.kill(await home.supervisorPid(), 'SIGKILL');
    const [permission] = await waiting(sessionId);
    expect(permission?.title).toBe('Open the network to example.com. The agent says: a test');
    await home.runOk(['permission', 'answer', permission?.id ?? '', 'always']);
    expect(await wait(turnId)).toMatchObject({
      status: 'succeeded',
      // The lost call is made again: perhaps after the answer.
      output: expect.stringMatching(/^example\.com is allowed (already|for this session): /) as string,
    });
    const rules = await home.runOk(['policy', 'show', sessionId, '--json']);
    expect(rules).toContain('example.com');
  });

  test('the memory is asked for before a stop, over kill -9 of the supervisor, and the stop waits for no answer (G3)', async () => {
    await deploy('remembers', ', --memory, tests-pass');
    const { sessionId } = await run('remembers', 'say hello');
    const stopping = home.runJson(['session', 'stop', sessionId, '--memory']);
    await waitUntil('the agent is asked', async () => {
      return (await events(sessionId, 'agent.connected')).length === 2;
    });
    process.kill(await home.supervisorPid(), 'SIGKILL');
    expect(await stopping).toMatchObject({
      session: { status: 'resumable' },
      memory: { version: 1, author: 'agent', text: 'tests-pass' },
    });
    expect(await events(sessionId, 'turn.queued')).toHaveLength(2);

    await deploy('silent', '');
    const silent = await run('silent', 'say hello');
    expect(await home.runJson(['session', 'stop', silent.sessionId, '--memory'])).toMatchObject({
      session: { status: 'resumable' },
      memory: null,
    });
  });

  test('garbage and a message of 100 MB are survived', async () => {
    await deploy('noise', '');
    const turn = await run('noise', 'garbage', `huge ${100 * 2 ** 20}`, 'say well');
    expect(turn).toMatchObject({ status: 'succeeded', output: 'well' });
    expect((await events(turn.sessionId, 'agent.notice')).map(({ code }) => code)).toContain(
      'message_skipped',
    );
  });

  test('an agent that dies fails its turn only', async () => {
    await deploy('dies', '');
    const turn = TurnSchema.parse(
      JSON.parse((await home.run(['run', 'dies', 'stderr oh no\ndie 9', '--json'])).stdout),
    );
    expect(turn).toMatchObject({ status: 'failed', error: { message: 'The agent ended during the turn' } });
    expect(await run('dies', 'say well')).toMatchObject({ output: 'well' });
  });
});
