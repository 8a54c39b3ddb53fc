import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SandboxSpec } from '../../supervisor/engine/port.ts';
import {
  BUSYBOX,
  EngineFixture,
  bareImage,
  waitUntil,
  execSpec,
  collectExec,
  runShell,
  readText,
} from '../engine-harness/engine-fixture.ts';
import { engineAt } from '../engine-harness/private-engine.ts';

const docker = engineAt('/var/run/docker.sock');
let image: Awaited<ReturnType<typeof bareImage>>;
let home: EngineFixture;
let spec: SandboxSpec;

beforeAll(async () => {
  // The supervisor's umask: its files are private unless their modes are set.
  process.umask(0o077);
  image = await bareImage(docker);
  home = new EngineFixture({ image: image.reference });
  spec = await home.createSession();
  await home.engine.startSandbox(spec);
});
afterAll(async () => {
  await home.close();
  await image.remove();
});

function run(
  command: readonly string[],
  change: Parameters<typeof execSpec>[1] = {},
): ReturnType<EngineFixture['engine']['exec']> {
  return home.engine.exec(spec.sessionId, execSpec(command, change));
}
const sh = (line: string, change: Parameters<typeof execSpec>[1] = {}): ReturnType<typeof run> =>
  run([BUSYBOX, 'sh', '-c', line], change);

describe('an exec', () => {
  test('separates the outputs, passes every byte, and gives the exit code', async () => {
    const exec = await sh('echo out; echo err >&2; exit 42');
    expect(await collectExec(exec)).toEqual({ stdout: 'out\n', stderr: 'err\n', code: 42 });
    const binary = await collectExec(
      await sh('printf \'\\000\\377\\n\'; printf "%s" "$ODD"', { env: { ODD: 'a=b "c"\nd' } }),
    );
    expect(binary.stdout.endsWith('a=b "c"\nd')).toBe(true);
  });

  test('gets its input up to its end', async () => {
    const exec = await sh('wc -c', { stdin: true });
    const size = 3_000_000;
    exec.stdin.end(Buffer.alloc(size, 'x'));
    expect(await collectExec(exec)).toEqual({ stdout: `${size}\n`, stderr: '', code: 0 });
  });

  test('whose program or folder is missing exits with 126 or 127 and says so', async () => {
    const absent = await collectExec(await run(['/no/such/program']));
    // The engine chooses one of the two.
    expect([126, 127]).toContain(absent.code);
    expect(absent.stdout + absent.stderr).toMatch(/no such file/);
    const closed = await collectExec(await run(['/agent/agent.py']));
    expect(closed.code).toBe(126);
    expect(closed.stdout + closed.stderr).toMatch(/permission denied/);
  });

  test('with much output to a slow reader does not fill our memory', async () => {
    const exec = await sh('yes 0123456789012345678901234567890123456789 | head -c 100000000');
    exec.stderr?.resume();
    const before = process.memoryUsage().rss;
    await sleep(1500);
    expect(process.memoryUsage().rss - before).toBeLessThan(40 * 2 ** 20);
    let size = 0;
    for await (const chunk of exec.stdout) size += Buffer.byteLength(chunk);
    expect(size).toBe(100_000_000);
    expect(await exec.exited).toBe(0);
  });

  test('has a terminal of the requested size that can be resized and accepts input', async () => {
    const exec = await sh(
      'until [ "$(stty size 2>/dev/null)" = "40 100" ]; do sleep 0.05; done; trap "stty size; exit 5" WINCH; echo ready; while read x; do echo "got $x"; done',
      {
        tty: { columns: 100, rows: 40 },
        stdin: true,
      },
    );
    expect(exec.stderr).toBeNull();
    let screen = '';
    exec.stdout.on('data', (chunk: Buffer) => (screen += chunk.toString()));
    await waitUntil(() => screen.includes('ready\r\n'));
    expect(screen).toBe('ready\r\n');
    exec.stdin.write('hello\r');
    await waitUntil(() => screen.includes('got hello'));
    await exec.resize(132, 50);
    exec.stdin.write('\r');
    expect(await exec.exited).toBe(5);
    await waitUntil(() => screen.includes('50 132'));
  });

  test('a resize while paused takes effect after the unpause', async () => {
    const exec = await sh('echo ready; read x; stty size', { tty: { columns: 80, rows: 24 }, stdin: true });
    let screen = '';
    exec.stdout.on('data', (chunk: Buffer) => (screen += chunk.toString()));
    await waitUntil(() => screen.includes('ready'));
    await home.engine.pause(spec.sessionId);
    await exec.resize(90, 30);
    await home.engine.unpause(spec.sessionId);
    exec.stdin.write('\r');
    expect(await exec.exited).toBe(0);
    await waitUntil(() => screen.includes('30 90'));
  });

  test('continues after the client detaches', async () => {
    const exec = await sh('while :; do echo tick; sleep 0.05; done', { execId: 'exec-letgo' });
    await once(exec.stdout, 'data');
    exec.detach();
    await sleep(300);
    const still = await runShell(
      home.engine,
      spec.sessionId,
      'grep -l HOLDFAST_EXEC=exec-letgo /proc/[0-9]*/environ 2>/dev/null',
    );
    expect(still.stdout).toMatch(/environ/);
    await runShell(
      home.engine,
      spec.sessionId,
      'for e in $(grep -l HOLDFAST_EXEC=exec-letgo /proc/[0-9]*/environ 2>/dev/null); do e=${e#/proc/}; kill -9 ${e%/environ}; done',
    );
  });

  test('whose sandbox is removed ends without an exit code', async () => {
    const doomed = await home.createSession();
    await home.engine.startSandbox(doomed);
    const exec = await home.engine.exec(
      doomed.sessionId,
      execSpec([BUSYBOX, 'sh', '-c', 'echo begun; sleep 1000']),
    );
    await once(exec.stdout, 'readable');
    const end = Promise.all([readText(exec.stdout), exec.exited]);
    await home.engine.removeSandbox(doomed.sessionId, 0);
    expect(await end).toEqual(['begun\n', null]);
    await expect(home.engine.exec(doomed.sessionId, execSpec(['true']))).rejects.toThrow(
      expect.objectContaining({ code: 'sandbox_lost' }),
    );
  });
});

describe('an engine that does not see our files', () => {
  test('gets all files through volumes, and the sidecar is reached through exec', async () => {
    const far = new EngineFixture({ image: image.reference, mountMode: 'volumes' });
    try {
      const { engine } = far;
      await expect(far.createSession()).rejects.toThrow(expect.objectContaining({ code: 'not_supported' }));
      const there = await far.createSession({ uid: 1000, gid: 1000 }, 'volume');
      await engine.createWorkspace({ ...there.workspace, uid: 1000, gid: 1000 });
      await engine.startSandbox(there);
      expect(engine.capabilities().localPaths).toBe(false);
      const seen = await runShell(
        engine,
        there.sessionId,
        'cat /agent/agent.py; id -u; touch /agent/x 2>/dev/null || echo ro; echo kept > /workspace/file; touch /run/holdfast/x; ls /ctl 2>/dev/null',
      );
      expect(seen.stdout).toBe('version 1\n1000\nro\n');

      const big = Buffer.alloc(8 * 2 ** 20, 'y');
      const channel = await engine.dial(there.sessionId);
      const back = received(channel);
      channel.end(big);
      expect((await back).equals(big)).toBe(true);
      const dropped = await engine.dial(there.sessionId);
      dropped.destroy();
      await once(dropped, 'close');

      await engine.removeSandbox(there.sessionId, 0);
      const roles = async (): Promise<string[]> => (await engine.observe()).map(({ role }) => role).sort();
      expect(await roles()).toEqual(['code', 'home', 'runtime', 'workspace']);
      // A pruned volume is created and filled again, not mistaken for the old one.
      for (const object of await engine.observe())
        if (object.role !== 'workspace') await engine.removeObject(object);
      await far.restart();
      await far.engine.startSandbox({ ...there, generation: 2 });
      const again = await runShell(far.engine, there.sessionId, 'cat /agent/agent.py /workspace/file');
      expect(again.stdout).toBe('version 1\nkept\n');
      await far.engine.removeSandbox(there.sessionId, 0);
      await far.engine.removeCode('tiny', 1);
      await far.engine.deleteWorkspace(there.workspace);
      expect((await far.engine.observe()).map(({ role }) => role)).toEqual(['runtime']);
    } finally {
      await far.close();
    }
  });
});

async function received(stream: Duplex): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const chunk of stream) parts.push(chunk as Buffer);
  return Buffer.concat(parts);
}
