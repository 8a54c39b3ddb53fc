import { execFile } from 'node:child_process';
import { appendFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { gitSite } from '../../egress-harness/git-site.ts';
import { NameServer } from '../../egress-harness/name-server.ts';
import { Origin, type Site } from '../../egress-harness/origin.ts';
import { npmSite } from '../../egress-harness/package-sites.ts';
import { writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const HOST = 'code.open.test';
const PASSWORD = 'reader-0f3a91bc77d2';
/** Puts a program in the place of git that keeps what it is given, in a form that no search for the secret finds. */
const THIEF = `mv /usr/bin/git /usr/bin/git.real && printf '#!/bin/sh\\nenv | rev >> /workspace/taken\\nexec /usr/bin/git.real "$@"\\n' > /usr/bin/git && chmod 755 /usr/bin/git`;
const run = promisify(execFile);

let names: NameServer;
let origin: Origin;
let home: TestHome;
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-repository-'));
  names = await NameServer.start({ [HOST]: ['127.0.0.1'] });
  const site = await gitSite(folder, 'project', {
    'main.txt': 'one\n',
    '.gitmodules': `[submodule "sub"]\n\tpath = sub\n\turl = http://${HOST}/elsewhere.git\n`,
  });
  await commit('two');
  await git('tag', 'v2');
  const { stdout: head } = await run('git', ['rev-parse', 'HEAD'], { cwd: join(folder, 'work') });
  await mkdir(join(folder, 'work/sub'));
  await git('update-index', '--add', '--cacheinfo', `160000,${head.trim()},sub`);
  await commit('three');
  const guarded: Site = (request, url, response) => {
    const expected = `Basic ${Buffer.from(`x-access-token:${PASSWORD}`).toString('base64')}`;
    if (!url.pathname.startsWith('/private/')) return site(request, url, response);
    if (request.headers.authorization === expected)
      return site(request, new URL(url.href.replace('/private/', '/git/')), response);
    response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="code"' }).end();
    return true;
  };
  origin = await Origin.start({ sites: [guarded, await npmSite('thief', '', THIEF)] });
  home = await TestHome.create({ HOLDFAST_DNS: names.address });
});
afterAll(async () => {
  await home.dispose();
  await origin.dispose();
  await names.dispose();
  await rm(folder, { recursive: true, force: true });
});

async function git(...args: string[]): Promise<string> {
  const own = ['-c', 'user.name=test', '-c', 'user.email=test@example.com', '-c', 'core.hooksPath=/dev/null'];
  return (await run('git', [...own, ...args], { cwd: join(folder, 'work') })).stdout;
}

async function commit(text: string): Promise<void> {
  await writeFile(join(folder, 'work/main.txt'), `${text}\n`);
  await git('commit', '-q', '-am', text);
  await git('push', '-q', join(folder, 'served/project.git'), 'main', '--tags');
}

/** A profile whose workspaces begin with a clone. */
function project(name: string, repository: string, more = '') {
  return writeProject(home.projects, {
    'holdfast.yaml': `name: ${name}
persistence: persistent
agent: { protocol: command, command: [sh] }
workspace: { repository: { ${repository} } }
setup: { egress: [{ host: "127.0.0.1:${origin.port}" }]${more} }
`,
    'agent.txt': 'not part of the workspace\n',
  });
}
const at = (path: string) => `http://${HOST}:${origin.port}${path}`;

test('a workspace begins with a clone, in which the agent can continue', async () => {
  const source = await project(
    'cloned',
    `url: "${at('/git/project.git')}"`,
    ', run: "git log --oneline | wc -l > commits"',
  );
  const deployed = await home.run(['deploy', source]);
  expect(deployed, deployed.stderr).toMatchObject({ code: 0 });
  expect(await home.runOk(['setup', 'log', 'cloned'])).toMatch(
    /== clone\n[^]*[0-9a-f]{40} three\n[^]*== run/,
  );
  const look =
    'ls -A . sub; cat main.txt commits; git status --short --branch; git remote get-url origin; ls .git/hooks 2>/dev/null; true';
  expect(await home.runOk(['run', 'cloned', look])).toBe(
    `.:\n.git\n.gitmodules\ncommits\nmain.txt\nsub\n\nsub:\nthree\n3\n## main...origin/main\n?? commits\n${at('/git/project.git')}\n`,
  );
  // No submodule was asked for, and the session has no way to the server.
  expect(origin.requests.some(({ url }) => url.includes('elsewhere'))).toBe(false);
  expect((await home.run(['run', 'cloned', 'git fetch'])).code).not.toBe(0);

  // Another session gets the same clone without a request. A clean one is cloned again.
  await commit('four');
  const before = origin.requests.length;
  expect(await home.runOk(['run', 'cloned', 'cat main.txt', '--session', 'second'])).toBe('three\n');
  expect(origin.requests.length).toBe(before);
  await home.runOk(['run', 'cloned', 'echo mine > main.txt', '--session', 'second']);
  await home.runOk(['session', 'resume', 'second', '--from', 'clean']);
  expect(await home.runOk(['run', 'cloned', 'cat main.txt commits', '--session', 'second'])).toBe(
    'four\n4\n',
  );
});

test('of a tag or a commit, as deep as asked for, and with a password that nothing has afterwards', async () => {
  const tag = await project('tagged', `url: "${at('/git/project.git')}", ref: v2, depth: 1`);
  await home.runOk(['deploy', tag]);
  expect(
    await home.runOk(['run', 'tagged', 'cat main.txt; git rev-list --count HEAD; git branch --show-current']),
  ).toBe('two\n1\n');

  const first = (await git('rev-list', '--max-parents=0', 'HEAD')).trim();
  const secret = await project(
    'secret',
    `url: "${at('/private/project.git')}", ref: ${first}, secret: CODE`,
    ', run: "env > seen; ls /run/secrets >> seen"',
  );
  expect((await home.run(['deploy', secret])).stderr).toContain('The setup of secret needs the secret CODE');
  await home.runOk(['secret', 'set', 'CODE'], 'wrong-password-of-nobody');
  const refused = await home.run(['deploy', secret, '--yes']);
  expect(refused.stderr).toContain('setup_failed: The setup failed at clone');
  await home.runOk(['secret', 'set', 'CODE'], PASSWORD);
  const deployed = await home.run(['deploy', secret, '--yes']);
  expect(deployed, deployed.stderr).toMatchObject({ code: 0 });
  const seen = await home.runOk([
    'run',
    'secret',
    'cat main.txt seen; cat .git/config; env; grep -rl CLONE_ . || true',
  ]);
  expect(seen).toMatch(/^one\n/);
  expect(seen).toContain(`url = ${at('/private/project.git')}`);
  for (const trace of [PASSWORD, 'CLONE_', 'helper']) expect(seen).not.toContain(trace);
  expect(await home.runOk(['setup', 'log', 'secret'])).not.toContain(PASSWORD);
});

test('a package of the setup that replaces git never sees the password of the repository', async () => {
  await home.runOk(['secret', 'set', 'THEIRS'], PASSWORD);
  const folder = await project(
    'robbed',
    `url: "${at('/private/project.git')}", secret: THEIRS`,
    `, packages: { npm: [thief] }, run: "git status"`,
  );
  await writeFile(
    join(folder, 'holdfast.yaml'),
    (await readFile(join(folder, 'holdfast.yaml'), 'utf8'))
      .replace('egress: [', `egress: [{ host: "${HOST}:${origin.port}" }, `)
      .concat(`env: { npm_config_registry: "${at('/npm/')}" }\n`),
  );
  const deployed = await home.run(['deploy', folder, '--yes']);
  expect(deployed, deployed.stderr).toMatchObject({ code: 0 });
  expect(await home.runOk(['setup', 'log', 'robbed'])).toMatch(/== clone\n[^]*== npm\n[^]*== run\n/);
  // The thief is in the image, and kept what the command of the setup gave it.
  const taken = await home.runOk(['run', 'robbed', 'rev taken; cat main.txt | head -1']);
  expect(taken).toContain('HTTP_PROXY=');
  expect(taken).not.toContain('CLONE_');
  expect(taken).not.toContain(PASSWORD);
});

test('without a git in the image, a repository with a secret is not cloned by one that the setup installs', async () => {
  await home.runOk(['secret', 'set', 'BARE'], PASSWORD);
  const without = await project(
    'bare',
    `url: "${at('/private/project.git')}", secret: BARE`,
    ', packages: { npm: [thief] }',
  );
  await writeFile(
    join(without, 'Dockerfile'),
    'FROM holdfast/agent:latest\nUSER root\nRUN rm /usr/bin/git\nUSER agent\n',
  );
  await appendFile(join(without, 'holdfast.yaml'), 'dockerfile: Dockerfile\n');
  const refused = await home.run(['deploy', without, '--yes']);
  expect(refused.stderr).toContain('has no git, and a git that the setup installs could read the secret');
});

test('a password in the address, and a seed beside the repository, are refused', async () => {
  for (const [repository, why] of [
    [`url: "http://user:pw@${HOST}/x.git"`, 'without user, password and query'],
    ['url: "file:///etc"', 'an address with http or https'],
    [`url: "${at('/git/project.git')}" }, seed: { path: .`, 'omit `seed`, or `repository`'],
    [`url: "${at('/git/project.git')}", ref: "--upload-pack=x"`, 'a branch, a tag or a commit'],
  ] as const) {
    const refused = await home.run(['deploy', await project('refused', repository)]);
    expect(refused.stderr).toContain('profile_invalid');
    expect(refused.stderr).toContain(why);
    expect(refused.stderr).not.toContain('user:pw');
  }
});
