import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import Docker from 'dockerode';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { SetupStatusSchema } from '../../../protocol/setup.ts';
import { NameServer } from '../../egress-harness/name-server.ts';
import { Origin, type Site } from '../../egress-harness/origin.ts';
import { npmSite, pythonSite } from '../../egress-harness/package-sites.ts';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';

const SOURCE = 'packages.open.test';
const CLOSED = 'packages.closed.test';

let names: NameServer;
let origin: Origin;
let home: TestHome;
beforeAll(async () => {
  names = await NameServer.start({ [SOURCE]: ['127.0.0.1'], [CLOSED]: ['127.0.0.1'] });
  const sites = [
    await npmSite('tiny-thing', 'module.exports = "from the registry";\n'),
    pythonSite('tinything', 'WHAT = "from the index"\n'),
    // A source that takes a request and never answers.
    await npmSite('ruinous', '', 'rm /etc/passwd && mkdir /etc/passwd'),
    ((_request, url) => url.pathname.startsWith('/simple/stuck')) satisfies Site,
  ];
  origin = await Origin.start({ sites });
  home = await TestHome.create({ HOLDFAST_DNS: names.address });
});
afterAll(async () => {
  await home.dispose();
  await origin.dispose();
  await names.dispose();
});

const at = (host: string) => `http://${host}:${origin.port}`;

/** A profile whose setup installs this from the server of the test. */
async function project(name: string, packages: string, { host = SOURCE, more = '' } = {}): Promise<string> {
  return writeProject(
    home.projects,
    shellProject(
      name,
      `persistence: persistent
env: { npm_config_registry: "${at(host)}/npm/", PIP_INDEX_URL: "${at(host)}/simple/", PIP_TRUSTED_HOST: ${host} }
setup: { packages: ${packages}, egress: [${[SOURCE, '127.0.0.1'].map((one) => `{ host: "${one}:${origin.port}" }`).join(', ')}]${more} }
`,
    ),
  );
}

async function statusOf(profile: string) {
  const { setups } = z
    .object({ setups: z.array(SetupStatusSchema) })
    .parse(JSON.parse(await home.runOk(['setup', 'status', profile, '--json'])));
  return setups;
}

describe('packages of a setup', () => {
  test('are there before the first turn, without a network of the session', async () => {
    const folder = await project('both', '{ npm: [tiny-thing@1.0.0], pip: [tinything==1.0] }');
    const first = await home.run(['deploy', folder]);
    expect(first, await home.runOk(['setup', 'log', 'both'])).toMatchObject({ code: 0 });
    const script = `node -p 'require(require("child_process").execSync("npm root -g").toString().trim() + "/tiny-thing")'
python3 -c 'import tinything; print(tinything.WHAT)'`;
    expect(await home.runOk(['run', 'both', script])).toBe('from the registry\nfrom the index\n');
    // Only the setup has its hosts.
    const denied = await home.run(['run', 'both', `curl -sS --max-time 5 ${at(SOURCE)}/hello`]);
    expect(denied.code).not.toBe(0);

    const [setup, ...others] = await statusOf('both');
    expect(others).toEqual([]);
    expect(setup).toMatchObject({ state: 'done', current: true, step: 'pip', error: null });
    expect(setup?.bytes).toBeGreaterThan(0);
    const log = await home.runOk(['setup', 'log', 'both']);
    expect(log).toContain('== npm');
    expect(log).toContain('Successfully installed tinything');
    const image = await new Docker().getImage(setup?.image ?? '').inspect();
    const before = await new Docker().getImage(setup?.baseImage ?? '').inspect();
    expect(image.Config.Env).toEqual(before.Config.Env);
    // Nothing of it is left but the image.
    const left = await new Docker().listContainers({
      all: true,
      filters: { label: [`dev.holdfast.session=${setup?.id ?? ''}`] },
    });
    expect(left).toEqual([]);

    // The same again is found, and is for no other profile.
    await home.runOk(['deploy', folder]);
    expect((await statusOf('both')).length).toBe(1);
    const other = await home.run([
      'deploy',
      await writeProject(home.projects, shellProject('thief', `image: ${setup?.image ?? ''}\n`)),
    ]);
    expect(other.stderr).toContain('it was prepared for a profile');

    // Another list of packages is another image, and the first one is garbage.
    await home.runOk(['deploy', await project('both', '{ pip: [tinything==1.0] }')]);
    await home.runOk(['session', 'stop', 'default']);
    const collected = await home.runOk(['gc', '--json']);
    expect(collected).toContain(setup?.image);
    expect((await statusOf('both')).map(({ state }) => state)).toEqual(['done', 'removed']);
  });

  test('come from the registry and the index of the supervisor, also where these are on its own machine', async () => {
    const own = await TestHome.create({
      HOLDFAST_NPM_REGISTRY: `http://localhost:${origin.port}/npm/`,
      HOLDFAST_PIP_INDEX: `http://localhost:${origin.port}/simple/`,
    });
    onTestFinished(() => own.dispose());
    const packages = 'setup: { packages: { npm: [tiny-thing@1.0.0], pip: [tinything==1.0] } }\n';
    const folder = await writeProject(own.projects, shellProject('ours', packages));
    const deployed = await own.run(['deploy', folder]);
    expect(deployed, deployed.stderr).toMatchObject({ code: 0 });
    const script =
      "python3 -c 'import tinything; print(tinything.WHAT)'; npm ls -g --parseable | grep -c tiny-thing; env";
    const said = await own.runOk(['run', 'ours', script]);
    expect(said).toMatch(/^from the index\n1\n/);
    // The session has neither the addresses nor a way there.
    expect(said).not.toContain(`:${origin.port}`);
    const denied = await own.run([
      'run',
      'ours',
      `curl -sS --max-time 5 http://host.holdfast.internal:${origin.port}/hello`,
    ]);
    expect(denied.code).not.toBe(0);
  });

  test('are those of the project where the profile says so, and the log names them first', async () => {
    const folder = await project('own', 'auto');
    await writeFile(
      join(folder, 'package.json'),
      '{"dependencies": {"tiny-thing": "1.0.0", "x": "file:../x"}}',
    );
    await writeFile(join(folder, 'requirements.txt'), 'tinything == 1.0  # from the index\n');
    const deployed = await home.run(['deploy', folder]);
    const log = await home.runOk(['setup', 'log', 'own']);
    expect(deployed, log).toMatchObject({ code: 0 });
    expect(log).toMatch(
      /^== npm, from package.json: tiny-thing@1.0.0\n== left out of package.json, [^\n]*: x@file:..\/x\n== pip, from requirements.txt: tinything==1.0\n== npm\n/,
    );
    const script =
      "python3 -c 'import tinything; print(tinything.WHAT)'; npm ls -g --parseable | grep -c tiny-thing";
    expect(await home.runOk(['run', 'own', script])).toBe('from the index\n1\n');
    // Found again; and run again by the same names.
    await home.runOk(['deploy', folder]);
    expect(await statusOf('own')).toHaveLength(1);
    await home.runOk(['setup', 'run', 'own']);
    expect((await statusOf('own')).map(({ state }) => state)).toEqual(['done', 'done']);
  });

  test('that cannot be had fail the deploy with the reason, and leave nothing', async () => {
    const failed = await home.run([
      'deploy',
      await project('closed', '{ npm: [tiny-thing] }', { host: CLOSED }),
    ]);
    expect(failed.code).toBe(1);
    expect(failed.stderr).toContain('setup_failed: The setup failed at npm');
    expect(failed.stderr).toContain('holdfast setup log closed');
    expect(await home.runOk(['setup', 'log', 'closed'])).toContain(
      `[network] denied: ${CLOSED}:${origin.port}`,
    );
    expect(await home.runOk(['profiles'])).not.toContain('closed');
    const [setup] = await statusOf('closed');
    expect(setup).toMatchObject({ state: 'failed', image: null, error: { data: { code: 'setup_failed' } } });
    // To try again is to deploy again.
    await home.runOk(['deploy', await project('closed', '{ pip: [tinything] }')]);
    expect((await statusOf('closed')).map(({ state }) => state)).toEqual(['done', 'failed']);
  });

  test('are installed again when somebody asks, and the next turn has them', async () => {
    // A package that the image has: installing it needs no network.
    const folder = await writeProject(
      home.projects,
      shellProject('again', 'persistence: persistent\nsetup: { packages: { pip: [pip] }, egress: [] }\n'),
    );
    await home.runOk(['deploy', folder]);
    await home.runOk(['run', 'again', 'echo kept > f']);
    const [first] = await statusOf('again');
    const again = await home.run(['setup', 'run', 'again']);
    expect(again, again.stderr).toMatchObject({ code: 0 });
    expect(again.stderr).toContain('== pip');
    const [second] = await statusOf('again');
    expect(again.stdout).toContain(second?.image);
    expect(second?.image).not.toBe(first?.image);
    expect((await statusOf('again')).map(({ current }) => current)).toEqual([true, false]);
    // The sandbox was idle: the next turn has another one, with the same workspace.
    expect(await home.runOk(['run', 'again', 'cat f'])).toBe('kept\n');
    const agents = await new Docker().listContainers({
      filters: { label: ['dev.holdfast.role=agent'], ancestor: [second?.image ?? ''] },
    });
    expect(agents.length).toBe(1);
    expect(await home.runOk(['gc', '--json'])).toContain(first?.image);
    const missing = await home.run(['setup', 'run', 'nobody']);
    expect(missing.stderr).toContain('not_found');
  });

  test('that leave an image from which nothing starts fail the setup, and the image is gone', async () => {
    const failed = await home.run(['deploy', await project('ruined', '{ npm: [ruinous] }')]);
    expect(failed.code).toBe(1);
    expect(failed.stderr).toContain('setup_failed: No sandbox can start from what the setup left');
    expect(await home.runOk(['setup', 'log', 'ruined'])).toContain('[image] ');
    const [setup] = await statusOf('ruined');
    expect(setup).toMatchObject({ state: 'failed', image: null });
    const left = await new Docker().listImages({
      filters: { label: [`dev.holdfast.session=${setup?.id ?? ''}`] },
    });
    expect(left).toEqual([]);
  });

  test('that take too long, or that nobody waits for, end with all that they began', async () => {
    const limited = await project('late', '{ pip: [stuck] }', { more: ', timeout: 3s' });
    const late = await home.run(['deploy', limited]);
    expect(late.stderr).toContain('error timeout: The setup of late took too long');

    const waiting = home.spawn(['deploy', await project('late', '{ pip: [stuck] }')]);
    const ended = once(waiting, 'close');
    // The first setup was at that step too.
    await expect
      .poll(async () => (await statusOf('late'))[0], { timeout: 60_000 })
      .toMatchObject({ state: 'running', step: 'pip' });
    waiting.kill('SIGINT');
    await ended;
    const states = async () => (await statusOf('late')).map(({ state }) => state);
    await expect.poll(states, { timeout: 60_000 }).toEqual(['cancelled', 'failed']);
    const ids = (await statusOf('late')).map(({ id }) => id);
    await expect
      .poll(
        async () =>
          (await new Docker().listContainers({ all: true })).filter(({ Labels }) =>
            ids.includes(Labels['dev.holdfast.session'] ?? ''),
          ),
        { timeout: 60_000 },
      )
      .toEqual([]);
  });
});
