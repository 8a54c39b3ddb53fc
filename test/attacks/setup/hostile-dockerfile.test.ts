import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import type { AddressInfo } from 'node:net';
import Docker from 'dockerode';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { SetupStatusSchema } from '../../../protocol/setup.ts';
import { SOAK } from '../../setup/run-length.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const FILES = SOAK ? 100_000 : 2_000;
const docker = new Docker();
const BASE = 'FROM holdfast/agent:latest\nUSER root\n';

let home: TestHome;
let requests: string[];
let port: number;
const server = createServer((request, response) => {
  requests.push(request.url ?? '');
  response.end('fetched');
});
beforeAll(async () => {
  requests = [];
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
  home = await TestHome.create();
});
afterAll(async () => {
  await home.dispose();
  await new Promise((resolve) => server.close(resolve));
});

const project = (name: string, dockerfile: string, files: Readonly<Record<string, string>> = {}) =>
  writeProject(home.projects, {
    ...shellProject(
      name,
      'persistence: persistent\ndockerfile: Dockerfile\nlimits: { pids: 64, memory: 256MiB }\n',
    ),
    Dockerfile: dockerfile,
    ...files,
  });
const refused = async (name: string, dockerfile: string, files: Readonly<Record<string, string>> = {}) => {
  const { code, stderr } = await home.run(['deploy', await project(name, dockerfile, files)]);
  expect(code).not.toBe(0);
  return stderr;
};
async function newestSetup(profile: string) {
  const { setups } = z
    .object({ setups: z.array(SetupStatusSchema) })
    .parse(await home.runJson(['setup', 'status', profile]));
  return setups[0];
}

describe('a hostile Dockerfile', () => {
  test('has the engine fetch nothing from the machine, and no step of it reaches the machine', async () => {
    expect(await refused('fetches', `${BASE}ADD http://127.0.0.1:${port}/a /a\n`)).toContain(
      'fetched by the engine',
    );
    expect(await refused('fetches', `${BASE}ARG U=http://127.0.0.1:${port}/b\nADD $U /a\n`)).toContain(
      'may be an address',
    );
    expect(await refused('fetches', `# syntax=127.0.0.1:${port}/c\n${BASE}`)).toContain('another builder');
    // COPY never fetches.
    expect(await refused('fetches', `${BASE}ARG U=http://127.0.0.1:${port}/d\nCOPY $U /a\n`)).toContain(
      'setup_failed',
    );
    const tries = [
      `http://127.0.0.1:${port}/e`,
      `http://host.holdfast.internal:${port}/f`,
      `http://host.docker.internal:${port}/g`,
      'http://169.254.169.254/',
    ];
    await home.runOk([
      'deploy',
      await project(
        'reaches',
        `${BASE}RUN for url in ${tries.join(' ')}; do curl -sS -f --max-time 3 $url; curl -sS -f --noproxy '*' --max-time 3 $url; done; ls /var/run/docker.sock > /srv/seen 2> /dev/null; ls -A /workspace /agent | grep -v : >> /srv/seen; ip -o addr 2>/dev/null | grep -v ' lo ' > /srv/addresses; true\n`,
      ),
    ]);
    expect(requests).toEqual([]);
    expect(await home.runOk(['run', 'reaches', 'cat /srv/addresses /srv/seen'])).toMatch(/^\n*$/);
  });

  test('learns nothing of another profile: not by its image, its id, or a tag', async () => {
    await home.runOk(['deploy', await project('victim', `${BASE}RUN echo private > /srv/private\n`)]);
    const image = (await newestSetup('victim'))?.image ?? '';
    const { Id } = await docker.getImage(image).inspect();
    await docker.getImage(image).tag({ repo: 'borrowed', tag: 'latest' });
    try {
      for (const name of [image, 'borrowed']) {
        expect(await refused('thief', `FROM ${name}\n`)).toContain('prepared for a profile');
        expect(await refused('thief', `${BASE}COPY --from=${name} /srv/private /srv/\n`)).toContain(
          'prepared for a profile',
        );
      }
      for (const id of [Id, Id.replace('sha256:', ''), Id.replace('sha256:', '').slice(0, 12)])
        expect(await refused('thief', `FROM ${id}\n`)).toContain('by its id');
    } finally {
      await docker.getImage('borrowed:latest').remove({ noprune: true });
    }
  });

  test('cannot take an image of this machine that the profile does not list, nor one with triggers', async () => {
    const name = 'hf-test-local:latest';
    const build = async (changes: string): Promise<void> => {
      const made = await docker.createContainer({ Image: 'holdfast/agent:latest', Cmd: ['true'] });
      await made.commit({ repo: 'hf-test-local', tag: 'latest', ...(changes === '' ? {} : { changes }) });
      await made.remove();
    };
    await build('');
    try {
      expect(await refused('local', `FROM ${name}\n`)).toContain('this machine alone');
      await docker.getImage(name).remove();
      await build('ONBUILD RUN touch /srv/triggered');
      const listed = await writeProject(home.projects, {
        ...shellProject(
          'local',
          `persistence: persistent\ndockerfile: { path: Dockerfile, from: ["${name}"] }\n`,
        ),
        Dockerfile: `FROM ${name}\n`,
      });
      expect((await home.run(['deploy', listed])).stderr).toContain('ONBUILD');
    } finally {
      await docker.getImage(name).remove({ force: true });
    }
  });

  test('cannot take our labels, so that it is found and collected all the same', async () => {
    const labels = 'LABEL dev.holdfast.role=agent dev.holdfast.session=ses-x dev.holdfast.home=other';
    await home.runOk(['deploy', await project('labels', `${BASE}${labels}\nRUN true\n`)]);
    const setup = await newestSetup('labels');
    const { Config } = await docker.getImage(setup?.image ?? '').inspect();
    expect(Config.Labels).toMatchObject({
      'dev.holdfast.role': 'prepared',
      'dev.holdfast.session': setup?.id,
    });
  });

  test('that forks, fills its memory or never ends hurts itself alone', async () => {
    const bomb = 'i=0; while [ $i -lt 400 ]; do sleep 30 & i=$((i+1)); done; echo "forked $i"; wait';
    const began = performance.now();
    const told = await refused('forks', `${BASE}RUN sleep 2; ${bomb}\n`);
    expect(told).toMatch(/setup_failed/);
    expect(performance.now() - began).toBeLessThan(60_000);
    expect(await refused('memory', `${BASE}RUN head -c 600000000 /dev/zero | tail > /srv/x\n`)).toContain(
      'setup_failed',
    );
    expect(await home.runOk(['run', 'victim', 'cat /srv/private'])).toBe('private\n');
  });
});

describe('a hostile context', () => {
  test('with links out of it, pipes or devices is not even sent', async () => {
    const folder = await project('links', `${BASE}COPY . /srv/all\n`);
    execFileSync('ln', ['-s', '/etc/shadow', join(folder, 'shadow')]);
    expect((await home.run(['deploy', folder])).stderr).toContain('outside the project');
    const pipes = await project('pipes', `${BASE}COPY . /srv/all\n`);
    execFileSync('mkfifo', [join(pipes, 'pipe')]);
    expect((await home.run(['deploy', pipes])).stderr).toContain('named pipe');
  });

  test('with links inside copies links, which lead nowhere outside', async () => {
    const folder = await project('inner', `${BASE}COPY . /srv/all\nCOPY up/../etc/hostname /srv/\n`, {
      'etc/hostname': 'mine\n',
    });
    execFileSync('ln', ['-s', 'etc/hostname', join(folder, 'link')]);
    await home.runOk(['deploy', folder]);
    expect(
      await home.runOk(['run', 'inner', 'cat /srv/hostname; readlink /srv/all/link; ls -A /srv/all']),
    ).toMatch(/^mine\netc\/hostname\n/);
    expect(await refused('above', `${BASE}COPY ../../etc/hostname /srv/\n`, { a: '' })).toContain(
      'outside the build context',
    );
    // Neither the Dockerfile that the engine got nor its ignore file are copied.
    expect(await home.runOk(['run', 'inner', 'ls -A /srv/all'])).not.toContain('.holdfast.Dockerfile');
  });

  test(`of ${FILES} files with odd names is built, and leaves nothing in the home`, async () => {
    const folder = await project('wide', `${BASE}COPY many /srv/many\n`);
    await mkdir(join(folder, 'many'));
    for (let n = 0; n < FILES; n += 1) await writeFile(join(folder, 'many', `f ${n} ä\n'"$(id)`), '');
    await home.runOk(['deploy', folder]);
    expect(await home.runOk(['run', 'wide', 'find /srv/many -type f -print0 | tr -dc "\\0" | wc -c'])).toBe(
      `${FILES}\n`,
    );
    for (const place of ['run', 'workspaces', 'homes', 'deploys/.uploads']) {
      const left = await readdir(join(home.path, place)).catch(() => []);
      expect(left.filter((name) => !name.startsWith('ses-'))).toEqual([]);
    }
  });
});
