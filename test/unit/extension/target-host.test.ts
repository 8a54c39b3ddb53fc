import { expect, test } from 'vitest';
import { hostForNew, hostOfTarget } from '../../../extension/connection/target-host.ts';

type Connection = Parameters<typeof hostOfTarget>[0] & Parameters<typeof hostForNew>[0];

/** A fake of the window's connections: sessions of `far` end with `-far`. */
function given(local: string, far: string): Connection {
  const [here, there] = [
    { name: 'local', state: { kind: local } },
    { name: 'far', state: { kind: far } },
  ] as unknown as Connection['hosts'];
  if (here === undefined || there === undefined) throw new RangeError('two hosts');
  return {
    own: here,
    known: [here, there],
    hosts: [here, there],
    of: (session) => (session.endsWith('-far') ? there : here),
  };
}

test.for([
  ['the id of a session', 'ses-1-far', 'far'],
  ['an entry of a session', { kind: 'session', session: { id: 'ses-1-far' } }, 'far'],
  ['an entry of a host', { kind: 'host', host: 'far' }, 'far'],
  ['a group of a host', { kind: 'group', host: 'local', group: 'active' }, 'local'],
  ['the name of a profile', 'reviewer', undefined],
  ['nothing', undefined, undefined],
] as const)('%s names its host', ([, target, name]) => {
  expect(hostOfTarget(given('connected', 'connected'), target)?.name).toBe(name);
});

test('a host that was removed is an error, and never another host', () => {
  expect(() => hostOfTarget(given('connected', 'connected'), { kind: 'host', host: 'gone' })).toThrow(
    'no longer in the list',
  );
});

test.for([
  ['the window has its engine', 'connected', 'connected', 'local'],
  ['the window connects', 'connecting', 'connected', 'local'],
  ['only another host has an engine', 'engineDown', 'connected', 'far'],
  ['no host has one', 'engineDown', 'engineDown', 'local'],
] as const)('something new begins where %s', ([, local, far, name]) => {
  expect(hostForNew(given(local, far)).name).toBe(name);
});
