import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, chown, cp, mkdir, readFile, stat } from 'node:fs/promises';
import { createConnection, createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import Docker from 'dockerode';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { shellProject } from '../setup/profiles.ts';
import { expectSettled, turnOutput } from './harness/expectations.ts';
import { BUNDLE, type FaultHome } from './harness/fault-home.ts';
import { waitForTurn, waitUntil, useFaultFixture } from './harness/fault-fixture.ts';

const execute = promisify(execFile);
const COUNTER = join(import.meta.dirname, '../../examples/counter');
const ENGINE = '/var/run/docker.sock';
/** A uid without name, home or groups. */
const STRANGER = 12_345;
const isRoot = process.getuid?.() === 0;

const bench = useFaultFixture();

async function busySession(home: FaultHome): Promise<{ session: string; turn: string }> {
  await bench.deploy(home, shellProject('shell'));
  const { session } = await home.call('session/create', { profile: 'shell', name: 'mine' });
  const prompt = 'n=0; while [ $n -lt 80 ]; do n=$((n+1)); echo $n; sleep 0.05; done';
  const { turn } = await home.call('turn/start', { session: session.id, prompt });
  await waitUntil('the turn writes', async () => {
    return (await home.call('turn/show', { turn: turn.turnId })).turn.bytes.stdout > 0;
  });
  return { session: session.id, turn: turn.turnId };
}
const counted = Array.from({ length: 80 }, (_, at) => `${at + 1}\n`).join('');

describe('homes', () => {
  test('with five supervisors at once: one serves, the others refuse and change nothing', async () => {
    const home = await bench.createHome();
    const all = Array.from({ length: 5 }, () => home.spawn());
    await waitUntil('four have refused', () => all.filter(({ isRunning }) => isRunning).length === 1, 30_000);
    for (const one of all.filter(({ isRunning }) => !isRunning)) {
      expect(await one.exited).toEqual({ code: 3, signal: null });
    }
    expect((await home.readLog()).match(/home_locked/g)?.length).toBeGreaterThanOrEqual(4);
    await waitUntil('the one serves', () =>
      home.connect().then(
        () => true,
        () => false,
      ),
    );
    const { turn } = await busySession(home);
    const late = home.spawn();
    expect(await late.waitForExit(30_000)).toEqual({ code: 3, signal: null });
    expect(await waitForTurn(home, turn)).toMatchObject({ status: 'succeeded' });
    expect((await turnOutput(home, turn, 'stdout')).toString()).toBe(counted);
    await expectSettled(home);
  });

  test('two on one engine: neither lists, removes or stops containers of the other', async () => {
    const [one, other] = [await bench.createHome(), await bench.createHome()];
    await Promise.all([one.start(), other.start()]);
    const [mine, theirs] = [await busySession(one), await busySession(other)];
    expect((await one.call('session/list', {})).sessions.map(({ id }) => id)).toEqual([mine.session]);
    expect((await other.call('session/list', {})).sessions.map(({ id }) => id)).toEqual([theirs.session]);
    await expect(other.call('session/stop', { session: mine.session })).rejects.toMatchObject({
      code: 'not_found',
    });
    const before = (await one.listObjects()).map(({ id, state }) => [id, state]).sort();
    expect((await other.call('gc', {})).removed).toEqual([]);
    await other.call('purge', { force: true });
    await waitUntil('the other is gone', () => !existsSync(other.path));
    expect((await one.listObjects()).map(({ id, state }) => [id, state]).sort()).toEqual(before);
    expect(await waitForTurn(one, mine.turn)).toMatchObject({ status: 'succeeded' });
    expect((await turnOutput(one, mine.turn, 'stdout')).toString()).toBe(counted);
    await expectSettled(one);
  });

  test('with a path of 200 characters and spaces: the whole counter example', async () => {
    const folder = await bench.temporaryFolder();
    const path = join(folder, 'a home with spaces', 'and more of them, ä', 'x'.repeat(140), 'home');
    expect(path.length).toBeGreaterThan(200);
    const home = await bench.createHome({ path });
    const holdfast = async (...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await bench.runHoldfast(home, args);
      expect([code, stderr.replaceAll(/^(?!error).*\n/gm, '')]).toEqual([0, '']);
      return stdout;
    };
    await holdfast('deploy', COUNTER);
    await expectCounting(holdfast, path);
    await holdfast('purge', '--force');
    await waitUntil('the home is gone', () => !existsSync(path));
  });

  test.skipIf(!isRoot)(
    'of an ordinary user: the whole counter example, no file belongs to root (needs root)',
    async () => {
      const folder = await bench.temporaryFolder();
      await chmod(folder, 0o755);
      const own = join(folder, 'own');
      // Like an installation that everybody may read, wherever this one is.
      await cp(join(BUNDLE, '..'), join(folder, 'program'), { recursive: true });
      const node = join(folder, 'program/node');
      await cp(process.execPath, node);
      await execute('chmod', ['-R', 'a+rX', join(folder, 'program')]);
      await mkdir(own);
      await cp(COUNTER, join(own, 'counter'), { recursive: true });
      await execute('chown', ['-R', `${STRANGER}:${STRANGER}`, own]);
      const socket = join(own, 'docker.sock');
      const door = await forwardEngine(socket);
      bench.onCleanup(door);

      const path = join(own, 'home');
      const env = {
        PATH: process.env['PATH'],
        HOLDFAST_HOME: path,
        DOCKER_HOST: `unix://${socket}`,
        HOME: own,
      };
      const identity = [`--reuid=${STRANGER}`, `--regid=${STRANGER}`, '--clear-groups'];
      const holdfast = async (...args: string[]): Promise<string> => {
        const command = [...identity, node, join(folder, 'program/holdfast.cjs'), ...args];
        return (await execute('setpriv', command, { env, cwd: own })).stdout;
      };
      bench.onCleanup(async () => existsSync(path) && (await holdfast('purge', '--force')));
      await holdfast('deploy', join(own, 'counter'));
      const { workspace, session } = await expectCounting(holdfast, path);
      expect((await stat(join(workspace, 'count'))).uid).toBe(STRANGER);
      const id = (await readFile(join(path, 'id'), 'utf8')).trim();
      const filters = { label: [`dev.holdfast.home=${id}`, `dev.holdfast.session=${session}`] };
      const docker = new Docker({ socketPath: ENGINE });
      const containers = await docker.listContainers({ filters });
      expect(containers).toHaveLength(2);
      for (const { Id } of containers) {
        const { Config } = await docker.getContainer(Id).inspect();
        expect(Config.User).toMatch(new RegExp(`^${STRANGER}(:${STRANGER})?$`));
      }
      const { stdout } = await execute('find', [path, '!', '-user', String(STRANGER)]);
      expect(stdout).toBe('');

      await holdfast('purge', '--force');
      await waitUntil('the home is gone', () => !existsSync(path));
      expect(
        await docker.listContainers({ all: true, filters: { label: [`dev.holdfast.home=${id}`] } }),
      ).toEqual([]);
    },
  );
});

/** Counts 1, 2, 3, with the sandbox stopped, paused and killed in between. */
async function expectCounting(
  holdfast: (...args: string[]) => Promise<string>,
  home: string,
): Promise<{ workspace: string; session: string }> {
  const run = async (): Promise<{ output: unknown; sessionId: string }> =>
    z
      .object({ output: z.unknown(), sessionId: z.string() })
      .parse(JSON.parse(await holdfast('run', 'counter', '{}', '--json')));
  const first = await run();
  expect(first.output).toEqual({ count: 1 });
  await holdfast('session', 'stop', first.sessionId);
  expect((await run()).output).toEqual({ count: 2 });
  await holdfast('session', 'pause', first.sessionId);
  const { pid } = z
    .object({ pid: z.number() })
    .parse(JSON.parse(await holdfast('supervisor', 'status', '--json')));
  process.kill(pid, 'SIGKILL');
  expect((await run()).output).toEqual({ count: 3 });
  expect(await holdfast('exec', first.sessionId, '--', 'cat', '/workspace/count')).toBe('3');
  const workspace = join(home, 'workspaces', first.sessionId);
  expect(await readFile(join(workspace, 'count'), 'utf8')).toBe('3');
  return { workspace, session: first.sessionId };
}

/** A socket of the other user that leads to the engine. */
async function forwardEngine(path: string): Promise<() => Promise<void>> {
  const open = new Set<{ destroy(): void }>();
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const far = createConnection({ path: ENGINE, allowHalfOpen: true });
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(from);
      from.pipe(to);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        open.delete(from);
        to.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  await chown(path, STRANGER, STRANGER);
  await chmod(path, 0o600);
  return async () => {
    const closed = new Promise((resolve) => server.close(resolve));
    for (const one of open) one.destroy();
    await closed;
  };
}
