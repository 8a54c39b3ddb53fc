import { hash } from 'node:crypto';
import { describe, expect, test, vi } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { ProfileSchema } from '../../../protocol/profile.ts';
import { randomIds } from '../../../supervisor/base/ids.ts';
import { verifyHistory } from '../../../supervisor/history/history-verification.ts';
import type { ReadySandbox } from '../../../supervisor/sandboxes/dispatches.ts';
import { TurnQueue, type TurnQueueOptions } from '../../../supervisor/turns/turn-queue.ts';
import { newTurn, sessionId, sessionRow, turnId } from '../../fixtures/store/temporary-home.ts';
import { silent, storedTurns } from '../../fixtures/turns/stored-turns.ts';

const SESSION = sessionId(0);
const [FIRST, SECOND] = [turnId(0), turnId(1)];
/** Longer than any test may take: a wait that resolves was woken. */
const LONG_MS = 300_000;
const PROFILE = ProfileSchema.parse({ name: 'sh', agent: { protocol: 'command', command: ['sh'] } });
const unused = (): never => {
  throw new Error('this test needs none of it');
};

/** Two turns in the queue of a session, in a real database. `dispatch`: a fake of the sandbox, which these turns never get. */
function given(dispatch: TurnQueueOptions['lifecycle']['dispatch'] = unused) {
  const stored = storedTurns();
  const { rows, turns, events, contents, records } = stored;
  rows.insert(sessionRow(0));
  for (const n of [0, 1]) turns.insert(newTurn(n, { sessionId: SESSION, createdAt: n }));
  const queue = new TurnQueue({
    ...stored,
    ids: randomIds,
    attachments: { resolve: () => [], markNamed: () => undefined },
    lifecycle: {
      ...{ attach: unused, dispatch, endAgent: unused, environment: unused, thaw: unused },
      row: () => rows.find(SESSION),
    },
    agentConversations: {
      ...{ begin: unused, hasBegun: () => false, outcomeOf: () => null, isOverLimit: () => false },
      ...{ storeFailure: () => null, cancel: unused, stop: unused, end: unused },
    },
    promptFiles: { place: unused },
    profileOf: () => PROFILE,
    isFrozen: () => false,
    pausedTime: () => 0,
    sweep: () => Promise.resolve(),
    beforeTurn: () => Promise.resolve(),
    log: silent,
  });
  const ready = {
    ...{ dispatched: { reused: false, case: 'create' }, row: rows.find(SESSION), dispatchMs: 1 },
  } as ReadySandbox;
  const end = (turn: string): void =>
    records.recordEnd(turn, { status: 'succeeded', exitCode: 0, output: null, error: null });
  return { queue, turns, records, ready, end, events, contents, rows };
}

type Given = ReturnType<typeof given>;

/** As a client does that has seen the turn as it is now: what it is told next. */
async function nextOf({ queue }: Given, turn: string, act: () => void) {
  const seen = queue.view(queue.get(turn));
  const waiting = queue.wait(turn, LONG_MS, new AbortController().signal, seen);
  await Promise.resolve();
  act();
  return queue.view(await waiting);
}

describe('a client that waits for a turn', () => {
  test('is notified at once of what it has not seen yet', async () => {
    const { queue } = given();
    const { signal } = new AbortController();
    const seen = { status: 'queued', ahead: 5, waitingFor: null } as const;
    expect(queue.view(await queue.wait(SECOND, LONG_MS, signal, seen)).ahead).toBe(1);
  });

  test('is notified that the turn ahead has ended, that its own begins, and that it ends', async () => {
    const all = given();
    const { turns, records, ready, end } = all;
    expect(await nextOf(all, SECOND, () => end(FIRST))).toMatchObject({ status: 'queued', ahead: 0 });
    const started = await nextOf(all, SECOND, () => records.recordStart(turns.getOrThrow(SECOND), ready));
    expect(started).toMatchObject({ status: 'running', ahead: 0, sandbox: { case: 'create' } });
    expect(await nextOf(all, SECOND, () => end(SECOND))).toMatchObject({ status: 'succeeded' });
  });

  test('that does not say what it has seen is notified of the end only', async () => {
    const { queue, turns, records, ready, end } = given();
    const waiting = queue.wait(SECOND, LONG_MS, new AbortController().signal);
    end(FIRST);
    records.recordStart(turns.getOrThrow(SECOND), ready);
    await new Promise((resolve) => setImmediate(resolve));
    end(SECOND);
    expect((await waiting).status).toBe('succeeded');
  });

  test('is notified that a full disk blocks the turn', async () => {
    const all = given(() => Promise.reject(new HoldfastError('not_supported', 'There is no sandbox')));
    const { queue, records } = all;
    vi.spyOn(records, 'recordEnd').mockImplementation(() => {
      throw new HoldfastError('no_space', 'The disk is full');
    });
    const blocked = await nextOf(all, FIRST, () => void queue.start(SESSION));
    expect(blocked).toMatchObject({ status: 'queued', waitingFor: 'disk_space' });
    await queue.detach();
  });
});

test('prompts are contents of their session: events name them and have none of their text', async () => {
  const { queue, events, contents, rows } = given();
  const prompt = Buffer.from(`fix the parser\n\n ${'x'.repeat(300)} the end of it`);
  const { id } = queue.enqueue(rows.find(SESSION), PROFILE, prompt, undefined);
  const better = Buffer.from('mend the printer');
  queue.edit(id, better, undefined);
  const written = events.read(SESSION);
  expect(written.map(({ type }) => type)).toEqual(['turn.queued', 'turn.edited']);
  for (const word of ['parser', 'xxx', 'the end', 'printer'])
    expect(JSON.stringify(written)).not.toContain(word);
  const sha256 = hash('sha256', prompt);
  expect(written.map(({ data }) => data)).toMatchObject([
    { turnId: id, content: { sha256, bytes: prompt.length } },
    { turnId: id, content: { sha256: hash('sha256', better), bytes: better.length } },
  ]);
  expect(rows.find(SESSION).about).toBe(`fix the parser ${'x'.repeat(64)}…`);
  expect(contents.read(SESSION, sha256, 0, 1000).part.equals(prompt)).toBe(true);
  expect(
    await verifyHistory({ events, contents, checkpoints: { verify: () => null } }, SESSION),
  ).toMatchObject({
    ok: true,
    contents: { intact: 2, damaged: [] },
  });
});
