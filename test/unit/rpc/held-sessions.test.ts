import { expect, test } from 'vitest';
import { z } from 'zod';
import { HoldfastError } from '../../../protocol/errors.ts';
import { METHODS } from '../../../protocol/methods.ts';
import type { SessionMove } from '../../../protocol/move-state.ts';
import type { HandlerTable } from '../../../supervisor/rpc/handler-table.ts';
import { guardHeldSessions } from '../../../supervisor/rpc/held-sessions.ts';
import { SessionGate } from '../../../supervisor/sessions/session-gate.ts';

/** Methods that name a session and answer while it moves: none of them changes it. */
const ANSWERING = [
  ...['agent/settings', 'artifact/list', 'check/list', 'content/read', 'conversation/read'],
  ...[
    'conversation/subscribe',
    'files/list',
    'files/read',
    'files/stat',
    'handoff/changes',
    'handoff/contents',
  ],
  ...['manifest/list', 'manifest/show', 'memory/history', 'memory/show', 'move/abort', 'move/begin'],
  ...['permission/list', 'policy/show', 'review/comments', 'review/file', 'review/files', 'review/read'],
  ...[
    'review/show',
    'session/events',
    'session/search',
    'session/show',
    'session/subscribe',
    'session/verify',
  ],
  ...[
    'snapshot/diff',
    'snapshot/fork',
    'snapshot/graph',
    'snapshot/list',
    'snapshot/patch',
    'snapshot/show',
    'snapshot/verify',
  ],
  ...['terminal/list', 'turn/list'],
];

/** A table whose handlers say that they were asked, over a session in this state. */
function guarded(state: SessionMove['state'] | null) {
  const handlers = Object.fromEntries(Object.keys(METHODS).map((name) => [name, () => 'asked']));
  const row = { id: 'ses-aaaaaaaaaaaaaaaa', name: 'mine' };
  const use = async (_id: string, _name: string, act: () => unknown): Promise<unknown> => {
    if (state !== null) throw new HoldfastError('conflict', 'it moves');
    return await act();
  };
  return guardHeldSessions(handlers as unknown as HandlerTable, {
    gate: {
      use,
      stateOf: () => (state === null ? null : { state, with: { home: 'a'.repeat(26), name: 'far' } }),
    } as never,
    find: (reference) => {
      if (reference !== 'mine') throw new HoldfastError('not_found', 'there is no such session');
      return row as never;
    },
  });
}

async function ask(table: HandlerTable, method: string, params: object): Promise<unknown> {
  const handler = table[method as keyof HandlerTable] as (params: unknown, context: unknown) => unknown;
  return await handler(params, {});
}

/** Methods whose parameters name a session. */
function ofSessions(): string[] {
  const namesOne = (params: z.ZodType): boolean => {
    if (params instanceof z.ZodObject) return 'session' in params.shape;
    return params instanceof z.ZodUnion && params.options.some((one) => namesOne(one as z.ZodType));
  };
  return Object.entries(METHODS).flatMap(([name, { params }]) => (namesOne(params) ? [name] : []));
}

test('a session that leaves answers what reads it, and nothing else', async () => {
  const answered: string[] = [];
  for (const method of ofSessions()) {
    const result = await ask(guarded('leaving'), method, { session: 'mine' }).catch(
      (error: unknown) => error,
    );
    if (result === 'asked') answered.push(method);
    else expect(result).toMatchObject({ code: 'conflict' });
  }
  expect(answered.sort()).toEqual(ANSWERING.sort());
});

test('nothing changes a session that has moved and is not deleted yet', async () => {
  const row = { id: 'ses-aaaaaaaaaaaaaaaa', name: 'mine' };
  const move = { role: 'source', state: 'released', sessionId: row.id, name: 'mine', peerName: 'far' };
  const gate = new SessionGate({ holding: () => move as never, findLeft: () => move as never });
  const handlers = Object.fromEntries(Object.keys(METHODS).map((name) => [name, () => 'asked']));
  const table = guardHeldSessions(handlers as unknown as HandlerTable, { gate, find: () => row as never });
  for (const method of ofSessions().filter((name) => !ANSWERING.includes(name)))
    await expect(ask(table, method, { session: 'mine' }), method).rejects.toMatchObject({
      code: 'not_found',
      why: expect.stringContaining('it has moved to far') as unknown,
    });
});

test('any other session answers everything, and so does one that does not exist', async () => {
  for (const method of ofSessions()) {
    expect(await ask(guarded(null), method, { session: 'mine' })).toBe('asked');
    expect(await ask(guarded('leaving'), method, { session: 'other' })).toBe('asked');
  }
});

test('what has arrived and never came to life can be deleted', async () => {
  expect(await ask(guarded('arriving'), 'session/delete', { session: 'mine' })).toBe('asked');
  await expect(ask(guarded('leaving'), 'session/delete', { session: 'mine' })).rejects.toThrow('it moves');
});
