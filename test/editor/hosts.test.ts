import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { HostList } from '../../hosts/base/host-list.ts';
import { SSHD, SshServer } from '../fixtures/hosts/ssh-server.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';

const RUN_MS = 240_000;
const CHECKED = "persistence: persistent\nchecks:\n  compile: 'cat findings; test ! -s findings'\n";

let server: SshServer;
let near: TestHome;

beforeAll(async () => {
  if (SSHD === undefined) return;
  server = await SshServer.start(SSHD, { environment: farEnvironment() });
  near = await TestHome.create(server.environment);
  new HostList(near.path).add('far', server.destination, new Date());
  const project = await writeProject(near.projects, shellProject('shell', CHECKED));
  for (const host of ['far', 'local']) await near.runOk(['deploy', project, '--host', host]);
}, 120_000);
afterAll(async () => {
  if (SSHD === undefined) return;
  await near.run(['purge', '--force', '--host', 'far']);
  await near.run(['host', 'rm', 'far']);
  await near.dispose();
  await server.stop();
});

/** Where the other machine finds the same engine, and Node. */
function farEnvironment(): Record<string, string> {
  const { DOCKER_HOST } = process.env;
  return {
    PATH: `${join(process.execPath, '..')}:/usr/bin:/bin`,
    ...(DOCKER_HOST === undefined ? {} : { DOCKER_HOST }),
  };
}

test.skipIf(SSHD === undefined)(
  'a session of another machine is worked on in a window of this one, also after the connection was cut (needs sshd)',
  { timeout: RUN_MS + 60_000 },
  async () => {
    const { id } = z
      .object({ session: z.object({ id: z.string() }) })
      .parse(await near.runJson(['session', 'create', 'shell', '--host', 'far'])).session;
    const authority = `${id}.${readFileSync(join(server.farHome, 'id'), 'utf8').trim()}`;
    const { outcomes } = await runInExtensionHost({
      name: 'hosts',
      timeoutMs: RUN_MS,
      open: () => ({ folder: `holdfast://${authority}/` }),
      suites: ['hosts'],
      env: {
        ...server.environment,
        HOLDFAST_HOME: near.path,
        HOLDFAST_TEST_SESSION: id,
        HOLDFAST_TEST_AUTHORITY: authority,
        HOLDFAST_TEST_SSH: join(server.folder, 'ssh_config'),
      },
    });
    expect(failures(outcomes)).toBe('');
  },
);
