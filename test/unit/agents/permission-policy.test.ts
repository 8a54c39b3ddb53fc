import { expect, test } from 'vitest';
import type { PermissionOption } from '../../../protocol/agent-events.ts';
import { ProfileSchema, permissionsOf } from '../../../protocol/profile.ts';
import { optionsOf } from '../../../supervisor/agents/acp/permission-requests.ts';
import { chooseOption, decide, matchesWildcard } from '../../../supervisor/agents/permission-policy.ts';

const option = (id: string, kind: PermissionOption['kind']): PermissionOption => ({ id, name: id, kind });
const asked = (command: string | null, ...paths: string[]) => ({
  kind: command === null ? ('edit' as const) : ('execute' as const),
  command,
  locations: paths.map((path) => ({ path })),
});

test('a kind falls back from always to once, never from reject to allow; an id names its option', () => {
  const options = [option('one', 'allow_once'), option('two', 'allow_once'), option('no', 'reject_once')];
  expect(chooseOption(options, 'allow_always')?.id).toBe('one');
  expect(chooseOption(options, 'two')?.id).toBe('two');
  expect(chooseOption(options, 'reject_always')?.id).toBe('no');
  expect(chooseOption([option('one', 'allow_once')], 'reject_once')).toBeNull();
  expect(chooseOption([option('all', 'allow_always')], 'allow_once')).toBeNull();
  expect(chooseOption(options, 'constructor')).toBeNull();
});

test('an id that reads like a kind never turns a rejection into an allowance, or the other way round', () => {
  const options = [
    option('reject_once', 'allow_always'),
    option('no', 'reject_once'),
    option('allow_once', 'reject_always'),
    option('yes', 'allow_once'),
  ];
  expect(chooseOption(options, 'reject_once')?.id).toBe('no');
  expect(chooseOption(options, 'allow_once')?.id).toBe('yes');
  expect(chooseOption(options.slice(0, 1), 'reject_once')).toBeNull();
  expect(
    chooseOption([option('a', 'allow_once'), option('allow_once', 'allow_once')], 'allow_once')?.id,
  ).toBe('allow_once');
  const offered = options.map(({ id, name, kind }) => ({ optionId: id, name, kind }));
  expect(optionsOf(offered).map(({ id }) => id)).toEqual(['no', 'yes']);
});

test('the first rule that matches counts; a path outside of the workspace matches none', () => {
  const rules = {
    rules: [
      { answer: 'reject' as const, command: 'git push*' },
      { answer: 'allow' as const, kind: 'execute' as const, command: 'git *' },
      { answer: 'allow' as const, kind: 'edit' as const, path: 'src/*' },
    ],
  };
  const answer = (...of: Parameters<typeof asked>) => decide(rules, asked(...of)).answer;
  expect(answer('git push origin')).toBe('reject');
  expect(answer('git status')).toBe('allow');
  expect(answer('npm test')).toBe('ask');
  for (const sneaky of ['git status; rm -rf .', 'git status\nrm x', 'git log $(rm x)', 'git log > x'])
    expect(answer(sneaky)).toBe('ask');
  expect(answer(null, '/workspace/src/a.ts')).toBe('allow');
  expect(answer(null, 'src/a.ts')).toBe('allow');
  expect(answer(null, '/workspace/src/../../etc/passwd')).toBe('ask');
  expect(answer(null, '/workspace/src/a.ts', '/workspace/other')).toBe('ask');
  expect(answer(null)).toBe('ask');
});

test('without a choice a profile asks, unless every turn can be undone', () => {
  const profile = { name: 'a', agent: { protocol: 'acp', command: ['x'] } };
  expect(permissionsOf(ProfileSchema.parse(profile))).toBe('ask');
  expect(permissionsOf(ProfileSchema.parse({ ...profile, snapshots: 'required' }))).toBe('allow');
  expect(permissionsOf(ProfileSchema.parse({ ...profile, snapshots: 'required', permissions: 'ask' }))).toBe(
    'ask',
  );
});

test('a wildcard stands for any characters, and a hostile pattern takes no time', () => {
  expect(matchesWildcard('a*c*', 'abcd')).toBe(true);
  expect(matchesWildcard('a*c', 'abcd')).toBe(false);
  expect(matchesWildcard('*', '')).toBe(true);
  expect(matchesWildcard('', 'x')).toBe(false);
  const start = performance.now();
  expect(matchesWildcard(`${'a*'.repeat(400)}b`, 'a'.repeat(8000))).toBe(false);
  expect(performance.now() - start).toBeLessThan(1000);
});
