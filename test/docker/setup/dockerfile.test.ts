import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import Docker from 'dockerode';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { SetupStatusSchema } from '../../../protocol/setup.ts';
import { NameServer } from '../../egress-harness/name-server.ts';
import { Origin } from '../../egress-harness/origin.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const OPEN = 'files.open.test';
const CLOSED = 'files.closed.test';
const DOCKERFILE = `ARG BASE=holdfast/agent
FROM \${BASE}:latest AS tools
USER root
COPY tool.sh /srv/
RUN chmod 755 /srv/tool.sh \\
    # a comment in the middle
    && echo first > /srv/order
CMD ["nothing"]

FROM holdfast/agent:latest
USER root
ENV GREETING="hello there"
COPY --from=tools /srv/tool.sh /usr/local/bin/tool
RUN ["/bin/sh", "-c", "echo $GREETING > /srv/greeting"]
`;
const TOOL = '#!/bin/sh\necho from the tool\n';

let names: NameServer;
let origin: Origin;
let home: TestHome;
const docker = new Docker();
beforeAll(async () => {
  names = await NameServer.start({ [OPEN]: ['127.0.0.1'], [CLOSED]: ['127.0.0.1'] });
  origin = await Origin.start();
  home = await TestHome.create({ HOLDFAST_DNS: names.address });
});
afterAll(async () => {
  await home.dispose();
  await origin.dispose();
  await names.dispose();
});

function project(name: string, files: Readonly<Record<string, string>>, more = ''): Promise<string> {
  return writeProject(home.projects, {
    ...shellProject(name, `persistence: persistent\ndockerfile: Dockerfile\n${more}`),
    ...files,
  });
}
async function statusOf(profile: string) {
  const { setups } = z
    .object({ setups: z.array(SetupStatusSchema) })
    .parse(JSON.parse(await home.runOk(['setup', 'status', profile, '--json'])));
  return setups;
}
function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
/** Everything that the builds of a profile have on the engine. */
async function leftovers(ids: readonly string[]): Promise<string[]> {
  const label = ids.map((id) => [`dev.holdfast.session=${id}`]);
  const found: string[] = [];
  for (const one of label) {
    const filters = { label: one };
    for (const { Id, Names } of await docker.listContainers({ all: true, filters }))
      found.push(`${Id} ${Names.join()}`);
    for (const { Id, RepoTags } of await docker.listImages({ all: true, filters }))
      found.push(`${Id} ${(RepoTags ?? []).join()}`);
  }
  return found;
}

describe('an image from a Dockerfile', () => {
  test('has its stages, is built once, and is shown and collected like a setup', async () => {
    const folder = await project('built', { Dockerfile: DOCKERFILE, 'tool.sh': TOOL, 'other.txt': '1' });
    const first = await home.run(['deploy', folder]);
    expect(first, await home.runOk(['setup', 'log', 'built'])).toMatchObject({ code: 0 });
    expect(await home.runOk(['run', 'built', 'tool; cat /srv/greeting; ls /srv; id -u'])).toMatch(
      /^from the tool\nhello there\ngreeting\n[1-9]\d*\n$/,
    );
    const [setup, ...others] = await statusOf('built');
    expect(others).toEqual([]);
    expect(setup).toMatchObject({
      state: 'done',
      current: true,
      baseImage: 'holdfast/agent:latest',
      error: null,
    });
    expect(setup?.step).toMatch(/^dockerfile \d+\/\d+$/);
    const log = await home.runOk(['setup', 'log', 'built']);
    expect(log).toContain('echo first > /srv/order');
    expect(log).toContain('[left out] CMD (line 8)');
    expect(log).not.toContain('dev.holdfast');
    // The steps before the image, and nothing of the other stage.
    const found = await leftovers([setup?.id ?? '']);
    expect(found.filter((one) => one.includes('prepared:'))).toHaveLength(1);

    // What the Dockerfile does not name does not build it again; what it names does.
    await writeFile(join(folder, 'other.txt'), '2');
    await home.runOk(['deploy', folder]);
    expect(await statusOf('built')).toHaveLength(1);
    await writeFile(join(folder, 'tool.sh'), TOOL.replace('the tool', 'another'));
    await home.runOk(['deploy', folder]);
    expect(await home.runOk(['run', 'built', 'tool'])).toBe('from another\n');
    expect((await statusOf('built')).map(({ current }) => current)).toEqual([true, false]);

    await home.runOk(['session', 'stop', 'built/default']);
    await home.runOk(['undeploy', 'built', '--force']);
    await home.runOk(['gc']);
    expect(await leftovers([setup?.id ?? ''])).toEqual([]);
  });

  test('takes packages of the setup on top, and `setup run` builds again', async () => {
    const folder = await project(
      'both',
      { Dockerfile: 'FROM holdfast/agent:latest\nUSER root\nRUN date +%s%N > /srv/when\n' },
      'setup: { packages: { pip: [pip] }, egress: [] }\n',
    );
    await home.runOk(['deploy', folder]);
    const before = await home.runOk(['run', 'both', 'cat /srv/when']);
    expect((await statusOf('both')).map(({ step }) => step.split(' ')[0])).toEqual(['pip', 'dockerfile']);
    expect((await statusOf('both')).map(({ current }) => current)).toEqual([true, true]);
    await home.runOk(['gc']);
    await home.runOk(['setup', 'run', 'both']);
    expect(await home.runOk(['run', 'both', 'cat /srv/when'])).not.toBe(before);
    expect(await statusOf('both')).toHaveLength(4);
  });

  test('reaches the hosts of setup.egress and no others, and says what was refused', async () => {
    const get = (host: string): string => `curl -sS --max-time 5 http://${host}:${origin.port}/hello`;
    const folder = await project(
      'network',
      {
        Dockerfile: `FROM holdfast/agent:latest
USER root
RUN ${get(OPEN)} > /srv/open
RUN ${get(CLOSED)} -f > /srv/closed || rm -f /srv/closed
RUN curl -sS --noproxy '*' --max-time 3 http://127.0.0.1:${origin.port}/hello > /srv/machine || rm -f /srv/machine
`,
      },
      `setup: { egress: [{ host: "${OPEN}:${origin.port}" }, { host: "127.0.0.1:${origin.port}" }] }\n`,
    );
    const deployed = await home.run(['deploy', folder]);
    const log = await home.runOk(['setup', 'log', 'network']);
    expect(deployed, log).toMatchObject({ code: 0 });
    expect(log).toContain(`[network] denied: ${CLOSED}:${origin.port}`);
    expect(await home.runOk(['run', 'network', 'ls /srv'])).toBe('open\n');
  });

  test('that fails keeps the profile as it was, with a reason and a log; nothing of it is left', async () => {
    const folder = await project('fails', {
      Dockerfile: 'FROM holdfast/agent:latest\nRUN echo so far\nRUN exit 7\n',
    });
    const failed = await home.run(['deploy', folder]);
    expect(failed.code).not.toBe(0);
    expect(failed.stderr).toContain('`RUN exit 7` ended with 7');
    const [setup] = await statusOf('fails');
    expect(setup).toMatchObject({ state: 'failed', image: null });
    expect(await home.runOk(['setup', 'log', 'fails'])).toContain('so far');
    expect(await leftovers([setup?.id ?? ''])).toEqual([]);
  });

  test('that is cancelled or takes too long ends at once, and leaves nothing', async () => {
    const slow = 'FROM holdfast/agent:latest\nRUN echo begun && sleep 600\n';
    const folder = await project('late', { Dockerfile: slow }, 'setup: { timeout: 3s }\n');
    const began = performance.now();
    expect((await home.run(['deploy', folder])).stderr).toContain('took too long');
    expect(performance.now() - began).toBeLessThan(30_000);
    const [late] = await statusOf('late');
    expect(late?.state).toBe('failed');
    expect(await leftovers([late?.id ?? ''])).toEqual([]);

    const stepOf = async (profile: string) => (await statusOf(profile).catch(() => []))[0];
    const waiting = home.spawn(['deploy', await project('unwanted', { Dockerfile: slow })]);
    const ended = once(waiting, 'close');
    await expect
      .poll(() => stepOf('unwanted'), { timeout: 60_000 })
      .toMatchObject({ step: expect.stringContaining('/') as string });
    waiting.kill('SIGINT');
    await ended;
    await expect.poll(async () => (await stepOf('unwanted'))?.state, { timeout: 60_000 }).toBe('cancelled');
    expect(await leftovers([(await stepOf('unwanted'))?.id ?? ''])).toEqual([]);

    const killed = home.spawn(['deploy', await project('stopped', { Dockerfile: slow })]);
    const left = once(killed, 'close');
    await expect
      .poll(() => stepOf('stopped'), { timeout: 60_000 })
      .toMatchObject({ step: expect.stringContaining('/') as string });
    const id = (await stepOf('stopped'))?.id ?? '';
    // Otherwise the client would deploy again.
    killed.kill('SIGKILL');
    process.kill(await home.supervisorPid(), 'SIGKILL');
    await left;
    await expect
      .poll(async () => (await statusOf('stopped')).find((one) => one.id === id)?.state, { timeout: 30_000 })
      .toMatch(/failed|cancelled/);
    await expect.poll(() => leftovers([id]), { timeout: 30_000 }).toEqual([]);
  });

  test('that runs when the supervisor is stopped ends with it, and leaves nothing for the next one', async () => {
    const slow = 'FROM holdfast/agent:latest\nRUN echo begun && sleep 600\n';
    const client = home.spawn(['deploy', await project('shut', { Dockerfile: slow })]);
    const left = once(client, 'close');
    const stepOf = async () => (await statusOf('shut').catch(() => []))[0];
    await expect
      .poll(stepOf, { timeout: 60_000 })
      .toMatchObject({ step: expect.stringContaining('/') as string });
    const id = (await stepOf())?.id ?? '';
    // It stays connected, but does not start another supervisor.
    client.kill('SIGSTOP');
    const supervisor = await home.supervisorPid();
    process.kill(supervisor, 'SIGTERM');
    await expect.poll(() => isRunning(supervisor), { timeout: 60_000 }).toBe(false);
    expect(await leftovers([id])).toEqual([]);
    client.kill('SIGKILL');
    await left;
    expect((await stepOf())?.error?.data).toMatchObject({
      code: 'shutting_down',
      why: 'the supervisor is shutting down',
    });
  });

  test('of a devcontainer.json is used; deploy lists what is ignored', async () => {
    const shell = (name: string): Record<string, string> =>
      shellProject(name, 'persistence: persistent\ndevcontainer: true\n');
    const built = await writeProject(home.projects, {
      ...shell('dev-built'),
      '.devcontainer/devcontainer.json':
        '{ // built\n "build": { "dockerfile": "Dockerfile", "context": "..", "args": { "WHAT": "given" } }, "postCreateCommand": "touch /srv/ran", }',
      '.devcontainer/Dockerfile':
        'FROM holdfast/agent:latest\nUSER root\nARG WHAT=usual\nCOPY top.txt /srv/\nRUN echo $WHAT > /srv/what\n',
      'top.txt': 'from the project\n',
    });
    const deployed = await home.run(['deploy', built]);
    expect(deployed).toMatchObject({ code: 0 });
    expect(deployed.stderr).toContain('ignored: postCreateCommand');
    expect(await home.runOk(['run', 'dev-built', 'cat /srv/what /srv/top.txt; ls /srv'])).toBe(
      'given\nfrom the project\ntop.txt\nwhat\n',
    );
    const named = await writeProject(home.projects, {
      ...shell('dev-image'),
      '.devcontainer.json': '{ "image": "holdfast/agent:latest", "features": {} }',
    });
    const other = await home.run(['deploy', named]);
    expect(other).toMatchObject({ code: 0 });
    expect(other.stderr).toContain('ignored: features');
    expect(await home.runOk(['run', 'dev-image', 'echo it runs'])).toBe('it runs\n');
    // The image of another profile is as far away as with `image`.
    const [setup] = await statusOf('dev-built');
    await writeFile(join(named, '.devcontainer.json'), JSON.stringify({ image: setup?.image }));
    expect((await home.run(['deploy', named])).stderr).toContain('prepared for a profile');
  });
});
