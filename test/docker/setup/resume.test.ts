import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
});
afterAll(() => home.dispose());

async function deploy(name: string, resume: string, persistence = 'persistent'): Promise<void> {
  await home.runOk([
    'deploy',
    await writeProject(home.projects, {
      'holdfast.yaml': `name: ${name}
persistence: ${persistence}
agent: { protocol: command, command: [sh] }
env: { GREETING: hello }
setup: { resume: ${JSON.stringify(resume)} }
`,
    }),
  ]);
}

const ResumedSchema = z.object({
  data: z.object({ exitCode: z.number().nullable(), timedOut: z.boolean(), lastLine: z.string() }),
});

async function resumptions(session: string) {
  const lines = await home.runOk(['session', 'events', session, '--type', 'setup.resumed', '--json']);
  return lines
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => ResumedSchema.parse(JSON.parse(line)).data);
}

test('runs in each new sandbox of a session but the first, before the turn, as the agent', async () => {
  await deploy(
    'resumed',
    'echo "$GREETING $(id -u) $PWD" >> resumed; (while :; do date > ~/.alive; sleep 0.2; done) > /dev/null 2>&1 & sleep 0.5',
  );
  expect(await home.runOk(['run', 'resumed', 'ls; id -u'])).toMatch(/^\d+\n$/);
  await home.runOk(['run', 'resumed', 'true']);
  expect(await resumptions('default')).toEqual([]);
  await home.runOk(['session', 'stop', 'default']);
  // What it began goes on in the turn.
  expect(
    await home.runOk(['run', 'resumed', 'cat resumed; id -u; sleep 0.3; test -f ~/.alive && echo alive']),
  ).toMatch(/^hello (\d+) \/workspace\n\1\nalive\n$/);
  expect(await home.runOk(['run', 'resumed', 'wc -l < resumed'])).toBe('1\n');
  expect(await resumptions('default')).toEqual([{ exitCode: 0, timedOut: false, lastLine: '' }]);
  await home.runOk(['session', 'stop', 'default']);
  expect(await home.runOk(['run', 'resumed', 'wc -l < resumed'])).toBe('2\n');
});

test('a failure is shown, and the turn runs; an ephemeral session has no resume', async () => {
  await deploy('failing', 'echo begun; echo "no database" >&2; exit 4');
  await home.runOk(['run', 'failing', 'true', '--session', 'f']);
  await home.runOk(['session', 'stop', 'f']);
  expect(await home.runOk(['run', 'failing', 'echo it runs', '--session', 'f'])).toBe('it runs\n');
  expect(await resumptions('f')).toEqual([{ exitCode: 4, timedOut: false, lastLine: 'no database' }]);
  expect(await home.runOk(['session', 'show', 'f', '--conversation'])).toContain(
    'setup.resume ended with 4: no database',
  );

  await deploy('passing', 'exit 1', 'ephemeral');
  await home.runOk(['run', 'passing', 'true', '--session', 'p']);
  await home.runOk(['session', 'stop', 'p']);
  await home.runOk(['run', 'passing', 'true', '--session', 'p']);
  expect(await resumptions('p')).toEqual([]);
});

interface SlowSession {
  readonly name: string;
  readonly id: string;
  /** Of this machine: clients that read files wait while `setup.resume` runs. */
  readonly workspace: string;
}

/** Its `setup.resume` leaves a program. It does not end as long as `slow` is in the workspace. */
async function slowSession(name: string): Promise<SlowSession> {
  await deploy(name, 'echo began >> begun; sleep 612 > /dev/null 2>&1 & if [ -e slow ]; then sleep 50; fi');
  await home.runOk(['run', name, 'touch slow', '--session', name]);
  const { session } = z
    .object({ session: z.object({ id: z.string() }) })
    .parse(await home.runJson(['session', 'show', name]));
  await home.runOk(['session', 'stop', name]);
  return { name, id: session.id, workspace: join(home.path, 'workspaces', session.id) };
}

async function untilBegun({ workspace }: SlowSession): Promise<void> {
  const begun = (): boolean => existsSync(join(workspace, 'begun'));
  await expect.poll(begun, { timeout: 30_000, interval: 50 }).toBe(true);
}

async function beginTurn({ name }: SlowSession): Promise<string> {
  const begun = await home.runJson(['run', name, 'true', '--session', name, '--no-wait']);
  return z.object({ turnId: z.string() }).parse(begun).turnId;
}

/** The script began twice, and what it starts runs once: in a sandbox of its own. */
async function expectOneCopy({ name }: SlowSession): Promise<void> {
  const look = 'pgrep -f "sleep 612" | wc -l; wc -l < begun';
  expect(await home.runOk(['run', name, look, '--session', name])).toBe('1\n2\n');
  expect(await resumptions(name)).toMatchObject([{ exitCode: 0, timedOut: false }]);
}

async function secondsOf(act: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await act();
  return (performance.now() - began) / 1000;
}

test.each(['killed', 'stopped'] as const)(
  'a supervisor that is %s during it: the turn runs in a new sandbox, with one copy',
  async (how) => {
    const slow = await slowSession(`supervisor-${how}`);
    const turnId = await beginTurn(slow);
    await untilBegun(slow);
    const before = await home.containerId(slow.id, 'agent');
    const end =
      how === 'killed'
        ? async () => void process.kill(await home.supervisorPid(), 'SIGKILL')
        : () => home.runOk(['supervisor', 'stop']);
    expect(await secondsOf(end)).toBeLessThan(8);
    await rm(join(slow.workspace, 'slow'));
    await home.runOk(['turn', 'wait', turnId]);
    await expectOneCopy(slow);
    expect(await home.containerId(slow.id, 'agent')).not.toBe(before);
  },
  120_000,
);

test('`turn cancel` ends it, and the next turn gets a new sandbox', async () => {
  const slow = await slowSession('cancelled');
  const turnId = await beginTurn(slow);
  await untilBegun(slow);
  await home.runOk(['turn', 'cancel', turnId]);
  expect(await secondsOf(() => home.run(['turn', 'wait', turnId]))).toBeLessThan(8);
  expect(await home.runJson(['turn', 'show', turnId])).toMatchObject({ turn: { status: 'cancelled' } });
  await rm(join(slow.workspace, 'slow'));
  await expectOneCopy(slow);
}, 120_000);

test('`session stop --force` and a deletion end it, whoever waits for it', async () => {
  const slow = await slowSession('forced');
  const exec = home.run(['exec', slow.name, '--', 'true']);
  await untilBegun(slow);
  expect(await secondsOf(() => home.runOk(['session', 'stop', slow.name, '--force']))).toBeLessThan(15);
  expect((await exec).code).not.toBe(0);
  await rm(join(slow.workspace, 'begun'));

  const turnId = await beginTurn(slow);
  await untilBegun(slow);
  expect(await secondsOf(() => home.runOk(['session', 'stop', slow.name, '--force']))).toBeLessThan(15);
  expect(await home.runJson(['turn', 'show', turnId])).toMatchObject({ turn: { status: 'cancelled' } });
  await rm(join(slow.workspace, 'begun'));

  const resume = home.run(['session', 'resume', slow.name]);
  await untilBegun(slow);
  expect(await secondsOf(() => home.runOk(['session', 'delete', slow.name, '--force']))).toBeLessThan(15);
  expect((await resume).code).not.toBe(0);
}, 120_000);

test('one that does not end is killed after a minute, and the turn runs', async () => {
  await deploy('stuck', 'echo waiting; trap "" TERM; sleep 600 & sleep 600');
  await home.runOk(['run', 'stuck', 'true', '--session', 's']);
  await home.runOk(['session', 'stop', 's']);
  expect(
    await home.runOk(['run', 'stuck', 'pgrep -f "sleep 600" > /dev/null || echo none', '--session', 's']),
  ).toBe('none\n');
  expect(await resumptions('s')).toMatchObject([{ timedOut: true, lastLine: 'waiting' }]);
}, 180_000);
