import { describe, expect, test } from 'vitest';
import { verifyHistory } from '../../../supervisor/history/history-verification.ts';
import { applyEvent, replay } from '../../../supervisor/history/projection.ts';
import { randomRows } from '../../fixtures/history/random-rows.ts';
import { newTurn, sessionId, turnId } from '../../fixtures/store/temporary-home.ts';

const SESSION = sessionId(0);

describe('replaying a history', () => {
  test.each([1, 2, 3, 4, 5, 6])('rebuilds the rows after any operations (seed %i)', async (seed) => {
    const { change, compare, database, random, log, contents } = randomRows(seed);
    for (let n = 0; n < 120; n += 1) {
      if (random() < 0.15) {
        expect(() =>
          database.transaction(() => {
            change();
            change();
            throw new Error('undone');
          }),
        ).toThrow('undone');
      } else {
        database.transaction(change);
      }
      if (n % 40 === 39) expect(compare()).toEqual([]);
    }
    // Every content that an event names is there, also after transactions that were undone.
    const { ok, contents: verified } = await verifyHistory(
      { events: log, contents, checkpoints: { verify: () => null } },
      SESSION,
    );
    expect([ok, verified.damaged, verified.removed]).toEqual([true, [], 0]);
  });

  test('reports a row changed without the history, and a history without the row', () => {
    const { compare, sessions, turns, log } = randomRows(1);
    sessions.update(SESSION, { pinned: true });
    expect(compare()).toEqual(['pinned: history false, row true']);
    sessions.update(SESSION, { pinned: false });
    turns.insert(newTurn(1));
    log.append(SESSION, [
      {
        type: 'turn.queued',
        data: {
          turnId: turnId(2),
          kind: 'command',
          inputBytes: 0,
          preview: '',
          content: null,
          timeoutMs: 1,
        },
      },
    ]);
    expect(compare()).toEqual([`${turnId(2)}: in the history only`, `${turnId(1)}: in the rows only`]);
  });

  test('all events at once give what they give one by one', () => {
    const { log } = randomRows(1);
    const queued = (n: number): Parameters<typeof log.append>[1][number] => ({
      type: 'turn.queued',
      data: {
        ...{ turnId: turnId(n), kind: 'command', inputBytes: n, preview: '', content: null, timeoutMs: 1 },
      },
    });
    const output = (n: number): Parameters<typeof log.append>[1][number] => ({
      type: 'turn.output',
      data: { turnId: turnId(n), stream: 'stdout', offset: 0, bytes: n + 1, content: null },
    });
    log.append(SESSION, [queued(1), queued(2), output(2), output(3), queued(3), output(1), output(3)]);
    const history = log.read(SESSION);
    let state: ReturnType<typeof replay> = null;
    for (const event of history) state = applyEvent(state, event);
    expect(replay(history)).toEqual(state);
    expect(state?.turns.map(({ id, stdoutBytes }) => [id, stdoutBytes])).toEqual(
      [1, 2, 3].map((n) => [turnId(n), n + 1]),
    );
  });

  test('skips unknown event types, and begins with session.created', () => {
    const { log } = randomRows(1);
    const [created] = log.read(SESSION);
    if (created === undefined) throw new Error('no event');
    const unknown = { ...created, seq: 2, type: 'of.the.future', data: { a: 1 } };
    const state = replay([created]);
    expect(applyEvent(state, unknown)).toEqual({ ...state, lastSeq: 2 });
    expect(replay([unknown])).toBeNull();
    expect(replay([created, { ...unknown, type: 'session.deleted', data: { why: 'x' } }])?.status).toBe(
      'deleted',
    );
    // The words for people differ from program to program; the kind of the problem and its place do not.
    expect(() => replay([created, { ...unknown, type: 'session.deleted', data: {} }])).toThrow(
      expect.objectContaining({ issues: [expect.objectContaining({ code: 'invalid_type', path: ['why'] })] }),
    );
  });
});
