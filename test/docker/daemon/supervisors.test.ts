import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { HoldfastError } from '../../../protocol/errors.ts';
import { expectSettled, expectWholeHistory, turnOutput } from '../../faults/harness/expectations.ts';
import { BUNDLE, type FaultHome } from '../../faults/harness/fault-home.ts';
import { otherBuild } from '../../faults/harness/other-build.ts';
import { waitUntil, stopSupervisor, useFaultFixture } from '../../faults/harness/fault-fixture.ts';
import { shellProject } from '../../setup/profiles.ts';
import { soakCount } from '../../setup/run-length.ts';

const execute = promisify(execFile);
const GONE_MS = 30_000;
const StatusSchema = z.object({
  pid: z.number(),
  version: z.string(),
  epoch: z.number(),
  rssBytes: z.number(),
});

const bench = useFaultFixture();

/** What `holdfast ARGS` of a build prints, which must succeed. */
async function said(home: FaultHome, args: readonly string[], bundle = BUNDLE): Promise<string> {
  const { code, stdout, stderr } = await bench.runHoldfast(home, args, { bundle });
  expect(code, stderr).toBe(0);
  return stdout;
}

/** The turn has begun and is not over. */
async function untilItWrites(home: FaultHome, turn: string): Promise<void> {
  await waitUntil('the turn writes', async () => {
    return (await home.call('turn/show', { turn })).turn.bytes.stdout > 0;
  });
}

async function status(home: FaultHome): Promise<z.infer<typeof StatusSchema>> {
  return StatusSchema.parse(await home.call('supervisor/status', {}));
}

describe('one supervisor per home', () => {
  test('a second one exits, says why in the log, and does not disturb the first', async () => {
    const home = await bench.createHome();
    const first = await home.start();
    const second = home.spawn();
    expect(await second.waitForExit(GONE_MS)).toEqual({ code: 3, signal: null });
    expect(await home.readLog()).toContain('home_locked');
    expect((await status(home)).pid).toBe(first.pid);
  });

  test('many clients that start it at the same time reach the same one', async () => {
    const home = await bench.createHome();
    const answers = await Promise.all(
      Array.from({ length: soakCount(8, 20) }, () => said(home, ['supervisor', 'start', '--json'])),
    );
    const pids = new Set(answers.map((text) => StatusSchema.partial().loose().parse(JSON.parse(text)).pid));
    expect(pids).toEqual(new Set([(await status(home)).pid]));
    expect((await status(home)).epoch).toBe(1);
  }, 120_000);

  test('two homes on one engine are isolated from each other', async () => {
    const [one, other] = [await bench.createHome(), await bench.createHome()];
    await Promise.all([one.start(), other.start()]);
    await bench.deploy(one, shellProject('shell'));
    const { session } = await one.call('session/create', { profile: 'shell' });
    await one.call('session/resume', { session: session.id });
    expect(await other.listObjects()).toEqual([]);
    expect((await other.call('session/list', {})).sessions).toEqual([]);
    await other.call('purge', { force: true });
    await expectSettled(one);
    expect((await one.listObjects()).filter(({ state }) => state === 'running')).toHaveLength(2);
  });
});

describe('the end of a supervisor, and the next one', () => {
  test('kill -9 during a turn: the next command works, and no output is lost', async () => {
    const home = await bench.createHome();
    const first = await home.start();
    await bench.deploy(home, shellProject('shell'));
    const { session } = await home.call('session/create', { profile: 'shell' });
    const script = 'for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.2; done';
    const { turn } = await home.call('turn/start', { session: session.id, prompt: script });
    await untilItWrites(home, turn.turnId);
    await first.kill();

    const listed = await said(home, ['session', 'list', '--json']);
    expect(listed).toContain(session.id);
    const output = await turnOutput(home, turn.turnId, 'stdout');
    expect(output.toString()).toBe(Array.from({ length: 10 }, (_, at) => `line ${at + 1}\n`).join(''));
    await expectWholeHistory(home, session.id);
    await expectSettled(home);
  });

  test('time in which the session was paused counts for no timeout, whoever saw the pause', async () => {
    const home = await bench.createHome();
    const first = await home.start();
    await bench.deploy(home, shellProject('shell'));
    const { session } = await home.call('session/create', { profile: 'shell' });
    const prompt = 'echo begun; sleep 2; echo done';
    const { turn } = await home.call('turn/start', { session: session.id, prompt, timeoutMs: 8000 });
    await untilItWrites(home, turn.turnId);
    await home.call('session/pause', { session: session.id });
    await sleep(5000);
    await first.kill();
    await sleep(5000);
    await home.start();
    await home.call('session/resume', { session: session.id });
    await waitUntil('the turn ends', async () => {
      return (await home.call('turn/show', { turn: turn.turnId })).turn.endedAt !== null;
    });
    const { turn: ended } = await home.call('turn/show', { turn: turn.turnId });
    expect(ended).toMatchObject({ status: 'succeeded', bytes: { stdout: 'begun\ndone\n'.length } });
  });

  test('SIGTERM: an orderly shutdown, sandboxes stay, and the socket is removed', async () => {
    const home = await bench.createHome();
    const supervisor = await home.start();
    await bench.deploy(home, shellProject('shell'));
    const { session } = await home.call('session/create', { profile: 'shell' });
    await home.call('session/resume', { session: session.id });
    expect(await supervisor.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    expect(existsSync(join(home.path, 'supervisor.sock'))).toBe(false);
    expect((await home.listObjects()).filter(({ state }) => state === 'running')).toHaveLength(2);

    await home.start();
    expect((await home.call('session/show', { session: session.id })).session.status).toBe('idle');
  });

  test('supervisor/stop with sandboxes ends every container; workspaces stay', async () => {
    const home = await bench.createHome();
    const supervisor = await home.start();
    await bench.deploy(home, shellProject('shell'));
    const { session } = await home.call('session/create', { profile: 'shell' });
    await home.call('session/resume', { session: session.id });
    const { stopped } = await home.call('supervisor/stop', { sandboxes: true });
    expect(stopped).toBe(1);
    expect(await supervisor.waitForExit(GONE_MS)).toEqual({ code: 0, signal: null });
    expect((await home.listObjects()).filter(({ kind }) => kind === 'container')).toEqual([]);
    expect(await readdir(join(home.path, 'workspaces'))).toEqual([session.id]);
  });

  test('a newer program takes over during a turn, an older one does not', async () => {
    const home = await bench.createHome();
    const first = await home.start();
    const folder = await bench.temporaryFolder();
    const newer = await otherBuild(join(folder, 'newer'), '9.9.9', '2030-01-01T00:00:00.000Z');
    await bench.deploy(home, shellProject('shell'));
    const { session } = await home.call('session/create', { profile: 'shell' });
    const script = 'for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done';
    const { turn } = await home.call('turn/start', { session: session.id, prompt: script });
    await untilItWrites(home, turn.turnId);

    expect(await said(home, ['session', 'list', '--json'], newer)).toContain(session.id);
    expect(await first.waitForExit(GONE_MS)).toEqual({ code: 0, signal: null });
    expect(await status(home)).toMatchObject({ version: '9.9.9', epoch: 2 });

    const { pid } = await status(home);
    expect(await said(home, ['session', 'list', '--json'])).toContain(session.id);
    expect((await status(home)).pid).toBe(pid);
    expect((await turnOutput(home, turn.turnId, 'stdout')).toString()).toBe('1\n2\n3\n4\n5\n6\n');
    await expectSettled(home);
  });

  test('it finishes the current step before a handover to a newer program', async () => {
    const home = await bench.createHome();
    const first = await home.start({ 'stop.after-agent': 'delay:2500' });
    await bench.deploy(home, shellProject('shell'));
    const { session } = await home.call('session/create', { profile: 'shell' });
    await home.call('session/resume', { session: session.id });
    const newer = await otherBuild(
      join(await bench.temporaryFolder(), 'newer'),
      '9.9.9',
      '2030-01-01T00:00:00.000Z',
    );
    const asked = home.call('session/stop', { session: session.id }).catch((error: unknown) => error);
    await waitUntil('its agent is gone', async () =>
      (await home.listObjects()).every(({ labels }) => labels['dev.holdfast.role'] !== 'agent'),
    );
    await said(home, ['session', 'list', '--json'], newer);
    expect(await first.waitForExit(GONE_MS)).toEqual({ code: 0, signal: null });
    await asked;
    expect((await status(home)).version).toBe('9.9.9');
    expect((await home.call('session/show', { session: session.id })).session.status).toBe('resumable');
    expect(await home.readLog()).not.toContain('could not be closed');
    await expectSettled(home);
  });

  test('it keeps nothing of the process that started it open: no descriptor, directory or terminal', async () => {
    const home = await bench.createHome();
    const folder = await bench.temporaryFolder();
    const held = join(folder, 'held.lock');
    const env = { ...process.env, HOLDFAST_HOME: home.path };
    const command = `exec 200>'${held}' 9</etc/hostname; exec "${process.execPath}" "${BUNDLE}" supervisor start --json`;
    await execute('bash', ['-c', command], { cwd: folder, env });
    bench.onCleanup(() => stopSupervisor(home));
    const { pid } = await status(home);
    const opened = async (): Promise<string> => {
      const script = `readlink /proc/${pid}/fd/* || true; readlink /proc/${pid}/cwd`;
      return (await execute('bash', ['-c', script])).stdout;
    };
    // It may answer before it has let go of everything.
    await waitUntil('it has let go', async () => {
      const all = await opened();
      return !all.includes(folder) && !all.includes('/etc/hostname') && !/\/dev\/(pts|tty)/.test(all);
    });
    expect((await readdir(`/proc/${pid}/fd`)).length).toBeGreaterThan(3);
    const { stdout: standard } = await execute(
      'readlink',
      [0, 1, 2].map((fd) => `/proc/${pid}/fd/${fd}`),
    );
    expect(standard).toBe('/dev/null\n'.repeat(3));
    expect((await opened()).trim().split('\n').at(-1)).toBe('/');
    const [sid, umask] = await Promise.all([
      readFile(`/proc/${pid}/stat`, 'utf8').then((text) =>
        Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[3]),
      ),
      readFile(`/proc/${pid}/status`, 'utf8').then((text) => /^Umask:\s*(\d+)/m.exec(text)?.[1]),
    ]);
    expect(sid).toBe(pid);
    expect(umask).toBe('0077');
  });
});

describe('a supervisor that cannot start', () => {
  test('an unknown failpoint is an error and not a test without its fault', async () => {
    const home = await bench.createHome();
    const child = spawn(process.execPath, [BUNDLE, 'supervisor', 'run'], {
      env: { ...process.env, HOLDFAST_HOME: home.path, HOLDFAST_FAILPOINTS: 'create.after-inten=kill' },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let text = '';
    child.stderr.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    const code = await new Promise((resolve) => child.once('close', resolve));
    expect([code, text]).toEqual([1, expect.stringContaining('create.after-inten')]);
    expect(HoldfastError.name).toBe('HoldfastError');
  });
});
