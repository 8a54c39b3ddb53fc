import { z } from 'zod';
import { describe, expect, test } from 'vitest';
import { mayRepeat } from '../../../protocol/client/repeat.ts';
import { METHODS } from '../../../protocol/methods.ts';
import type { ClientMethodShape, MethodName } from '../../../protocol/methods.ts';

const SHAPES: Readonly<Record<string, ClientMethodShape>> = METHODS;

/** Methods that change nothing that a client can see. */
const READING: readonly MethodName[] = [
  'ping',
  'supervisor/status',
  'supervisor/doctor',
  'profile/list',
  'profile/source',
  'session/list',
  'session/show',
  'session/events',
  'session/verify',
  'setup/log',
  'setup/status',
  'content/read',
  'conversation/read',
  'session/search',
  'memory/show',
  'memory/history',
  'turn/show',
  'turn/list',
  'turn/changes',
  'turn/wait',
  'turn/output',
  'terminal/list',
  'terminal/read',
  'workspace/info',
  'workspace/wait',
  'permission/list',
  'agent/settings',
  'policy/show',
  'secret/list',
  'files/stat',
  'files/list',
  'files/read',
  'files/find',
  'files/usage',
  'snapshot/list',
  'snapshot/graph',
  'snapshot/show',
  'snapshot/verify',
  'snapshot/diff',
  'snapshot/patch',
  'snapshot/preview',
  'review/show',
  'review/files',
  'review/file',
  'review/read',
  'handoff/changes',
  'handoff/contents',
  'artifact/list',
  'artifact/show',
  'artifact/files',
  'artifact/read',
  'manifest/show',
  'manifest/list',
  'manifest/key',
  'check/list',
  'review/blame',
  'review/comments',
  'move/identity',
  'move/status',
];

/** Methods that change something and leave the same state when the same parameters are sent again, and why. */
const IDEMPOTENT: Readonly<Partial<Record<MethodName, string>>> = {
  'bundle/resume': 'it says again where the next bytes belong',
  'session/pause': 'a paused session stays paused',
  'session/stop': 'a stopped session stays stopped',
  'session/update': 'sets the given values',
  'agent/set': 'the same choice, while it waits or is set, is no other choice',
  'attachment/upload': 'a part is taken once, and equal bytes are one content',
  'turn/cancel': 'a cancelled turn stays cancelled',
  'terminal/attach': 'resumes a session, which stays resumed',
  'terminal/resize': 'sets the given size',
  'policy/deny': 'a rule for the host exists once; there is no denial for one connection only',
  'secret/set': 'the same value with the same expiry keeps its version',
  'secret/remove': 'a removed secret stays removed',
  'snapshot/update': 'sets the given values',
  'review/open': 'another snapshot of the same files; decisions stay',
  'review/uncomment': 'a removed comment stays removed',
  'review/tree': 'the same decisions give the same tree',
  'artifact/remove': 'a removed artifact stays removed',
  'handoff/record': 'a step of a handoff is recorded once',
  'move/begin': 'a session that moves goes on with its move',
  'move/release': 'a session that was let go of has a receipt',
  'move/activate': 'a session that lives is left as it is',
  'move/finish': 'what was deleted stays deleted',
  'move/abort': 'a move that was given up stays so',
  'move/discard': 'what was deleted stays deleted',
};

function methodsWith(repeat: ClientMethodShape['repeat']): string[] {
  return Object.keys(SHAPES).filter((name) => SHAPES[name]?.repeat === repeat);
}

describe('whether a request may be sent again', () => {
  test('exactly the methods that take an opId are repeated by it', () => {
    const taking = Object.entries(SHAPES).filter(
      ([, { params }]) => params instanceof z.ZodObject && 'opId' in params.shape,
    );
    expect(methodsWith('opId').sort()).toEqual(taking.map(([name]) => name).sort());
  });

  test('a method is always safe only if it reads, or if there is a reason why a second request changes nothing', () => {
    expect(methodsWith('safe').sort()).toEqual([...READING, ...Object.keys(IDEMPOTENT)].sort());
  });

  test('a method whose effect belongs to its connection is never repeated', () => {
    const bound: readonly MethodName[] = [
      'hello',
      'host/subscribe',
      'host/unsubscribe',
      'session/subscribe',
      'session/unsubscribe',
      'exec/start',
      'exec/input',
      'files/watch',
      'files/unwatch',
      'files/search',
      'files/begin',
      'files/append',
      'files/commit',
      'profile/deploy/append',
      'review/base/append',
      'review/base/end',
    ];
    expect(methodsWith('never')).toEqual(expect.arrayContaining([...bound]));
  });

  test('the client follows the table, and needs the opId where the table says so', () => {
    expect(mayRepeat('snapshot/show', {})).toBe(true);
    expect(mayRepeat('turn/start', {})).toBe(false);
    expect(mayRepeat('turn/start', { opId: undefined })).toBe(false);
    expect(mayRepeat('turn/start', { opId: 'op-1' })).toBe(true);
    expect(mayRepeat('files/rename', { opId: 'op-1' })).toBe(false);
    // Without a version the second request could overwrite what the agent wrote after the first.
    expect(mayRepeat('files/write', { overwrite: true })).toBe(false);
    expect(mayRepeat('files/write', { ifVersion: 'v' })).toBe(true);
    expect(methodsWith('ifVersion')).toEqual(['files/write']);
  });
});

test('a supervisor with a damaged database answers only what needs none', () => {
  const answering = Object.keys(SHAPES).filter((name) => SHAPES[name]?.whenDamaged === 'answers');
  expect(answering.sort()).toEqual([
    'hello',
    'ping',
    'purge',
    'supervisor/doctor',
    'supervisor/handover',
    'supervisor/stop',
  ]);
});
