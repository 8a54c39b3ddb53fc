import { expect, test } from 'vitest';
import {
  abortMove,
  type MoveHost,
  type MoveRequest,
  moveSession,
} from '../../../protocol/client/move-session.ts';
import { HoldfastError } from '../../../protocol/errors.ts';

const SESSION = 'ses-aaaaaaaaaaaaaaaa';
const MOVE = 'mov-aaaaaaaaaaaaaaaa';
const BEGUN = {
  ...{ move: MOVE, sessionId: SESSION, profile: 'scratch', name: 'mine', state: 'leaving' },
  ...{ offer: 'offer', publicKey: 'key', receipt: null, to: { name: 'far' } },
};

type Answers = Readonly<Record<string, unknown>>;

/** A host with these answers; an error among them is thrown. */
function hostWith(name: string, answers: Answers) {
  const calls: { readonly method: string; readonly params: unknown }[] = [];
  const all: Answers = {
    'move/identity': { home: name, publicKey: 'key' },
    'secret/list': { secrets: [] },
    'bundle/abort': {},
    ...answers,
  };
  const call = (method: string, params: unknown): Promise<unknown> => {
    calls.push({ method, params });
    const answer = all[method] ?? new Error(`${name} is not asked ${method}`);
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  };
  const host = { client: { call, callWithBytes: call } as never, name } satisfies MoveHost;
  return { host, asked: () => calls.map(({ method }) => method), calls };
}

/** A source that answers so, and a target that has all profiles and takes what comes. */
function machines(source: Answers, target: Answers = {}) {
  return {
    source: hostWith('vm', {
      'session/show': { session: { profile: 'scratch', name: 'mine', move: null } },
      'move/begin': BEGUN,
      'move/abort': { move: MOVE, to: { home: 'far', name: 'far' }, withdrawal: 'withdrawal' },
      ...source,
    }),
    target: hostWith('far', {
      'profile/list': { profiles: [{ name: 'scratch' }, { name: 'prod' }] },
      'move/status': { state: 'arriving', session: null, acceptance: 'acceptance', activation: null },
      'move/activate': { state: 'active', session: null, acceptance: null, activation: 'activation' },
      ...target,
    }),
  };
}

async function moved(
  { source, target }: ReturnType<typeof machines>,
  request: Pick<MoveRequest, 'session' | 'profile' | 'name'>,
) {
  return await moveSession({
    ...request,
    source: source.host,
    target: target.host,
    signal: new AbortController().signal,
    onProgress: () => undefined,
  });
}

test.each([
  ['scratch/mine', { profile: 'prod' }],
  ['scratch/mine', { name: 'default' }],
  ['mine', { profile: 'prod' }],
  ['mine', { name: 'default' }],
  [SESSION, { profile: 'prod' }],
  [SESSION, { name: 'default' }],
])('a source that is asked for %s does not answer with %o', async (session, lie) => {
  const both = machines({ 'move/begin': { ...BEGUN, ...lie } });
  await expect(moved(both, { session })).rejects.toMatchObject({ code: 'permission_denied' });
  expect(both.target.asked()).toEqual(['move/identity', 'profile/list']);
  expect(both.source.asked()).toContain('move/abort');
});

test('a source that shows no session answers with the one that was asked for', async () => {
  const gone = new HoldfastError('not_found', 'it has moved');
  const lying = { 'session/show': gone, 'move/begin': { ...BEGUN, profile: 'prod' } };
  await expect(moved(machines(lying), { session: 'scratch/mine' })).rejects.toMatchObject({
    code: 'permission_denied',
  });
});

test('profile and name are those of the person, whatever the source answers', async () => {
  const released = { ...BEGUN, profile: 'prod', name: 'default', state: 'released', receipt: 'receipt' };
  const both = machines({ 'move/begin': released, 'move/finish': released });
  await moved(both, { session: SESSION, profile: 'scratch', name: 'other' });
  const status = both.target.calls.find(({ method }) => method === 'move/status');
  expect(status?.params).toMatchObject({ profile: 'scratch', name: 'other' });
});

test('a repeated move deletes what is left at the source, although it had ended', async () => {
  const finished = { ...BEGUN, state: 'finished', receipt: 'receipt' };
  const both = machines({ 'move/begin': finished, 'move/finish': finished });
  await moved(both, { session: 'scratch/mine' });
  expect(both.source.asked()).toContain('move/finish');
});

test.each([
  ['permission_denied', `delete it with \`holdfast session delete ${SESSION} --force --host vm\``],
  ['engine_unavailable', 'repeat the move when that is put right'],
] as const)('what the source cannot delete (%s) is said, with a way out', async (code, next) => {
  const released = { ...BEGUN, state: 'released', receipt: 'receipt' };
  const failed = new HoldfastError(code, 'it failed', { why: 'for this reason' });
  const { leftover } = await moved(machines({ 'move/begin': released, 'move/finish': failed }), {
    session: 'scratch/mine',
  });
  expect(leftover).toMatchObject({
    ...{ code, message: 'What is left of the session on vm was not deleted' },
    ...{ why: 'for this reason', next },
  });
});

test('a session that cannot be exported is given back', async () => {
  const unknown = { state: 'unknown', session: null, acceptance: null, activation: null };
  const tooLong = new HoldfastError('not_supported', 'its history is too long');
  const both = machines({ 'move/export': tooLong }, { 'move/status': unknown });
  await expect(moved(both, { session: 'mine' })).rejects.toMatchObject({ code: 'not_supported' });
  expect(both.source.asked()).toContain('move/abort');
});

test('a target that fails to delete what had arrived gets no message that it could not be reached', async () => {
  const failed = new HoldfastError('engine_unavailable', 'no engine');
  const { source, target } = machines({}, { 'move/discard': failed });
  expect(await abortMove(source.host, 'mine', () => target.host)).toEqual({
    ...{ to: 'far', discarded: null, failure: failed },
  });
  expect(await abortMove(source.host, 'mine', () => null)).toMatchObject({ discarded: null, failure: null });
});
