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

test('one that does not end is killed after a minute, and the turn runs', async () => {
  await deploy('stuck', 'echo waiting; trap "" TERM; sleep 600 & sleep 600');
  await home.runOk(['run', 'stuck', 'true', '--session', 's']);
  await home.runOk(['session', 'stop', 's']);
  expect(
    await home.runOk(['run', 'stuck', 'pgrep -f "sleep 600" > /dev/null || echo none', '--session', 's']),
  ).toBe('none\n');
  expect(await resumptions('s')).toMatchObject([{ timedOut: true, lastLine: 'waiting' }]);
}, 180_000);
