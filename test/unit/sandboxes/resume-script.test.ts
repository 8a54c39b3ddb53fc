import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { findStartProblems } from '../../../protocol/profile-validation.ts';
import type { Profile } from '../../../protocol/profile.ts';
import { randomIds } from '../../../supervisor/base/ids.ts';
import { checkProfile } from '../../../supervisor/profiles/read.ts';
import { ResumeScript } from '../../../supervisor/sandboxes/resume-script.ts';

const profileWith = (resume: string | readonly string[]): Profile =>
  checkProfile(
    `name: coder\npersistence: persistent\nagent: { protocol: command, command: [cat] }\nsetup: { resume: ${JSON.stringify(resume)} }\n`,
  );

test('scripts that one argument of a process cannot hold are refused, by their bytes', () => {
  const half = 'x'.repeat(65_530);
  const problemsOf = (setup: Profile['setup']) =>
    findStartProblems({ ...profileWith('true'), setup }).map(({ path }) => path.join('.'));
  expect(problemsOf({ resume: [half, half], run: [half, half, half] })).toEqual([]);
  expect(problemsOf({ resume: [half, half, 'yyyyyyyy'] })).toEqual(['setup.resume']);
  const wide = '€'.repeat(50_000);
  expect(problemsOf({ resume: wide, run: ['true', wide] })).toEqual(['setup.run.1', 'setup.resume']);
});

test('a script that cannot start is in the history, and a lost engine is an error', async () => {
  const events: unknown[] = [];
  const run = (error: HoldfastError) =>
    new ResumeScript({
      engine: { exec: () => Promise.reject(error) },
      events: {
        append: (_session, entries) => {
          events.push(...entries);
          return [];
        },
      },
      ids: randomIds,
    }).run(
      's1',
      profileWith('true'),
      {},
      { killExec: () => Promise.resolve() },
      new AbortController().signal,
    );
  await run(new HoldfastError('engine_error', 'It did not start'));
  expect(events).toMatchObject([
    { type: 'setup.resumed', data: { exitCode: null, timedOut: false, lastLine: 'It did not start' } },
  ]);
  await expect(run(new HoldfastError('engine_unavailable', 'No engine'))).rejects.toThrow('No engine');
  await expect(run(new HoldfastError('sandbox_lost', 'No sandbox'))).rejects.toThrow('No sandbox');
  expect(events).toHaveLength(1);
});
