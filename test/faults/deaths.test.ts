import { hash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import type { Turn } from '../../protocol/entities.ts';
import { shellProject } from '../setup/profiles.ts';
import { expectSettled, expectWholeHistory, turnOutput } from './harness/expectations.ts';
import type { FaultHome } from './harness/fault-home.ts';
import type { SupervisorProcess } from './harness/supervisor-process.ts';
import { waitForTurn, waitUntil, useFaultFixture } from './harness/fault-fixture.ts';
import { soakCount } from '../setup/run-length.ts';

const LINES = 20;
const numbered = (lines: number): string =>
  Array.from({ length: lines }, (_, at) => `line ${at + 1}\n`).join('');
/** Numbered lines at a walking pace until the test has seen enough; after each it writes down how far it is. */
const SLOW = `echo ran >> ran; n=1
until [ $n -gt ${LINES} -a -e enough ]; do echo line $n; echo $n > progress; n=$((n+1)); sleep 0.05; done`;
const SLOW_HANDLER = {
  'holdfast.yaml': 'name: handler\nagent: { protocol: handler, entry: agent.py }\npersistence: persistent\n',
  'agent.py': `
import os, time
def handler(input):
    with open('/workspace/ran', 'a') as f: f.write('ran\\n')
    n = 1
    while n <= ${LINES} or not os.path.exists('/workspace/enough'):
        print('line', n, flush=True)
        with open('/workspace/progress', 'w') as f: f.write(str(n))
        n += 1
        time.sleep(0.05)
    return 'done'
`,
};
type Role = 'agent' | 'sidecar';

const bench = useFaultFixture(afterAll);
let serving: SupervisorProcess | null = null;
let shared: Promise<FaultHome> | null = null;

/** The home of this suite, with a supervisor that answers. */
async function servedHome(): Promise<FaultHome> {
  shared ??= (async () => {
    const home = await bench.createHome();
    serving = await home.start();
    await bench.deploy(home, shellProject('shell'));
    await bench.deploy(home, SLOW_HANDLER);
    return home;
  })();
  const home = await shared;
  if (serving?.isRunning !== true) serving = await home.start();
  return home;
}

async function killSupervisor(): Promise<void> {
  expect(await serving?.kill()).toEqual({ code: null, signal: 'SIGKILL' });
}

async function containerOf(home: FaultHome, session: string, role: Role): Promise<string> {
  const found = (await home.listObjects()).find(
    ({ labels, state }) =>
      labels['dev.holdfast.session'] === session &&
      labels['dev.holdfast.role'] === role &&
      (state === 'running' || state === 'paused'),
  );
  if (found === undefined) throw new Error(`${session} has no ${role}`);
  return found.id;
}

async function killContainer(home: FaultHome, session: string, role: Role): Promise<void> {
  await home.docker.getContainer(await containerOf(home, session, role)).kill();
}

async function progress(home: FaultHome, session: string): Promise<number> {
  const path = join(home.path, 'workspaces', session, 'progress');
  return Number(await readFile(path, 'utf8').catch(() => '0'));
}

/** A turn in the middle of its output, in a new session. */
async function inTheMiddle(
  home: FaultHome,
  profile: 'shell' | 'handler',
): Promise<{ session: string; turn: string }> {
  const { session } = await home.call('session/create', { profile });
  const work = profile === 'shell' ? { prompt: SLOW } : { input: {} };
  const { turn } = await home.call('turn/start', { session: session.id, ...work });
  await waitUntil('the turn is running', async () => (await progress(home, session.id)) > 10, 30_000);
  return { session: session.id, turn: turn.turnId };
}

/** Its turn ends when it has written all lines that it must. */
async function enough(home: FaultHome, session: string): Promise<void> {
  await writeFile(join(home.path, 'workspaces', session, 'enough'), '');
}

async function expectWholeTurn(home: FaultHome, session: string, turn: string): Promise<void> {
  await enough(home, session);
  expect(await waitForTurn(home, turn)).toMatchObject({ status: 'succeeded', error: null });
  const written = await progress(home, session);
  expect(written).toBeGreaterThanOrEqual(LINES);
  expect((await turnOutput(home, turn, 'stdout')).toString()).toBe(numbered(written));
  expect(await readFile(join(home.path, 'workspaces', session, 'ran'), 'utf8')).toBe('ran\n');
  await expectSettled(home);
  await expectWholeHistory(home, session);
  await home.call('session/stop', { session });
}

async function run(home: FaultHome, session: string, prompt: string): Promise<{ turn: Turn; text: string }> {
  const { turn } = await home.call('turn/start', { session, prompt });
  const after = await waitForTurn(home, turn.turnId);
  return { turn: after, text: (await turnOutput(home, turn.turnId, 'stdout')).toString() };
}

/** The turn failed because its container is gone, and every line that it had written is there. */
async function expectLostTurn(home: FaultHome, session: string, turn: string): Promise<void> {
  const written = await progress(home, session);
  const after = await waitForTurn(home, turn);
  expect(after).toMatchObject({ status: 'failed', error: { data: { code: 'sandbox_lost' } } });
  const text = (await turnOutput(home, turn, 'stdout')).toString();
  const lines = text.split('\n').length - 1;
  expect(text).toBe(numbered(lines));
  expect(lines).toBeGreaterThanOrEqual(written);
  await expectSettled(home);
  await enough(home, session);
  const [profile, work] = [(await home.call('session/show', { session })).session.profile, 'cat ran'];
  const next = await home.call('turn/start', {
    session,
    ...(profile === 'shell' ? { prompt: work } : { input: {} }),
  });
  const ended = await waitForTurn(home, next.turn.turnId);
  expect(ended).toMatchObject({ status: 'succeeded', sandbox: { case: 'reattach', reused: false } });
  await expectWholeHistory(home, session);
  await home.call('session/stop', { session });
}

describe.each(['shell', 'handler'] as const)('during a turn (%s), kill -9 of', (profile) => {
  test('the supervisor: the turn continues, and the next one has all of its output', async () => {
    const home = await servedHome();
    const { session, turn } = await inTheMiddle(home, profile);
    await killSupervisor();
    const before = await progress(home, session);
    await waitUntil('the turn goes on alone', async () => (await progress(home, session)) > before + 5);
    await servedHome();
    await expectWholeTurn(home, session, turn);
  });

  test('the sidecar: the turn continues, and the next sidecar joins', async () => {
    const home = await servedHome();
    const { session, turn } = await inTheMiddle(home, profile);
    const agent = await containerOf(home, session, 'agent');
    await killContainer(home, session, 'sidecar');
    await enough(home, session);
    expect(await waitForTurn(home, turn)).toMatchObject({ status: 'succeeded' });
    expect(await containerOf(home, session, 'agent')).toBe(agent);
    const next = await home.docker.getContainer(await containerOf(home, session, 'sidecar')).inspect();
    expect(next.HostConfig.NetworkMode).toBe(`container:${agent}`);
    await expectWholeTurn(home, session, turn);
  });

  test('the agent container: the turn has failed, its output is kept, the next turn reattaches', async () => {
    const home = await servedHome();
    const { session, turn } = await inTheMiddle(home, profile);
    await killContainer(home, session, 'agent');
    await expectLostTurn(home, session, turn);
  });

  test('the agent container, before its runner has the turn: the turn restarts, and the history names the sandbox', async () => {
    const home = await servedHome();
    const { session } = await home.call('session/create', { profile });
    await home.call('session/resume', { session: session.id });
    await killSupervisor();
    // Dispatched, and not yet told that the sandbox is gone.
    serving = await home.start({ 'turn.after-snapshot': 'delay:5000' });
    const work = profile === 'shell' ? { prompt: SLOW } : { input: {} };
    await enough(home, session.id);
    const { turn } = await home.call('turn/start', { session: session.id, ...work });
    await waitUntil('it is dispatched', async () => {
      const { events } = await home.call('session/events', { session: session.id, type: 'snapshot.created' });
      return events.length > 0;
    });
    await killContainer(home, session.id, 'agent');
    // Sooner than by the next look at everything, which is half a minute away at most.
    expect(await waitForTurn(home, turn.turnId, 25_000)).toMatchObject({
      status: 'succeeded',
      sandbox: { case: 'reattach', reused: false },
    });
    await expectWholeTurn(home, session.id, turn.turnId);
    await killSupervisor();
  });

  test('all of them: the next supervisor finds what is left', async () => {
    const home = await servedHome();
    const { session, turn } = await inTheMiddle(home, profile);
    const [agent, sidecar] = [
      await containerOf(home, session, 'agent'),
      await containerOf(home, session, 'sidecar'),
    ];
    await Promise.all([
      killSupervisor(),
      home.docker.getContainer(agent).kill(),
      home.docker.getContainer(sidecar).kill(),
    ]);
    await servedHome();
    await expectLostTurn(home, session, turn);
  });
});

describe('other users of the engine', () => {
  test('pause and unpause during a turn: the status follows, and the turn is complete', async () => {
    const home = await servedHome();
    const { session, turn } = await inTheMiddle(home, 'shell');
    const agent = home.docker.getContainer(await containerOf(home, session, 'agent'));
    await agent.pause();
    await expectSettled(home);
    expect((await home.call('session/show', { session })).session.status).toBe('paused');
    await agent.unpause();
    await expectSettled(home);
    expect((await home.call('session/show', { session })).session.status).toBe('active');
    await expectWholeTurn(home, session, turn);
  });

  test('rm -f of each container, of a running and of a paused session', async () => {
    const home = await servedHome();
    const { session } = await home.call('session/create', { profile: 'shell' });
    for (const state of ['running', 'paused']) {
      for (const role of ['sidecar', 'agent'] as const) {
        await run(home, session.id, 'echo kept > f');
        if (state === 'paused') await home.call('session/pause', { session: session.id });
        const id = await containerOf(home, session.id, role);
        await home.docker.getContainer(id).remove({ force: true });
        await expectSettled(home);
        const { turn, text } = await run(home, session.id, 'cat f');
        expect(text).toBe('kept\n');
        const alive = state === 'paused' ? 'unpause' : 'reuse';
        expect(turn.sandbox?.case).toBe(role === 'agent' ? 'reattach' : alive);
      }
    }
    await home.call('session/stop', { session: session.id });
    await expectWholeHistory(home, session.id);
  });
});

test(
  'write, then pause, stop or kill, then resume: every byte is equal, each time',
  async () => {
    const cycles = soakCount(10, 100);
    let home = await servedHome();
    const { session } = await home.call('session/create', { profile: 'shell' });
    const interruptions = ['pause', 'stop', 'kill agent', 'kill sidecar', 'kill supervisor'] as const;
    const known = new Map<string, string>();
    for (let cycle = 0; cycle < cycles; cycle += 1) {
      const name = `f-${cycle % 7}`;
      const wrote = await run(home, session.id, `head -c 1048576 /dev/urandom > ${name}; sha256sum ${name}`);
      known.set(name, wrote.text.split(' ')[0] ?? '');
      const how = interruptions[cycle % interruptions.length];
      switch (how) {
        case 'pause':
          await home.call('session/pause', { session: session.id });
          break;
        case 'stop':
          await home.call('session/stop', { session: session.id });
          break;
        case 'kill agent':
          await killContainer(home, session.id, 'agent');
          break;
        case 'kill sidecar':
          await killContainer(home, session.id, 'sidecar');
          break;
        case 'kill supervisor':
        case undefined:
          await killSupervisor();
          home = await servedHome();
      }
      const { text } = await run(home, session.id, 'sha256sum f-*');
      const now = new Map(
        text
          .trim()
          .split('\n')
          .map((line) => [line.split(/\s+/)[1], line.split(' ')[0]]),
      );
      expect(now, `cycle ${cycle}, after ${how ?? ''}`).toEqual(new Map([...known].sort()));
      const onHost = await readFile(join(home.path, 'workspaces', session.id, name));
      expect(hash('sha256', onHost)).toBe(known.get(name));
    }
    await home.call('session/stop', { session: session.id });
    await expectSettled(home);
    await expectWholeHistory(home, session.id);
  },
  soakCount(120_000, 1_200_000),
);
