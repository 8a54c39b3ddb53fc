import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, test, vi } from 'vitest';
import { AlteredEngine } from '../../engine-harness/altered-engine.ts';
import { useFaultFixture } from '../../faults/harness/fault-fixture.ts';
import { handlerProject, shellProject, writeProject } from '../../setup/profiles.ts';
import { deploy } from '../../setup/deploy.ts';

const GONE_MS = 30_000;
/** Longer than a supervisor waits for its engine when it ends. */
const LATE_MS = 6_000;

const bench = useFaultFixture();

describe('the home', () => {
  test('is removed while it is in use: the supervisor shuts down, no container stays, and the home is not created again', async () => {
    const home = await bench.createHome();
    const supervisor = await home.start();
    await bench.deploy(home, shellProject('shell'));
    const { session } = await home.call('session/create', { profile: 'shell' });
    await home.call('session/resume', { session: session.id });
    const id = await home.readId();
    await rm(home.path, { recursive: true, force: true });
    expect(await supervisor.waitForExit(GONE_MS)).toEqual({ code: 0, signal: null });
    const left = await home.docker.listContainers({
      all: true,
      filters: { label: [`dev.holdfast.home=${id}`] },
    });
    expect(left).toEqual([]);
    expect(existsSync(home.path)).toBe(false);
  });

  test('may have a path with spaces and more than 200 characters', async () => {
    const folder = await bench.temporaryFolder();
    const path = join(folder, 'a home with spaces', 'x'.repeat(90), 'y'.repeat(90), 'home');
    expect(path.length).toBeGreaterThan(200);
    const home = await bench.createHome({ path });
    await home.start();
    const directory = await writeProject(
      await bench.temporaryFolder(),
      handlerProject('long', 'def handler(input):\n    return 7\n'),
    );
    await deploy(home, directory);
    const { turn } = await home.call('turn/start', { profile: 'long', input: {} });
    const done = await home.call('turn/wait', { turn: turn.turnId, timeoutMs: 30_000 });
    expect(done.turn).toMatchObject({ status: 'succeeded', output: 7 });
    const { sessions } = await home.call('session/list', {});
    expect(sessions[0]?.backing).toBe('directory');
  });

  test('of a newer program is refused and not changed', async () => {
    const home = await bench.createHome();
    await (await home.start()).kill('SIGTERM');
    const path = join(home.path, 'holdfast.db');
    const database = new DatabaseSync(path);
    database.exec('PRAGMA user_version = 9999; PRAGMA wal_checkpoint(TRUNCATE)');
    database.close();
    const before = await readFile(path);
    expect((await bench.runHoldfast(home, ['session', 'list'])).stderr).toContain('home_newer');
    expect((await readFile(path)).equals(before)).toBe(true);
  });

  test('has a damaged database: every command says so, doctor works, and purge removes everything', async () => {
    const home = await bench.createHome();
    const first = await home.start();
    await bench.deploy(home, shellProject('shell'));
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
    expect(await second.waitForExit(GONE_MS)).toEqual({ code: 0, signal: null });
    expect(existsSync(home.path)).toBe(false);
  });

  test('is on a full disk: a deploy fails without leftovers, and succeeds when there is space', async () => {
    const home = await bench.createHome();
    await home.start({ 'deploy.after-copy': 'enospc@1' });
    const directory = await writeProject(await bench.temporaryFolder(), shellProject('shell'));
    await expect(deploy(home, directory)).rejects.toMatchObject({ code: 'no_space' });
    expect(await readdir(join(home.path, 'deploys/shell'))).toEqual([]);
    expect((await home.call('profile/list', {})).profiles).toEqual([]);
    expect((await deploy(home, directory)).profile.version).toBe(1);
  });

  test.each([
    ['somebody’s folder of other things', 'thesis.txt', 'home_damaged'],
    ['a home whose id was overwritten', 'id', 'home_damaged'],
  ])('%s is not used, and the command says why', async (_, name, code) => {
    const folder = await bench.temporaryFolder();
    await writeFile(join(folder, name), 'words');
    const home = await bench.createHome({ path: folder });
    expect((await bench.runHoldfast(home, ['profiles'])).stderr).toContain(`error ${code}: `);
    expect(await readdir(folder)).toEqual([name]);
  });

  test('cannot be created: an error at once, and no process that keeps trying', async () => {
    const home = await bench.createHome({ path: '/proc/no-home' });
    const started = performance.now();
    expect((await bench.runHoldfast(home, ['profiles'])).stderr).toContain('/proc/no-home');
    expect(performance.now() - started).toBeLessThan(10_000);
  });

  test('is its owner’s alone: 0700, socket and log 0600', async () => {
    const home = await bench.createHome();
    await home.start();
    const mode = async (name: string) => ((await stat(join(home.path, name))).mode & 0o777).toString(8);
    expect(
      await Promise.all(['.', 'supervisor.sock', 'logs/supervisor.log', 'holdfast.db'].map(mode)),
    ).toEqual(['700', '600', '600', '600']);
  });
});

describe('gc and purge', () => {
  test('purge asks first, then removes containers, volumes and the home', async () => {
    const home = await bench.createHome();
    const supervisor = await home.start();
    const project = shellProject('vol', 'persistence: persistent\nworkspace: { backing: volume }\n');
    await deploy(home, await writeProject(await bench.temporaryFolder(), project));
    const { session } = await home.call('session/create', { profile: 'vol' });
    await home.call('session/resume', { session: session.id });
    const id = await home.readId();
    await expect(home.call('purge', { force: false })).rejects.toMatchObject({
      code: 'confirmation_required',
      why: expect.stringContaining('1 session') as string,
    });
    expect((await home.listObjects()).length).toBeGreaterThan(2);

    const { removed } = await home.call('purge', { force: true });
    expect(removed.some(({ kind }) => kind === 'volume')).toBe(true);
    expect(await supervisor.waitForExit(GONE_MS)).toEqual({ code: 0, signal: null });
    const filters = { label: [`dev.holdfast.home=${id}`] };
    expect(await home.docker.listContainers({ all: true, filters })).toEqual([]);
    expect((await home.docker.listVolumes({ filters })).Volumes).toEqual([]);
    expect(existsSync(home.path)).toBe(false);
  });

  test('purge leaves no helper container, also where the engine answers late', async () => {
    const isHelper = (method: string, path: string): boolean =>
      method === 'POST' && /\/containers\/create\?.*-helper-/.test(path);
    const late = (method: string, path: string): number => (isHelper(method, path) ? LATE_MS : 0);
    const engine = await AlteredEngine.start((_path, answer) => answer, late);
    bench.onCleanup(() => engine.dispose());
    const home = await bench.createHome({ env: { DOCKER_HOST: `unix://${engine.socketPath}` } });
    const supervisor = await home.start();
    const id = await home.readId();
    const filters = { label: [`dev.holdfast.home=${id}`] };
    const containers = () => home.docker.listContainers({ all: true, filters });
    // The engine was just found, and how it sees files is being tried out.
    await vi.waitFor(async () => expect(await containers()).not.toEqual([]), {
      timeout: LATE_MS,
      interval: 20,
    });
    await home.call('purge', { force: true });
    expect(await supervisor.waitForExit(GONE_MS)).toEqual({ code: 0, signal: null });
    expect(await containers()).toEqual([]);
    expect(existsSync(home.path)).toBe(false);
  });

  test('gc finds what belongs to nothing, and never removes files of an agent', async () => {
    const home = await bench.createHome();
    await home.start();
    await bench.deploy(home, shellProject('shell'));
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
    expect(dry.retained.map(({ name }) => name)).toEqual([stray]);
    expect(existsSync(cut)).toBe(true);
    await home.call('gc', {});
    expect([stray, empty, run, cut].map((path) => existsSync(path))).toEqual([true, false, false, false]);
    expect(await readFile(join(stray, 'thesis.txt'), 'utf8')).toBe('the only copy');
    expect(await readFile(join(home.path, 'workspaces', session.id, 'kept.txt'), 'utf8')).toBe('kept\n');
    const again = await home.call('gc', {});
    expect([again.removed, again.retained.map(({ name }) => name)]).toEqual([[], [stray]]);
  });
});

describe('an unreachable engine', () => {
  test('the supervisor starts and reports it, and a deploy fails with what to do', async () => {
    const home = await bench.createHome({ env: { DOCKER_HOST: 'unix:///nonexistent/docker.sock' } });
    await home.start();
    const { engine } = await home.call('supervisor/status', {});
    expect(engine).toMatchObject({ reachable: false, next: expect.any(String) as string });
    const directory = await writeProject(await bench.temporaryFolder(), shellProject('shell'));
    await expect(deploy(home, directory)).rejects.toMatchObject({
      code: 'engine_unavailable',
    });
    expect(await readdir(join(home.path, 'deploys'))).toEqual([]);
    const { checks } = await home.call('supervisor/doctor', {});
    expect(checks.find(({ name }) => name === 'engine')).toMatchObject({ status: 'problem' });
  });
});
