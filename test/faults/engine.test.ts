import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Session, Turn } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { bareImage } from '../engine-harness/engine-fixture.ts';
import { engineAt, PrivateEngine, privateEngineObstacle } from '../engine-harness/private-engine.ts';
import { APPLETS, bareProject } from './harness/bare-profile.ts';
import { expectSettled, expectWholeHistory, turnOutput } from './harness/expectations.ts';
import type { FaultHome } from './harness/fault-home.ts';
import { waitForTurn, waitUntil, useFaultFixture } from './harness/fault-fixture.ts';
import { printInSoak } from '../setup/run-length.ts';

const obstacle = privateEngineObstacle();

/** A hanging engine is unreachable after ten seconds, and a request may wait for two such timeouts. */
const BOUND_MS = 30_000;
/** Less than the timeout of the engine: nobody waits for it. */
const LIST_MS = 8000;

let image: Awaited<ReturnType<typeof bareImage>>;
beforeAll(async () => {
  if (obstacle === null) image = await bareImage(engineAt('/var/run/docker.sock'));
});
afterAll(async () => {
  if (obstacle === null) await image.remove();
});

async function privateEngine(liveRestore: boolean): Promise<PrivateEngine> {
  return await PrivateEngine.start({ liveRestore, images: [__SIDECAR_IMAGE__, image.reference] });
}

const numbered = (lines: number): string =>
  Array.from({ length: lines }, (_, at) => `line ${at + 1}\n`).join('');
const slow = (lines: number): string =>
  `${APPLETS}n=1; while [ $n -le ${lines} ]; do echo line $n; echo $n > progress; n=$((n+1)); sleep 0.1; done`;

async function progress(home: FaultHome, session: string): Promise<number> {
  const path = join(home.path, 'workspaces', session, 'progress');
  return Number(await readFile(path, 'utf8').catch(() => '0'));
}

async function run(home: FaultHome, session: string, prompt: string): Promise<{ turn: Turn; text: string }> {
  const { turn } = await home.call('turn/start', { session, prompt: APPLETS + prompt });
  const after = await waitForTurn(home, turn.turnId);
  expect(after).toMatchObject({ status: 'succeeded', error: null });
  return { turn: after, text: (await turnOutput(home, turn.turnId, 'stdout')).toString() };
}

async function timed<T>(work: Promise<T>): Promise<{ ms: number; failure: HoldfastError | null }> {
  const asked = performance.now();
  const failure = await work.then(
    () => null,
    (error: unknown) => HoldfastError.from(error),
  );
  return { ms: performance.now() - asked, failure };
}

/** What people can do without an engine. */
async function expectUsable(home: FaultHome, session: string): Promise<void> {
  const asked = performance.now();
  const { sessions } = await home.call('session/list', {});
  expect(sessions.map(({ id }) => id)).toContain(session);
  await home.call('session/events', { session });
  expect(performance.now() - asked).toBeLessThan(LIST_MS);
}

async function unreachable(home: FaultHome): Promise<boolean> {
  return !(await home.call('supervisor/status', {})).engine.reachable;
}

describe.skipIf(obstacle !== null)(`an engine without live-restore (${obstacle ?? 'private'})`, () => {
  const bench = useFaultFixture(afterAll);
  let engine: PrivateEngine;
  let home: FaultHome;
  beforeAll(async () => {
    engine = await privateEngine(false);
    bench.onCleanup(() => engine.close());
    home = await bench.createHome({
      env: { DOCKER_HOST: `unix://${engine.socketPath}` },
      docker: engine.docker,
    });
    await home.start();
    await bench.deploy(home, bareProject('bare', image.reference));
    await bench.deploy(home, bareProject('volume', image.reference, 'workspace: { backing: volume }\n'));
  });

  test('killed during a turn: reported as unreachable, and the loss is reported after the restart', async () => {
    const { session } = await home.call('session/create', { profile: 'bare' });
    const { turn } = await home.call('turn/start', { session: session.id, prompt: slow(3000) });
    await waitUntil('the turn is running', async () => (await progress(home, session.id)) > 10, 20_000);
    await engine.killDaemon();
    await waitUntil('it is known as down', () => unreachable(home), 20_000);
    await expectUsable(home, session.id);
    const other = await home.call('turn/start', { profile: 'bare', name: 'other', prompt: 'echo no' });
    expect(await waitForTurn(home, other.turn.turnId)).toMatchObject({
      status: 'failed',
      error: {
        data: {
          code: 'engine_unavailable',
          why: expect.any(String) as string,
          next: expect.any(String) as string,
        },
      },
    });

    await engine.startDaemon();
    const after = await waitForTurn(home, turn.turnId);
    expect(after).toMatchObject({ status: 'failed', error: { data: { code: 'sandbox_lost' } } });
    const written = await progress(home, session.id);
    const kept = (await turnOutput(home, turn.turnId, 'stdout')).toString();
    expect(numbered(3000).startsWith(kept)).toBe(true);
    expect(kept.split('\n').length - 1).toBeGreaterThanOrEqual(written);
    await expectSettled(home);
    expect((await home.call('session/show', { session: session.id })).session.status).toBe('resumable');
    const { turn: next, text } = await run(home, session.id, 'cat progress');
    expect([next.sandbox?.case, text]).toEqual(['reattach', `${written}\n`]);
    await expectWholeHistory(home, session.id);
    await home.call('session/stop', { session: session.id });
  });

  test('that is down: a fork is created, says why it has no files, and gets them after the restart', async () => {
    const { session } = await home.call('session/create', { profile: 'bare' });
    await run(home, session.id, 'echo kept > f');
    const { id: snapshot } = await home.call('snapshot/create', { session: session.id });
    await home.call('session/stop', { session: session.id });
    await engine.killDaemon();
    await waitUntil('it is known as down', () => unreachable(home), 20_000);
    const fork = (await home.call('snapshot/fork', { snapshot })).session;
    const filling = async (): Promise<Session['hydration']> =>
      (await home.call('session/show', { session: fork.id })).session.hydration;
    await waitUntil('it is told', async () => (await filling())?.failed?.code !== undefined, BOUND_MS);
    expect(await filling()).toMatchObject({ snapshotId: snapshot, failed: { code: 'engine_unavailable' } });
    await engine.startDaemon();
    await waitUntil('its files are there', async () => (await filling()) === null, 60_000);
    expect((await run(home, fork.id, 'cat f')).text).toBe('kept\n');
    await expectSettled(home, 15_000);
    await expectWholeHistory(home, fork.id);
    await home.call('session/stop', { session: fork.id });
  }, 180_000);

  test('that is down during an undeploy: the undeploy fails, and a later deploy of the name is not affected', async () => {
    const project = bareProject('reused', image.reference);
    await bench.deploy(home, project);
    const { session } = await home.call('session/create', { profile: 'reused', name: 'first' });
    await run(home, session.id, 'echo first > f');
    await engine.killDaemon();
    await waitUntil('it is known as down', () => unreachable(home), 20_000);
    await expect(home.call('profile/undeploy', { profile: 'reused', force: true })).rejects.toMatchObject({
      code: 'engine_unavailable',
    });
    await expect(
      home.call('session/delete', { session: session.id, force: true, opId: 'op-engine-away' }),
    ).rejects.toMatchObject({ code: 'engine_unavailable' });
    await engine.startDaemon();
    await waitUntil('it is known as up', async () => !(await unreachable(home)), 20_000);
    await bench.deploy(home, { ...project, more: 'more' });
    expect((await run(home, session.id, 'cat f; echo second > f')).text).toBe('first\n');
    const { pid } = await home.call('supervisor/status', {});
    process.kill(pid, 'SIGKILL');
    await home.start();
    await expectSettled(home, 15_000);
    expect((await run(home, session.id, 'cat f')).text).toBe('second\n');
    await home.call('profile/undeploy', { profile: 'reused', force: true });
  }, 180_000);

  test('that hangs: every request fails with a typed error in time, and works when the engine does', async () => {
    const { session } = await home.call('session/create', { profile: 'bare' });
    await run(home, session.id, 'echo kept > f');
    const { session: stopped } = await home.call('session/create', { profile: 'bare' });
    engine.freezeDaemon();
    try {
      const asked = [
        timed(home.call('session/pause', { session: session.id })),
        timed(home.call('session/resume', { session: stopped.id })),
        timed(home.call('exec/start', { session: session.id, command: ['busybox', 'true'] })),
        timed(home.call('session/create', { profile: 'bare', name: 'meanwhile' })),
      ];
      await sleep(500);
      await expectUsable(home, session.id);
      const answers = await Promise.all(asked);
      printInSoak(
        `a hanging engine: ${answers.map(({ ms, failure }) => `${failure?.code ?? 'done'} ${Math.round(ms)} ms`).join(', ')}`,
      );
      for (const { ms, failure } of answers) {
        expect(['engine_unavailable', 'timeout', undefined]).toContain(failure?.code);
        expect(ms).toBeLessThan(BOUND_MS);
      }
      expect(answers.slice(0, 3).map(({ failure }) => failure === null)).toEqual([false, false, false]);
      await waitUntil('it is known as down', () => unreachable(home), 30_000);
    } finally {
      engine.thawDaemon();
    }
    await waitUntil('it is known as up', async () => !(await unreachable(home)), 30_000);
    expect((await run(home, session.id, 'cat f')).text).toBe('kept\n');
    await expectSettled(home, 15_000);
    await home.call('session/stop', { session: session.id });
  }, 180_000);

  test('that is missing at the start: people can browse, and everything works once it runs', async () => {
    const { session } = await home.call('session/create', { profile: 'bare' });
    await run(home, session.id, 'echo kept > f');
    const { pid } = await home.call('supervisor/status', {});
    process.kill(pid, 'SIGKILL');
    await engine.stopDaemon();
    const supervisor = await (async () => {
      try {
        const started = await home.start();
        const list = await bench.runHoldfast(home, ['session', 'list']);
        expect([list.code, list.stdout]).toEqual([
          0,
          expect.stringContaining(session.id.slice(0, 8)) as string,
        ]);
        const status = await bench.runHoldfast(home, ['supervisor', 'status', '--json']);
        expect(JSON.parse(status.stdout)).toMatchObject({
          engine: { reachable: false, why: expect.any(String) as string, next: expect.any(String) as string },
        });
        const doctor = await bench.runHoldfast(home, ['doctor']);
        expect(doctor.stdout).toMatch(/engine/);
        expect(doctor.code).not.toBe(0);
        const refused = await bench.runHoldfast(home, ['run', 'bare', 'echo no']);
        expect(refused.code).not.toBe(0);
        expect(refused.stderr).toMatch(/^error engine_unavailable: .*;.*;/m);
        expect(refused.stderr).not.toMatch(/\bat .*:\d+:\d+/);
        return started;
      } finally {
        await engine.startDaemon();
      }
    })();
    await waitUntil('it is known as up', async () => !(await unreachable(home)), 20_000);
    expect((await run(home, session.id, 'cat f')).text).toBe('kept\n');
    expect((await home.call('supervisor/status', {})).pid).toBe(supervisor.pid);
    await expectSettled(home);
    await home.call('session/stop', { session: session.id });
  });

  test('that is pruned: a resumable session in a directory loses nothing', async () => {
    const sessions = await Promise.all(
      ['bare', 'volume'].map(async (profile) => {
        const { session } = await home.call('session/create', { profile });
        await run(home, session.id, 'head -c 100000 /dev/urandom > f; sha256sum f > sum');
        return session.id;
      }),
    );
    const [directory = '', volume = ''] = sessions;
    await home.call('session/stop', { session: directory });
    // `docker volume prune -f --all`, then `docker system prune -f --volumes`; some engines remove named volumes with
    // the first.
    await engine.docker
      .pruneVolumes({ filters: { all: ['true'] } })
      .catch(() => engine.docker.pruneVolumes());
    await engine.docker.pruneContainers();
    await engine.docker.pruneNetworks();
    await engine.docker.pruneImages();
    await engine.docker.pruneVolumes();
    // The engine keeps a volume that is in use.
    for (const id of sessions) {
      expect((await run(home, id, 'sha256sum -c sum')).text).toBe('f: OK\n');
      await home.call('session/stop', { session: id });
    }
    await home.call('session/delete', { session: volume, force: true });
    await expectSettled(home);
  });
});

describe.skipIf(obstacle !== null)(`an engine with live-restore (${obstacle ?? 'private'})`, () => {
  const bench = useFaultFixture(afterAll);

  test('restarted during a turn: the turn is not affected', async () => {
    const engine = await privateEngine(true);
    bench.onCleanup(() => engine.close());
    const home = await bench.createHome({
      env: { DOCKER_HOST: `unix://${engine.socketPath}` },
      docker: engine.docker,
    });
    await home.start();
    await bench.deploy(home, bareProject('bare', image.reference));
    const { session } = await home.call('session/create', { profile: 'bare' });
    const { turn } = await home.call('turn/start', { session: session.id, prompt: slow(100) });
    await waitUntil('the turn is running', async () => (await progress(home, session.id)) > 10, 20_000);
    await engine.killDaemon();
    await waitUntil('it is known as down', () => unreachable(home), 20_000);
    await expectUsable(home, session.id);
    await engine.startDaemon();
    expect(await waitForTurn(home, turn.turnId)).toMatchObject({ status: 'succeeded', error: null });
    expect((await turnOutput(home, turn.turnId, 'stdout')).toString()).toBe(numbered(100));
    await expectSettled(home, 15_000);
    expect((await run(home, session.id, 'cat progress')).turn.sandbox?.case).toBe('reuse');
    await expectWholeHistory(home, session.id);
  });
});
