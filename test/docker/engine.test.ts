import { chmodSync, existsSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { DockerEngine } from '../../supervisor/engine/docker/engine.ts';
import {
  EngineFixture,
  bareImage,
  echo,
  waitUntil,
  execSpec,
  runShell,
} from '../engine-harness/engine-fixture.ts';
import { engineAt } from '../engine-harness/private-engine.ts';
import { SECCOMP_TRIAL } from '../../supervisor/engine/docker/seccomp-profile.ts';
import { soakCount } from '../setup/run-length.ts';

const docker = engineAt('/var/run/docker.sock');
let image: Awaited<ReturnType<typeof bareImage>>;
let home: EngineFixture;
let engine: DockerEngine;

beforeAll(async () => {
  // The supervisor's umask: its files are private unless their modes are set.
  process.umask(0o077);
  image = await bareImage(docker);
  home = new EngineFixture({ image: image.reference });
  engine = home.engine;
});
afterAll(async () => {
  await home.close();
  await image.remove();
  expect(home.problems).toEqual([]);
});

async function mountsOf(container: string): Promise<string[]> {
  const { Mounts } = await docker.getContainer(container).inspect();
  return Mounts.filter(({ Type }) => Type === 'volume').map(({ Name }) => Name ?? '');
}

test('the engine applies the filter of system calls, and one that does not is found out', async () => {
  await engine.tryIsolation();
  const withDefault = await docker.createContainer({
    Image: __SIDECAR_IMAGE__,
    Cmd: ['busybox', 'sh', '-c', SECCOMP_TRIAL],
    HostConfig: { NetworkMode: 'none', CapDrop: ['ALL'] },
  });
  try {
    await withDefault.start();
    expect(await withDefault.wait()).toMatchObject({ StatusCode: 1 });
  } finally {
    await withDefault.remove({ force: true });
  }
});

describe('a sandbox', () => {
  test('is hardened as seen from inside, and has a user name', async () => {
    const spec = await home.createSession({ env: { MINE: 'a b\n"c"' } });
    await engine.startSandbox(spec);

    const status = await runShell(engine, spec.sessionId, 'cat /proc/self/status; cat /proc/1/status');
    expect(status.code).toBe(0);
    for (const caps of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) {
      expect(status.stdout.match(new RegExp(`^${caps}:\\t0+$`, 'gm')), caps).toHaveLength(2);
    }
    expect(status.stdout.match(/^NoNewPrivs:\t1$/gm)).toHaveLength(2);
    expect(status.stdout.match(/^Seccomp:\t2$/gm)).toHaveLength(2);

    const places = await runShell(
      engine,
      spec.sessionId,
      `for place in / /agent /opt/holdfast /etc /etc/passwd; do touch $place/x 2>/dev/null && echo "writable $place"; done
       for place in /workspace /tmp /run/holdfast "$HOME"; do touch $place/x || echo "closed $place"; done
       ls /ctl 2>/dev/null && echo 'the control socket is here'
       ls /sys/class/net; pwd; whoami; id -u; cat /agent/agent.py; echo '#!/opt/holdfast/busybox true' > /tmp/p; chmod +x /tmp/p; /tmp/p || echo 'noexec'`,
    );
    expect(places).toEqual({
      stdout: `lo\n/workspace\nagent\n${spec.uid}\nversion 1\n`,
      stderr: '',
      code: 0,
    });

    const env = await runShell(engine, spec.sessionId, 'env');
    for (const line of [
      'IMAGE_SAYS=hello',
      'HOME=/home/agent',
      'USER=agent',
      'LOGNAME=agent',
      'LANG=C.UTF-8',
    ]) {
      expect(env.stdout.split('\n')).toContain(line);
    }
    expect(env.stdout).toContain('MINE=a b\n"c"\n');
    expect(env.stdout).toMatch(/^GIT_AUTHOR_EMAIL=.+@.+$/m);
    expect(env.stdout).toMatch(/^HOLDFAST_EXEC=exec-[a-z2-7]{16}$/m);

    for (const side of ['sidecar', 'agent']) {
      const { HostConfig, Config } = await docker
        .getContainer(`hf-${home.homeId.slice(0, 8)}-${spec.sessionId}-${side}`)
        .inspect();
      expect(HostConfig).toMatchObject({
        CapDrop: ['ALL'],
        ReadonlyRootfs: true,
        Init: true,
        IpcMode: 'private',
        LogConfig: { Type: 'none' },
        RestartPolicy: { Name: 'no' },
        Privileged: false,
      });
      expect(HostConfig.Memory).toBeGreaterThan(0);
      expect(HostConfig.MemorySwap).toBe(HostConfig.Memory);
      expect(HostConfig.PidsLimit).toBeGreaterThan(0);
      expect(Config).toMatchObject({ User: `${spec.uid}:${spec.gid}`, Healthcheck: { Test: ['NONE'] } });
    }
    await engine.removeSandbox(spec.sessionId, 0);
  });

  test('is removed except for its workspace, with the volumes of its image', async () => {
    const spec = await home.createSession();
    const before = (await docker.listVolumes()).Volumes.map(({ Name }) => Name);
    await engine.startSandbox(spec);
    const { agent } = await engine.observeSession(spec.sessionId);
    const anonymous = await mountsOf(agent?.objectId ?? '');
    expect(anonymous.filter((name) => !before.includes(name))).toHaveLength(1);
    await runShell(
      engine,
      spec.sessionId,
      'echo kept > /workspace/file; mkdir -p /run/holdfast/a/b; chmod 0 /run/holdfast/a',
    );

    await engine.removeSandbox(spec.sessionId, 2000);
    await engine.removeSandbox(spec.sessionId, 2000);

    expect(await engine.observeSession(spec.sessionId)).toMatchObject({ sidecar: null, agent: null });
    const left = (await docker.listVolumes()).Volumes.map(({ Name }) => Name);
    expect(anonymous.filter((name) => left.includes(name))).toEqual([]);
    expect(readdirSync(join(home.folder, 'run'))).toEqual([]);
    expect(readdirSync(join(home.folder, 'workspaces', spec.sessionId))).toEqual(['file']);
  });

  test('is stopped with TERM, then KILL after the grace period', async () => {
    const spec = await home.createSession();
    const stop = async (line: string, graceMs: number): Promise<number> => {
      await engine.startSandbox(spec);
      const atTerm = join(home.folder, 'workspaces', spec.sessionId, 'at-term');
      writeFileSync(atTerm, line);
      chmodSync(atTerm, 0o644);
      const started = performance.now();
      await engine.stopAgent(spec.sessionId, graceMs);
      expect(await engine.observeSession(spec.sessionId)).toMatchObject({
        agent: null,
        sidecar: { state: 'running' },
      });
      return performance.now() - started;
    };
    const polite = await stop('echo bye > /workspace/said; exit 0', 30_000);
    expect(readdirSync(join(home.folder, 'workspaces', spec.sessionId))).toContain('said');
    expect(polite).toBeLessThan(20_000);
    const stubborn = await stop('true', 1000);
    expect(stubborn).toBeGreaterThan(950);
    // Less than an engine's own default.
    expect(stubborn).toBeLessThan(9000);
    await engine.removeSandbox(spec.sessionId, 0);
  });

  test('is paused and unpaused with its memory; both are idempotent; a paused one can be stopped', async () => {
    const spec = await home.createSession();
    await engine.startSandbox(spec);
    await runShell(engine, spec.sessionId, 'setsid sleep 1000 >/dev/null 2>&1 & echo $! > /workspace/pid');
    for (const verb of ['pause', 'pause'] as const) await engine[verb](spec.sessionId);
    expect((await engine.observeSession(spec.sessionId)).agent?.state).toBe('paused');
    await expect(runShell(engine, spec.sessionId, 'true')).rejects.toThrow(
      expect.objectContaining({ code: 'invalid_state' }),
    );
    expect(await echo(await engine.dial(spec.sessionId), 'the sidecar is awake')).toBe(
      'the sidecar is awake',
    );

    for (const verb of ['unpause', 'unpause'] as const) await engine[verb](spec.sessionId);
    expect(await runShell(engine, spec.sessionId, 'kill -0 $(cat /workspace/pid)')).toMatchObject({
      code: 0,
    });
    await engine.pause(spec.sessionId);
    await engine.startSandbox(spec);
    expect((await engine.observeSession(spec.sessionId)).agent?.state).toBe('running');
    await engine.pause(spec.sessionId);
    await engine.removeSandbox(spec.sessionId, 300);
    await expect(engine.pause(spec.sessionId)).rejects.toThrow(
      expect.objectContaining({ code: 'sandbox_lost' }),
    );
  });

  test('is paused and unpaused by several clients at once: each succeeds, and it can be stopped', async () => {
    const spec = await home.createSession();
    await engine.startSandbox(spec);
    const { agent } = await engine.observeSession(spec.sessionId);
    if (agent === null) throw new Error('it has no agent');
    const rounds = soakCount(8, 200);
    // Outside our own serialization, as another process or a person's `docker unpause` would.
    const beside = docker.getContainer(agent.objectId);
    for (let round = 0; round < rounds; round += 1) {
      await engine.pause(spec.sessionId);
      await Promise.all([
        engine.unpause(spec.sessionId),
        ...[1, 2, 3].map(() => beside.unpause().catch(() => undefined)),
      ]);
      expect((await engine.observeSession(spec.sessionId)).agent?.state).toBe('running');
    }
    await engine.pause(spec.sessionId);
    await Promise.all([
      beside.unpause().catch(() => undefined),
      engine.removeSandbox(spec.sessionId, 300),
      beside.unpause().catch(() => undefined),
    ]);
    expect((await engine.observeSession(spec.sessionId)).agent).toBeNull();
  });

  test('is reused if it exists, also by a new supervisor; only what changed is replaced', async () => {
    const spec = await home.createSession();
    const ids = async (): Promise<(string | undefined)[]> => {
      const { sidecar, agent } = await engine.observeSession(spec.sessionId);
      expect([sidecar?.state, agent?.state]).toEqual(['running', 'running']);
      return [sidecar?.objectId, agent?.objectId];
    };
    await engine.startSandbox(spec);
    const [sidecar, agent] = await ids();
    await home.restart();
    engine = home.engine;
    await Promise.all([engine.startSandbox(spec), engine.startSidecar(spec), engine.startSandbox(spec)]);
    expect(await ids()).toEqual([sidecar, agent]);

    await home.publishCode('tiny', 2);
    const next = { ...spec, code: { profile: 'tiny', version: 2 } };
    await engine.startSandbox(next);
    const [sidecar2, agent2] = await ids();
    expect(sidecar2).toBe(sidecar);
    expect(agent2).not.toBe(agent);
    expect(await runShell(engine, spec.sessionId, 'cat /agent/agent.py')).toMatchObject({
      stdout: 'version 2\n',
    });

    await engine.startSandbox({ ...next, generation: 2 });
    expect((await engine.observeSession(spec.sessionId)).agent?.generation).toBe(2);
    expect((await ids())[1]).not.toBe(agent2);

    await docker.getContainer((await ids())[1] ?? '').kill();
    await waitUntil(async () => (await engine.observeSession(spec.sessionId)).agent?.state === 'exited');
    expect((await engine.observeSession(spec.sessionId)).agent).toMatchObject({
      exitCode: 137,
      oomKilled: false,
    });
    await engine.startSandbox({ ...next, generation: 3 });
    expect((await ids())[0]).toBe(sidecar);
    await engine.removeSandbox(spec.sessionId, 0);
  });

  test('keeps one network namespace whichever container dies', async () => {
    const spec = await home.createSession();
    const namespace = async (container: string): Promise<string> => {
      const { State } = await docker.getContainer(container).inspect();
      return statSync(`/proc/${State.Pid}/ns/net`).ino.toString();
    };
    const both = async (): Promise<[string, string]> => {
      const { sidecar, agent } = await engine.observeSession(spec.sessionId);
      return [await namespace(sidecar?.objectId ?? ''), await namespace(agent?.objectId ?? '')];
    };
    await engine.startSandbox(spec);
    const [first, joined] = await both();
    expect(joined).toBe(first);
    await runShell(engine, spec.sessionId, 'setsid sleep 1000 >/dev/null 2>&1 & echo $! > /workspace/pid');

    // The sidecar dies: the next one joins the agent's namespace, and its processes survive.
    await docker.getContainer((await engine.observeSession(spec.sessionId)).sidecar?.objectId ?? '').kill();
    await engine.startSidecar(spec);
    expect(await both()).toEqual([first, first]);
    expect(await runShell(engine, spec.sessionId, 'kill -0 $(cat /workspace/pid)')).toMatchObject({
      code: 0,
    });
    expect(await echo(await engine.dial(spec.sessionId), 'again')).toBe('again');

    // The agent dies: the next one joins that sidecar.
    await engine.stopAgent(spec.sessionId, 0);
    await engine.startSandbox({ ...spec, generation: 2 });
    expect(await both()).toEqual([first, first]);
    expect(await runShell(engine, spec.sessionId, 'ls /sys/class/net')).toMatchObject({ stdout: 'lo\n' });
    await engine.removeSandbox(spec.sessionId, 0);
  });
});

describe('the sidecar', () => {
  test('is dialed while it is starting, and a missing one fails at once', async () => {
    const spec = await home.createSession();
    await expect(engine.dial(spec.sessionId)).rejects.toThrow(
      expect.objectContaining({ code: 'sandbox_lost' }),
    );
    const starting = engine.startSidecar(spec);
    await starting;
    const words = ['one', 'two', 'three'];
    const answers = await Promise.all(
      words.map(async (word) => echo(await engine.dial(spec.sessionId), word)),
    );
    expect(answers).toEqual(words);

    const { sidecar } = await engine.observeSession(spec.sessionId);
    rmSync(join(home.folder, 'run', spec.sessionId, 'control/sidecar.sock'));
    const waiting = engine.dial(spec.sessionId);
    waiting.catch(() => undefined);
    const killed = performance.now();
    await docker.getContainer(sidecar?.objectId ?? '').kill();
    await expect(waiting).rejects.toThrow(expect.objectContaining({ code: 'sandbox_lost' }));
    expect(performance.now() - killed).toBeLessThan(8000);
    await engine.removeSandbox(spec.sessionId, 0);
  });

  test('cannot redirect us to another socket with a link', async () => {
    const spec = await home.createSession();
    await engine.startSidecar(spec);
    (await engine.dial(spec.sessionId)).destroy();
    const socket = join(home.folder, 'run', spec.sessionId, 'control/sidecar.sock');
    rmSync(socket);
    symlinkSync('/var/run/docker.sock', socket);
    await expect(engine.dial(spec.sessionId)).rejects.toThrow(
      expect.objectContaining({ code: 'sandbox_failed' }),
    );
    await engine.removeSandbox(spec.sessionId, 0);
    expect(existsSync('/var/run/docker.sock')).toBe(true);
  });
});

describe('workspaces', () => {
  test.each(['directory', 'volume'] as const)(
    'a %s survives its sandboxes and is removed only when empty',
    async (backing) => {
      const spec = await home.createSession({}, backing);
      await engine.createWorkspace(spec.workspace);
      await engine.startSandbox(spec);
      expect(
        await runShell(engine, spec.sessionId, "stat -c '%u %a' /workspace; echo kept > /workspace/file"),
      ).toEqual({
        stdout: `${spec.uid} 700\n`,
        stderr: '',
        code: 0,
      });
      await engine.removeSandbox(spec.sessionId, 0);
      await engine.startSandbox({ ...spec, generation: 2 });
      expect(await runShell(engine, spec.sessionId, 'cat /workspace/file')).toMatchObject({
        stdout: 'kept\n',
      });
      if (backing === 'directory') {
        await expect(engine.deleteWorkspace(spec.workspace)).rejects.toThrow(
          expect.objectContaining({ code: 'conflict' }),
        );
        expect(engine.workspacePath(spec.workspace)).toBe(join(home.folder, 'workspaces', spec.sessionId));
      } else {
        expect(engine.workspacePath(spec.workspace)).toBeNull();
        expect(engine.workspaceVolume(spec.workspace)).toMatch(/-workspace$/);
      }
      await runShell(engine, spec.sessionId, 'rm /workspace/file');
      await engine.removeSandbox(spec.sessionId, 0);
      await engine.deleteWorkspace(spec.workspace);
      await engine.deleteWorkspace(spec.workspace);
      // A missing workspace is never silently created again, empty.
      await expect(engine.startSandbox(spec)).rejects.toThrow(
        expect.objectContaining({ code: 'sandbox_failed' }),
      );
      expect((await engine.observe()).filter(({ sessionId }) => sessionId === spec.sessionId)).toEqual([]);
    },
  );
});

describe('what cannot start', () => {
  test('a missing image or runtime gives a typed error and leaves nothing behind', async () => {
    const absent = await home.createSession({ image: 'holdfast-test/absent:1' });
    await expect(engine.startSandbox(absent)).rejects.toThrow(
      expect.objectContaining({
        code: 'image_not_found',
        message: expect.stringContaining('holdfast-test/absent:1') as string,
      }),
    );
    const odd = await home.createSession({ runtime: 'no-such-runtime' });
    await expect(engine.startSandbox(odd)).rejects.toThrow(
      expect.objectContaining({ code: 'sandbox_failed', next: expect.stringContaining('runtime') as string }),
    );
    for (const { sessionId } of [absent, odd]) {
      expect(await engine.observeSession(sessionId)).toMatchObject({ sidecar: null, agent: null });
    }
  });

  test('a stale container of ours is replaced; a foreign one is kept', async () => {
    const spec = await home.createSession();
    const name = `hf-${home.homeId.slice(0, 8)}-${spec.sessionId}-agent`;
    const stale = await docker.createContainer({
      name,
      Image: image.reference,
      Labels: { 'dev.holdfast.home': home.homeId },
    });
    await engine.startSandbox(spec);
    expect((await engine.observeSession(spec.sessionId)).agent?.objectId).not.toBe(stale.id);
    await engine.removeSandbox(spec.sessionId, 0);

    const foreign = await docker.createContainer({ name, Image: image.reference });
    try {
      await expect(engine.startSandbox(spec)).rejects.toThrow(
        expect.objectContaining({ code: 'sandbox_failed', next: expect.stringContaining(name) as string }),
      );
      expect((await foreign.inspect()).Id).toBe(foreign.id);
    } finally {
      await foreign.remove({ v: true });
    }
    expect((await engine.observe()).filter(({ sessionId }) => sessionId === spec.sessionId)).toEqual([]);
  });
});

test('two homes on one engine are isolated from each other', async () => {
  const other = new EngineFixture({ image: image.reference });
  try {
    const spec = await home.createSession();
    const theirs = await other.createSession({ sessionId: spec.sessionId });
    const heard: (string | null)[] = [];
    await waitUntil(() => other.engine.status().reachable);
    const unwatch = other.engine.watch(({ sessionId }) => heard.push(sessionId));
    heard.length = 0;
    await engine.startSandbox(spec);
    expect(await other.engine.observe()).toEqual([]);
    expect(await other.engine.observeSession(spec.sessionId)).toMatchObject({ sidecar: null, agent: null });
    await other.engine.removeSandbox(theirs.sessionId, 0);
    expect((await engine.observeSession(spec.sessionId)).agent?.state).toBe('running');
    expect(heard.filter((sessionId) => sessionId !== null)).toEqual([]);
    unwatch();
    await expect(other.engine.exec(spec.sessionId, execSpec(['true']))).rejects.toThrow(
      expect.objectContaining({ code: 'sandbox_lost' }),
    );
    await engine.removeSandbox(spec.sessionId, 0);
  } finally {
    await other.close();
  }
});
