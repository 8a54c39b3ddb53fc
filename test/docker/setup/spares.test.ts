import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import Docker from 'dockerode';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../../setup/test-home.ts';
import { writeProject } from '../../setup/profiles.ts';

const WAIT = { timeout: 30_000, interval: 100 };
const docker = new Docker();
let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
});
afterAll(() => home.dispose());

function project(name: string, made: string): Promise<string> {
  return writeProject(home.projects, {
    'holdfast.yaml': `name: ${name}
persistence: persistent
agent: { protocol: command, command: [sh] }
setup: { egress: [], run: "echo ${made} > made; echo ${made} > ~/.made" }
`,
  });
}

async function sessionIds(): Promise<string[]> {
  const { sessions } = z
    .object({ sessions: z.array(z.object({ id: z.string() })) })
    .parse(await home.runJson(['session', 'list']));
  return sessions.map(({ id }) => id);
}

/** The ids of sandboxes on the engine that belong to no session: with the containers that each has. */
async function others(): Promise<Map<string, string[]>> {
  const known = new Set(await sessionIds());
  const found = new Map<string, string[]>();
  for (const { Labels } of await docker.listContainers({
    all: true,
    filters: { label: [`dev.holdfast.home=${home.id}`, 'dev.holdfast.session'] },
  })) {
    const id = Labels['dev.holdfast.session'] ?? '';
    if (!known.has(id)) found.set(id, [...(found.get(id) ?? []), Labels['dev.holdfast.role'] ?? '']);
  }
  return found;
}

/** The id of the only spare, once it is filled. */
async function spare(): Promise<string> {
  return await vi.waitFor(async () => {
    const [id = 'none', ...more] = [...(await others()).keys()];
    expect(more).toEqual([]);
    await lstat(join(home.path, 'homes', id, '.made'));
    return id;
  }, WAIT);
}

async function expectGone(id: string): Promise<void> {
  await vi.waitFor(async () => {
    const folders = ['workspaces', 'homes', 'run'].map((name) => readdir(join(home.path, name)));
    expect((await Promise.all(folders)).flat()).not.toContain(id);
    expect(await others()).toEqual(new Map());
  }, WAIT);
}

test('the next session of a prepared profile takes what was made ahead for it, and nobody else has it', async () => {
  await home.runOk(['deploy', await project('ahead', 'one')]);
  const read = 'cat made ~/.made; ls -A | tr "\\n" " "; id -u';
  const first = await home.runOk(['run', 'ahead', read, '--session', 'first']);
  expect(first).toMatch(/^one\none\nmade \d+\n$/);
  await home.runOk(['run', 'ahead', 'echo secret > mine; echo secret > ~/mine', '--session', 'first']);
  const id = await spare();
  // No agent runs in it, and it is in order.
  expect([...(await others()).values()]).toEqual([['sidecar']]);
  const { checks } = z
    .object({ checks: z.array(z.object({ name: z.string(), status: z.string() })) })
    .parse(JSON.parse((await home.run(['doctor', '--json'])).stdout));
  expect(checks.filter(({ name }) => name === 'sessions').map(({ status }) => status)).toEqual(['ok']);
  expect(await home.runOk(['gc'])).not.toContain(id);

  // A name that is in use creates nothing, and the spare stays.
  expect((await home.run(['session', 'create', 'ahead', '--name', 'first'])).code).not.toBe(0);
  const second = await home.runOk(['run', 'ahead', read, '--session', 'second']);
  expect(await sessionIds()).toContain(id);
  expect(second).toMatch(/^one\none\nmade \d+\n$/);
  const uid = (text: string): string => text.trim().split(' ').at(-1) ?? '';
  // Where the supervisor is root, each session has a uid of its own.
  if (process.getuid?.() === 0) expect(uid(second)).not.toBe(uid(first));
  const events = await home.runOk(['session', 'events', 'second', '--json']);
  expect(events.match(/workspace\.seeded/g)).toHaveLength(1);
  expect(await home.runOk(['snapshot', 'list', 'second'])).toContain('after-setup');

  // The next one is there for the next version only.
  const next = await spare();
  expect(next).not.toBe(id);
  await home.runOk(['deploy', await project('ahead', 'two')]);
  await expectGone(next);
  expect(await home.runOk(['run', 'ahead', read, '--session', 'third'])).toMatch(/^two\ntwo\nmade \d+\n$/);

  // The supervisor takes it along when it ends.
  const last = await spare();
  await home.runOk(['supervisor', 'stop']);
  await expectGone(last);
});

test('a session that took a spare and was cleared or redeployed before its first use begins as any other', async () => {
  await home.runOk(['deploy', await project('later', 'one')]);
  await home.runOk(['run', 'later', 'true', '--session', 'first']);
  const id = await spare();
  await home.runOk(['session', 'create', 'later', '--name', 'second']);
  expect(await sessionIds()).toContain(id);
  await home.runOk(['deploy', await project('later', 'two')]);
  expect(await home.runOk(['run', 'later', 'cat made ~/.made; ls', '--session', 'second'])).toBe(
    'two\ntwo\nmade\n',
  );
  const next = await spare();
  await home.runOk(['session', 'create', 'later', '--name', 'third']);
  expect(await sessionIds()).toContain(next);
  await home.runOk(['workspace', 'clean', 'later/third', '--force']);
  expect(await home.runOk(['run', 'later', 'cat made ~/.made; ls', '--session', 'third'])).toBe(
    'two\ntwo\nmade\n',
  );
});
