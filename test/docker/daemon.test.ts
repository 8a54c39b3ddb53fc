import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { promisify } from 'node:util';
import { afterEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { expectSettled, expectWholeHistory, outputOf } from '../faults/harness/expectations.ts';
import { BUNDLE, FaultHome, type FaultHomeOptions } from '../faults/harness/fault-home.ts';
import { otherBuild } from '../faults/harness/other-build.ts';
import { eventually } from '../faults/harness/workbench.ts';
import { handlerProject, shellProject, writeProject } from '../setup/profiles.ts';
import { times } from '../setup/run-length.ts';

const execute = promisify(execFile);
const GONE_MS = 30_000;
const StatusSchema = z.object({
  pid: z.number(),
  version: z.string(),
  epoch: z.number(),
  rssBytes: z.number(),
});

const endings: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

async function freshHome(options: FaultHomeOptions = {}): Promise<FaultHome> {
  const home = await FaultHome.create(options);
  endings.push(() => home.end());
  return home;
}

async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-daemon-'));
  endings.push(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** `holdfast ARGS` in this home by a build of the program; its supervisor is told to leave at the end of the test. */
function cli(home: FaultHome, bundle = BUNDLE) {
  return async (...args: string[]): Promise<string> => {
    const env = { ...process.env, HOLDFAST_HOME: home.path };
    const { stdout } = await execute(process.execPath, [bundle, ...args], { env, maxBuffer: 64 * 2 ** 20 });
    return stdout;
  };
}

/** The supervisor that serves the home then is not one of the test's own processes. */
function stopAtEnd(home: FaultHome): void {
  endings.push(async () => {
    const answered = await home.call('supervisor/status', {}).catch(() => null);
    if (answered === null) return;
    await home.call('supervisor/stop', {});
    await untilGone(answered.pid);
  });
}

async function untilGone(pid: number): Promise<void> {
  await eventually(`the supervisor ${pid} is gone`, () => !existsSync(`/proc/${pid}`), GONE_MS);
}

/** The turn has begun and is not over. */
async function untilItWrites(home: FaultHome, turn: string): Promise<void> {
  await eventually('the turn writes', async () => {
    return (await home.call('turn/show', { turn })).turn.bytes.stdout > 0;
  });
}

async function status(home: FaultHome): Promise<z.infer<typeof StatusSchema>> {
  return StatusSchema.parse(await home.call('supervisor/status', {}));
}

async function deployShell(home: FaultHome, name = 'shell'): Promise<void> {
  const directory = await writeProject(await freshFolder(), shellProject(name));
  await home.call('profile/deploy', { directory });
}

describe('one supervisor per home', () => {
  test('a second one refuses, says so in the log, and does not disturb the first', async () => {
    const home = await freshHome();
    const first = await home.start();
    const second = home.spawn();
    expect(await second.endsWithin(GONE_MS)).toEqual({ code: 3, signal: null });
    expect(await home.log()).toContain('home_locked');
    expect((await status(home)).pid).toBe(first.pid);
  });

  test('many clients that start at once find one and the same', async () => {
    const home = await freshHome();
    stopAtEnd(home);
    const holdfast = cli(home);
    const answers = await Promise.all(
      Array.from({ length: times(8, 20) }, () => holdfast('supervisor', 'start', '--json')),
    );
    const pids = new Set(answers.map((text) => StatusSchema.partial().loose().parse(JSON.parse(text)).pid));
    expect(pids).toEqual(new Set([(await status(home)).pid]));
    expect((await status(home)).epoch).toBe(1);
  }, 120_000);

  test('two homes on one engine never see each other', async () => {
    const [one, other] = [await freshHome(), await freshHome()];
    await Promise.all([one.start(), other.start()]);
    await deployShell(one);
    const { session } = await one.call('session/create', { profile: 'shell' });
    await one.call('session/resume', { session: session.id });
    expect(await other.objects()).toEqual([]);
    expect((await other.call('session/list', {})).sessions).toEqual([]);
    await other.call('purge', { force: true });
    await expectSettled(one);
    expect((await one.objects()).filter(({ state }) => state === 'running')).toHaveLength(2);
  });
});

describe('a supervisor that goes and comes', () => {
  test('kill -9 in the middle of a turn: the next command works, and nothing of its output is lost', async () => {
    const home = await freshHome();
    const first = await home.start();
    await deployShell(home);
    const { session } = await home.call('session/create', { profile: 'shell' });
    const script = 'for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.2; done';
    const { turn } = await home.call('turn/start', { session: session.id, prompt: script });
    await untilItWrites(home, turn.turnId);
    await first.kill();

    stopAtEnd(home);
    const listed = await cli(home)('session', 'list', '--json');
    expect(listed).toContain(session.id);
    const output = await outputOf(home, turn.turnId, 'stdout');
    expect(output.toString()).toBe(Array.from({ length: 10 }, (_, at) => `line ${at + 1}\n`).join(''));
    await expectWholeHistory(home, session.id);
    await expectSettled(home);
  });

  test('SIGTERM: it leaves in order, sandboxes stay, and its socket is gone', async () => {
    const home = await freshHome();
    const supervisor = await home.start();
    await deployShell(home);
    const { session } = await home.call('session/create', { profile: 'shell' });
    await home.call('session/resume', { session: session.id });
    expect(await supervisor.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    expect(existsSync(join(home.path, 'supervisor.sock'))).toBe(false);
    expect((await home.objects()).filter(({ state }) => state === 'running')).toHaveLength(2);

    await home.start();
    expect((await home.call('session/show', { session: session.id })).session.status).toBe('idle');
  });

  test('supervisor/stop with sandboxes ends every container; workspaces stay', async () => {
    const home = await freshHome();
    const supervisor = await home.start();
    await deployShell(home);
    const { session } = await home.call('session/create', { profile: 'shell' });
    await home.call('session/resume', { session: session.id });
    const { stopped } = await home.call('supervisor/stop', { sandboxes: true });
    expect(stopped).toBe(1);
    expect(await supervisor.endsWithin(GONE_MS)).toEqual({ code: 0, signal: null });
    expect((await home.objects()).filter(({ kind }) => kind === 'container')).toEqual([]);
    expect(await readdir(join(home.path, 'workspaces'))).toEqual([session.id]);
  });

  test('a newer program takes over in the middle of a turn, an older one does not', async () => {
    const home = await freshHome();
    const first = await home.start();
    const folder = await freshFolder();
    const newer = await otherBuild(join(folder, 'newer'), '9.9.9', '2030-01-01T00:00:00.000Z');
    await deployShell(home);
    const { session } = await home.call('session/create', { profile: 'shell' });
    const script = 'for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done';
    const { turn } = await home.call('turn/start', { session: session.id, prompt: script });
    await untilItWrites(home, turn.turnId);

    stopAtEnd(home);
    expect(await cli(home, newer)('session', 'list', '--json')).toContain(session.id);
    expect(await first.endsWithin(GONE_MS)).toEqual({ code: 0, signal: null });
    expect(await status(home)).toMatchObject({ version: '9.9.9', epoch: 2 });

    const { pid } = await status(home);
    expect(await cli(home)('session', 'list', '--json')).toContain(session.id);
    expect((await status(home)).pid).toBe(pid);
    expect((await outputOf(home, turn.turnId, 'stdout')).toString()).toBe('1\n2\n3\n4\n5\n6\n');
    await expectSettled(home);
  });

  test('it finishes the step at hand before it makes room for a newer program', async () => {
    const home = await freshHome();
    const first = await home.start({ 'stop.after-agent': 'delay:2500' });
    await deployShell(home);
    const { session } = await home.call('session/create', { profile: 'shell' });
    await home.call('session/resume', { session: session.id });
    const newer = await otherBuild(join(await freshFolder(), 'newer'), '9.9.9', '2030-01-01T00:00:00.000Z');
    const asked = home.call('session/stop', { session: session.id }).catch((error: unknown) => error);
    await eventually('its agent is gone', async () =>
      (await home.objects()).every(({ labels }) => labels['dev.holdfast.role'] !== 'agent'),
    );
    stopAtEnd(home);
    await cli(home, newer)('session', 'list', '--json');
    expect(await first.endsWithin(GONE_MS)).toEqual({ code: 0, signal: null });
    await asked;
    expect((await status(home)).version).toBe('9.9.9');
    expect((await home.call('session/show', { session: session.id })).session.status).toBe('resumable');
    expect(await home.log()).not.toContain('could not be closed');
    await expectSettled(home);
  });

  test('nothing of its starter stays open: no descriptor, no directory, no terminal', async () => {
    const home = await freshHome();
    const folder = await freshFolder();
    const held = join(folder, 'held.lock');
    const env = { ...process.env, HOLDFAST_HOME: home.path };
    const command = `exec 200>'${held}' 9</etc/hostname; exec "${process.execPath}" "${BUNDLE}" supervisor start --json`;
    await execute('bash', ['-c', command], { cwd: folder, env });
    stopAtEnd(home);
    const { pid } = await status(home);
    const opened = async (): Promise<string> => {
      const script = `readlink /proc/${pid}/fd/* || true; readlink /proc/${pid}/cwd`;
      return (await execute('bash', ['-c', script])).stdout;
    };
    // It may answer before it has let go of everything.
    await eventually('it has let go', async () => {
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

describe('the home', () => {
  test('is removed under it: the supervisor leaves, no container stays, and the home is not made again', async () => {
    const home = await freshHome();
    const supervisor = await home.start();
    await deployShell(home);
    const { session } = await home.call('session/create', { profile: 'shell' });
    await home.call('session/resume', { session: session.id });
    const id = await home.id();
    await rm(home.path, { recursive: true, force: true });
    expect(await supervisor.endsWithin(GONE_MS)).toEqual({ code: 0, signal: null });
    const left = await home.docker.listContainers({
      all: true,
      filters: { label: [`dev.holdfast.home=${id}`] },
    });
    expect(left).toEqual([]);
    expect(existsSync(home.path)).toBe(false);
  });

  test('may have a path of more than 200 characters with spaces', async () => {
    const folder = await freshFolder();
    const path = join(folder, 'a home with spaces', 'x'.repeat(90), 'y'.repeat(90), 'home');
    expect(path.length).toBeGreaterThan(200);
    const home = await freshHome({ path });
    await home.start();
    const directory = await writeProject(
      await freshFolder(),
      handlerProject('long', 'def handler(input):\n    return 7\n'),
    );
    await home.call('profile/deploy', { directory });
    const { turn } = await home.call('turn/start', { profile: 'long', input: {} });
    const done = await home.call('turn/wait', { turn: turn.turnId, timeoutMs: 30_000 });
    expect(done.turn).toMatchObject({ status: 'succeeded', output: 7 });
    const { sessions } = await home.call('session/list', {});
    expect(sessions[0]?.backing).toBe('directory');
  });

  test('of a newer program is refused, and not touched', async () => {
    const home = await freshHome();
    await (await home.start()).kill('SIGTERM');
    const path = join(home.path, 'holdfast.db');
    const database = new DatabaseSync(path);
    database.exec('PRAGMA user_version = 9999; PRAGMA wal_checkpoint(TRUNCATE)');
    database.close();
    const before = await readFile(path);
    await expect(cli(home)('session', 'list')).rejects.toMatchObject({
      stderr: expect.stringContaining('home_newer') as string,
    });
    expect((await readFile(path)).equals(before)).toBe(true);
  });

  test('with a damaged database: everything says so, doctor looks, and purge still clears all away', async () => {
    const home = await freshHome();
    const first = await home.start();
    await deployShell(home);
    const { session } = await home.call('session/create', { profile: 'shell' });
    await home.call('session/resume', { session: session.id });
    await first.kill();
    await rm(join(home.path, 'holdfast.db-wal'), { force: true });
    await writeFile(
      join(home.path, 'holdfast.db'),
      'this is no database, whatever its name says'.repeat(100),
    );

    const second = await home.start();
    await expect(home.call('session/list', {})).rejects.toMatchObject({ code: 'home_damaged' });
    const { checks } = await home.call('supervisor/doctor', {});
    expect(checks.find(({ name }) => name === 'database')).toMatchObject({ status: 'problem' });
    const { removed } = await home.call('purge', { force: true });
    expect(removed.filter(({ kind }) => kind === 'container')).toHaveLength(2);
    expect(await second.endsWithin(GONE_MS)).toEqual({ code: 0, signal: null });
    expect(existsSync(home.path)).toBe(false);
  });

  test('on a full disk: a deploy says so and leaves nothing, and works once there is space', async () => {
    const home = await freshHome();
    await home.start({ 'deploy.after-copy': 'enospc@1' });
    const directory = await writeProject(await freshFolder(), shellProject('shell'));
    await expect(home.call('profile/deploy', { directory })).rejects.toMatchObject({ code: 'no_space' });
    expect(await readdir(join(home.path, 'deploys/shell'))).toEqual([]);
    expect((await home.call('profile/list', {})).profiles).toEqual([]);
    expect((await home.call('profile/deploy', { directory })).profile.version).toBe(1);
  });

  test.each([
    ['somebody’s folder of other things', 'thesis.txt', 'home_damaged'],
    ['a home whose id was overwritten', 'id', 'home_damaged'],
  ])('%s is not used, and the command says why', async (_, name, code) => {
    const folder = await freshFolder();
    await writeFile(join(folder, name), 'words');
    const home = await freshHome({ path: folder });
    endings.pop();
    const refused = cli(home)('profiles');
    await expect(refused).rejects.toMatchObject({
      stderr: expect.stringContaining(`error ${code}: `) as string,
    });
    expect(await readdir(folder)).toEqual([name]);
  });

  test('where no folder can be made: an error at once, and no process that goes on trying', async () => {
    const home = await freshHome({ path: '/proc/no-home' });
    endings.pop();
    const started = performance.now();
    await expect(cli(home)('profiles')).rejects.toMatchObject({
      stderr: expect.stringContaining('/proc/no-home') as string,
    });
    expect(performance.now() - started).toBeLessThan(10_000);
  });

  test('is its owner’s alone: 0700, socket and log 0600', async () => {
    const home = await freshHome();
    await home.start();
    const mode = async (name: string) => ((await stat(join(home.path, name))).mode & 0o777).toString(8);
    expect(
      await Promise.all(['.', 'supervisor.sock', 'logs/supervisor.log', 'holdfast.db'].map(mode)),
    ).toEqual(['700', '600', '600', '600']);
  });
});

describe('clearing away', () => {
  test('purge asks first, then removes containers, volumes and the home', async () => {
    const home = await freshHome();
    const supervisor = await home.start();
    const project = shellProject('vol', 'persistence: persistent\nworkspace: { backing: volume }\n');
    await home.call('profile/deploy', { directory: await writeProject(await freshFolder(), project) });
    const { session } = await home.call('session/create', { profile: 'vol' });
    await home.call('session/resume', { session: session.id });
    const id = await home.id();
    await expect(home.call('purge', { force: false })).rejects.toMatchObject({
      code: 'confirmation_required',
      why: expect.stringContaining('1 session') as string,
    });
    expect((await home.objects()).length).toBeGreaterThan(2);

    const { removed } = await home.call('purge', { force: true });
    expect(removed.some(({ kind }) => kind === 'volume')).toBe(true);
    expect(await supervisor.endsWithin(GONE_MS)).toEqual({ code: 0, signal: null });
    const filters = { label: [`dev.holdfast.home=${id}`] };
    expect(await home.docker.listContainers({ all: true, filters })).toEqual([]);
    expect((await home.docker.listVolumes({ filters })).Volumes).toEqual([]);
    expect(existsSync(home.path)).toBe(false);
  });

  test('gc finds what belongs to nothing, and never takes files of an agent', async () => {
    const home = await freshHome();
    await home.start();
    await deployShell(home);
    const { session } = await home.call('session/create', { profile: 'shell' });
    const { turn } = await home.call('turn/start', { session: session.id, prompt: 'echo kept > kept.txt' });
    await home.call('turn/wait', { turn: turn.turnId });
    const stray = join(home.path, 'workspaces/ses-aaaaaaaaaaaaaaaa');
    const empty = join(home.path, 'workspaces/ses-bbbbbbbbbbbbbbbb');
    const run = join(home.path, 'run/ses-cccccccccccccccc');
    const cut = join(home.path, 'deploys/shell/9.tmp');
    for (const folder of [stray, empty, run, cut]) await mkdir(folder, { recursive: true });
    await writeFile(join(stray, 'thesis.txt'), 'the only copy');
    await writeFile(join(cut, 'half'), 'half');

    const dry = await home.call('gc', { dryRun: true });
    expect(dry.removed.map(({ name }) => name).sort()).toEqual([cut, run, empty].sort());
    expect(dry.kept.map(({ name }) => name)).toEqual([stray]);
    expect(existsSync(cut)).toBe(true);
    await home.call('gc', {});
    expect([stray, empty, run, cut].map((path) => existsSync(path))).toEqual([true, false, false, false]);
    expect(await readFile(join(stray, 'thesis.txt'), 'utf8')).toBe('the only copy');
    expect(await readFile(join(home.path, 'workspaces', session.id, 'kept.txt'), 'utf8')).toBe('kept\n');
    const again = await home.call('gc', {});
    expect([again.removed, again.kept.map(({ name }) => name)]).toEqual([[], [stray]]);
  });
});

describe('an engine that is not there', () => {
  test('the supervisor starts, says so, and refuses to deploy with what to do', async () => {
    const home = await freshHome({ env: { DOCKER_HOST: 'unix:///nonexistent/docker.sock' } });
    await home.start();
    const { engine } = await home.call('supervisor/status', {});
    expect(engine).toMatchObject({ reachable: false, next: expect.any(String) as string });
    const directory = await writeProject(await freshFolder(), shellProject('shell'));
    await expect(home.call('profile/deploy', { directory })).rejects.toMatchObject({
      code: 'engine_unavailable',
    });
    expect(await readdir(join(home.path, 'deploys'))).toEqual([]);
    const { checks } = await home.call('supervisor/doctor', {});
    expect(checks.find(({ name }) => name === 'engine')).toMatchObject({ status: 'problem' });
  });
});

describe('what cannot be started', () => {
  test('an unknown failpoint is an error and not a test without its fault', async () => {
    const home = await freshHome();
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
