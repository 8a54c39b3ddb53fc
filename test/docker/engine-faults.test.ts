import { mkdtempSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { EngineStatus } from '../../protocol/entities.ts';
import { EngineFixture, bareImage, echo, waitUntil, runShell } from '../engine-harness/engine-fixture.ts';
import { PrivateEngine, engineAt, privateEngineObstacle } from '../engine-harness/private-engine.ts';

const obstacle = privateEngineObstacle();
/** Longer than a busy machine delays an engine, because every timeout is reported. */
const QUICK_MS = 3000;
const SEEN_MS = 30_000;
const patience = { queryMs: QUICK_MS, operationMs: 30_000 };

let image: Awaited<ReturnType<typeof bareImage>>;
const cleanups: (() => Promise<void>)[] = [];

beforeAll(async () => {
  // The supervisor's umask: its files are private unless their modes are set.
  process.umask(0o077);
  if (obstacle === null) image = await bareImage(engineAt('/var/run/docker.sock'));
});
afterEach(async () => {
  const failures: unknown[] = [];
  for (const cleanup of cleanups.splice(0).reverse()) {
    await cleanup().catch((error: unknown) => failures.push(error));
  }
  expect(failures).toEqual([]);
});
afterAll(async () => {
  if (obstacle === null) await image.remove();
});

async function privateEngine(
  options: Parameters<typeof PrivateEngine.start>[0] = {},
): Promise<PrivateEngine> {
  const engine = await PrivateEngine.start({ images: [__SIDECAR_IMAGE__, image.reference], ...options });
  cleanups.push(() => engine.close());
  return engine;
}

function homeOn(
  engine: PrivateEngine,
  options: Partial<ConstructorParameters<typeof EngineFixture>[0]> = {},
): EngineFixture {
  const home = new EngineFixture({
    image: image.reference,
    endpoint: engine.socketPath,
    timeouts: patience,
    pingIntervalMs: 300,
    ...options,
  });
  cleanups.push(() => home.close());
  return home;
}

function statuses(home: EngineFixture): EngineStatus[] {
  const seen: EngineStatus[] = [];
  home.engine.onStatus((status) => seen.push(status));
  return seen;
}

describe.skipIf(obstacle !== null)(`an engine that fails (${obstacle ?? 'private'})`, () => {
  test('killed: a status with a next step; restarted: reconnected by itself, containers are observed as they are', async () => {
    const daemon = await privateEngine();
    const home = homeOn(daemon);
    const { engine } = home;
    const spec = await home.createSession();
    await engine.startSandbox(spec);
    const channel = await engine.dial(spec.sessionId);
    channel.on('error', () => {});
    const exec = await engine.exec(spec.sessionId, {
      execId: 'exec-a',
      command: ['/opt/holdfast/busybox', 'sleep', '1000'],
      env: {},
      cwd: '/workspace',
      tty: null,
      stdin: false,
    });
    const seen = statuses(home);
    let anything = 0;
    engine.watch(({ sessionId }) => {
      if (sessionId === null) anything += 1;
    });

    await daemon.killDaemon();
    await waitUntil(() => !engine.status().reachable, SEEN_MS);
    expect(engine.status()).toMatchObject({
      why: expect.stringMatching(/stopped|broke off|ended/) as string,
      next: expect.stringContaining('docker') as string,
      version: expect.any(String) as string,
    });
    const refused: unknown = expect.objectContaining({
      code: 'engine_unavailable',
      next: expect.any(String) as string,
    });
    await expect(engine.observe()).rejects.toThrow(refused);
    await expect(engine.startSandbox(spec)).rejects.toThrow(refused);
    expect(await exec.exited).toBeNull();
    expect(await engine.probe()).toMatchObject({ reachable: false });

    await daemon.startDaemon();
    await waitUntil(() => engine.status().reachable, SEEN_MS);
    await waitUntil(() => anything > 0, SEEN_MS);
    expect(
      seen.map(({ reachable }) => reachable).filter((one, index, all) => one !== all[index - 1]),
    ).toEqual([false, true]);
    // Without live-restore all containers have exited; the next start creates them again.
    expect(await engine.observeSession(spec.sessionId)).toMatchObject({
      sidecar: { state: 'exited' },
      agent: { state: 'exited' },
    });
    await engine.startSandbox({ ...spec, generation: 2 });
    expect(await echo(await engine.dial(spec.sessionId), 'back')).toBe('back');
    expect(home.problems).toEqual([]);
  });

  test('killed with live-restore: sandboxes and the channel to the sidecar survive', async () => {
    const daemon = await privateEngine({ liveRestore: true });
    const home = homeOn(daemon);
    const spec = await home.createSession();
    await home.engine.startSandbox(spec);
    const before = await home.engine.observeSession(spec.sessionId);
    await daemon.killDaemon();
    await waitUntil(() => !home.engine.status().reachable, SEEN_MS);
    await daemon.startDaemon();
    await waitUntil(() => home.engine.status().reachable, SEEN_MS);
    await home.engine.startSandbox(spec);
    expect(await home.engine.observeSession(spec.sessionId)).toEqual(before);
    expect(await runShell(home.engine, spec.sessionId, 'cat /agent/agent.py')).toMatchObject({
      stdout: 'version 1\n',
    });
  });

  test('hanging: every call fails with a typed error in time, and works when the engine does', async () => {
    const daemon = await privateEngine();
    const home = homeOn(daemon);
    const { engine } = home;
    const spec = await home.createSession();
    await engine.startSandbox(spec);
    daemon.freezeDaemon();
    try {
      const calls: (() => Promise<unknown>)[] = [
        () => engine.observe(),
        () => engine.observeSession(spec.sessionId),
        () => engine.pause(spec.sessionId),
        () => engine.startSandbox({ ...spec, generation: 2 }),
        () => engine.removeSandbox(spec.sessionId, 1000),
        () => runShell(engine, spec.sessionId, 'true'),
        () => engine.images.has(image.reference),
        () => engine.facts(),
      ];
      const started = performance.now();
      const results = await Promise.allSettled(calls.map((call) => call()));
      // By the query timeout, not the operation timeout.
      expect(performance.now() - started).toBeLessThan(patience.operationMs / 2);
      for (const [index, result] of results.entries()) {
        expect(result, String(calls[index])).toMatchObject({
          status: 'rejected',
          reason: {
            code: 'engine_unavailable',
            why: expect.stringContaining('did not answer within') as string,
          },
        });
      }
      expect(engine.status()).toMatchObject({
        reachable: false,
        why: expect.stringContaining('did not answer') as string,
      });
      // The sidecar works without the engine.
      expect(await echo(await engine.dial(spec.sessionId), 'still')).toBe('still');
    } finally {
      daemon.thawDaemon();
    }
    await waitUntil(() => engine.status().reachable, SEEN_MS);
    expect((await engine.observeSession(spec.sessionId)).sidecar?.state).toBe('running');
  });

  test('a pull fails with a typed error when the engine dies', async () => {
    const daemon = await privateEngine({ images: [] });
    const home = homeOn(daemon);
    await waitUntil(() => home.engine.status().reachable);
    // Unroutable: the engine retries for a while.
    const pulling = home.engine.images.pull('10.255.255.1/thing:1', () => {}, new AbortController().signal);
    pulling.catch(() => {});
    daemon.freezeDaemon();
    daemon.thawDaemon();
    await daemon.killDaemon();
    await expect(pulling).rejects.toThrow(
      expect.objectContaining({
        code: expect.stringMatching(/^(engine_unavailable|image_pull_failed)$/) as string,
      }),
    );
    await daemon.startDaemon();
  });

  test('without our files: detected, and volumes are used instead', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'hfe-far-'));
    const daemon = await privateEngine({ hides: folder });
    const home = homeOn(daemon, { home: folder, timeouts: { queryMs: 10_000, operationMs: 30_000 } });
    const spec = await home.createSession({ uid: 1000, gid: 1000 }, 'volume');
    expect(home.engine.capabilities().localPaths).toBe(false);
    const remembered = await readFile(join(folder, 'engine/local-paths.json'), 'utf8');
    expect(Object.values(JSON.parse(remembered) as object)).toEqual([false]);
    await home.engine.startSandbox(spec);
    expect(await runShell(home.engine, spec.sessionId, 'cat /agent/agent.py')).toMatchObject({
      stdout: 'version 1\n',
    });
    expect(await echo(await home.engine.dial(spec.sessionId), 'from afar')).toBe('from afar');
  });
});
