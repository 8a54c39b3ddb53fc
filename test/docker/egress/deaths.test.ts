import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { Origin } from '../../egress-harness/origin.ts';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';

/** Exit codes of curl. */
const CURL = { done: 0, refused: 7, broken: 56 } as const;

let origin: Origin;
let home: TestHome;
let workspace: string;
let session: string;
beforeAll(async () => {
  origin = await Origin.start();
  home = await TestHome.create();
  const egress = `egress: [{ host: "127.0.0.1:${origin.port}" }]\nworkspace: { seed: false }\npersistence: persistent\n`;
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('deaths', egress))]);
  await home.runOk(['run', 'deaths', 'true']);
  const info = z
    .object({ path: z.string(), sessionId: z.string() })
    .parse(await home.runJson(['workspace', 'info', 'default']));
  [workspace, session] = [info.path, info.sessionId];
});
afterAll(async () => {
  await home.dispose();
  await origin.dispose();
});
beforeEach(async () => {
  for (const name of ['log', 'go']) await rm(join(workspace, name), { force: true });
});

/**
 * Downloads a response of unknown length, through a tunnel and plain, so that only a reset shows that it is
 * incomplete. Then waits for `go` and retries.
 */
const script = () => {
  const curl = `curl -sS --noproxy '' --max-time 60 -o /dev/null`;
  const base = `http://127.0.0.1:${origin.port}`;
  return `
say() { echo "$1 $?" >>log; }
${curl} -0 --proxytunnel ${base}/endless & tunnel=$!
${curl} -0 ${base}/endless & plain=$!
wait $tunnel; say tunnel
wait $plain; say plain
${curl} ${base}/hello; say while
curl -sS --noproxy '*' --max-time 2 -o /dev/null ${base}/hello; say direct
until [ -e go ]; do sleep 0.05; done
tries=0; until ${curl} -f ${base}/hello; do tries=$((tries+1)); [ $tries -lt 200 ] || break; sleep 0.1; done; say again`;
};

const log = () => readFile(join(workspace, 'log'), 'utf8').catch(() => '');
const logged = async () =>
  Object.fromEntries(
    (await log())
      .split('\n')
      .filter(Boolean)
      .map((line) => line.split(' ')),
  ) as Record<string, string>;

/** Starts the downloads, kills the process meanwhile, and returns what the agent saw before any repair. */
async function die(kill: () => Promise<void>): Promise<string> {
  const before = origin.requests.length;
  const { turnId } = z
    .object({ turnId: z.string() })
    .parse(await home.runJson(['run', 'deaths', script(), '--no-wait']));
  await expect.poll(() => origin.requests.length - before, { timeout: 30_000 }).toBe(2);
  expect(origin.openConnections).toBeGreaterThanOrEqual(2);
  await kill();
  return turnId;
}

describe('kill -9 in the middle of a download', () => {
  test('of the supervisor breaks it off, opens nothing, and the next supervisor restores egress', async () => {
    const turnId = await die(async () => void process.kill(await home.supervisorPid(), 'SIGKILL'));
    await expect.poll(log, { timeout: 30_000 }).toContain('direct');
    expect(await logged()).toEqual({
      tunnel: String(CURL.broken),
      plain: String(CURL.broken),
      while: String(CURL.refused),
      direct: String(CURL.refused),
    });
    await expect.poll(() => origin.openConnections, { timeout: 30_000 }).toBe(0);
    // The next request starts another supervisor.
    await home.runOk(['profiles']);
    await writeFile(join(workspace, 'go'), '');
    await home.runOk(['turn', 'wait', turnId]);
    expect(await logged()).toMatchObject({ again: String(CURL.done) });
    await home.runOk(['session', 'verify', session]);
  }, 120_000);

  test('of the sidecar breaks it off, and the next sidecar listens again', async () => {
    const turnId = await die(() => home.killContainer(session, 'sidecar'));
    await expect.poll(log, { timeout: 30_000 }).toContain('direct');
    const { tunnel, plain, direct } = await logged();
    expect([tunnel, plain, direct]).toEqual([CURL.broken, CURL.broken, CURL.refused].map(String));
    await expect.poll(() => origin.openConnections, { timeout: 30_000 }).toBe(0);
    await writeFile(join(workspace, 'go'), '');
    await home.runOk(['turn', 'wait', turnId]);
    expect(await logged()).toMatchObject({ again: String(CURL.done) });
  }, 120_000);
});

test('without rules nothing listens, and running processes reach the first host that is allowed', async () => {
  const project = shellProject('empty', 'persistence: persistent\nworkspace: { seed: false }\n');
  await home.runOk(['deploy', await writeProject(home.projects, project)]);
  const base = `http://127.0.0.1:${origin.port}`;
  const refused = await home.run(['run', 'empty', `curl -sS --noproxy '' ${base}/hello`]);
  expect(refused.stderr).toContain('Failed to connect to 127.0.0.1 port 3128');
  const { turnId } = z
    .object({ turnId: z.string() })
    .parse(
      await home.runJson([
        ...['run', 'empty', '--no-wait'],
        `touch started; for n in $(seq 400); do curl -sSf --noproxy '' ${base}/hello && exit 0; sleep 0.1; done; exit 1`,
      ]),
    );
  const path = z
    .object({ path: z.string() })
    .parse(await home.runJson(['workspace', 'info', 'empty/default'])).path;
  await expect
    .poll(
      () =>
        readFile(join(path, 'started')).then(
          () => true,
          () => false,
        ),
      { timeout: 30_000 },
    )
    .toBe(true);
  await home.runOk(['policy', 'allow', 'empty/default', `127.0.0.1:${origin.port}`]);
  expect(await home.runOk(['turn', 'wait', turnId])).toBe('hello\n');
  // Also by Node's fetch, in a new process.
  const fetched = await home.runOk([
    ...['run', 'empty'],
    `NO_PROXY= no_proxy= node -e 'fetch("${base}/hello").then((r) => r.text()).then(console.log)'`,
  ]);
  expect(fetched.trim()).toBe('hello');
});
