import { describe, expect, test } from 'vitest';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { TURN_INPUT_BYTES, Turns } from '../../../supervisor/store/turns.ts';
import {
  thrownError,
  newTurn,
  sessionId,
  sessionRow,
  temporaryDatabase,
  turnId,
} from '../../fixtures/store/temporary-home.ts';

function store(): { turns: Turns; sessions: Sessions } {
  const database = temporaryDatabase();
  const sessions = new Sessions(database);
  sessions.insert(sessionRow(0));
  sessions.insert(sessionRow(1));
  return { turns: new Turns(database), sessions };
}

describe('turns', () => {
  test('are read as they were written, binary input included', () => {
    const { turns } = store();
    const turn = newTurn(1, {
      input: Buffer.from([0, 255, 254, 10, 0]),
      reused: false,
      turnMs: 1.25,
      workerReused: true,
      error: { message: 'm', data: { code: 'agent_failed', details: { line: 3 } }, traceback: 't' },
    });
    turns.insert(turn);
    expect(turns.get(turnId(1))).toEqual({ ...turn, inputBytes: 5 });
    expect(turns.get(turnId(2))).toBeNull();
    expect(thrownError(() => turns.getOrThrow(turnId(2))).code).toBe('not_found');
  });

  test.each([['a string'], [12], [null], [{ count: 1, deep: [true, null] }], [false], ['null'], ['']])(
    'keep the value %j that a handler returned',
    (output) => {
      const { turns } = store();
      turns.insert(newTurn(1));
      expect(turns.update(turnId(1), { output }).output).toEqual(output);
    },
  );

  test('change only the fields of a patch', () => {
    const { turns } = store();
    turns.insert(newTurn(1));
    const after = turns.update(turnId(1), {
      status: 'running',
      startedAt: 5,
      reused: true,
      cancelRequested: true,
    });
    expect(after).toEqual({
      ...newTurn(1),
      inputBytes: 5,
      status: 'running',
      startedAt: 5,
      reused: true,
      cancelRequested: true,
    });
    expect(thrownError(() => turns.update(turnId(2), { exitCode: 1 })).code).toBe('not_found');
  });

  test('run in the order of insertion within their session, whatever the clock says', () => {
    const { turns } = store();
    for (const n of [3, 1, 2]) turns.insert(newTurn(n, { createdAt: 100 - n }));
    turns.insert(newTurn(9, { sessionId: sessionId(1) }));
    expect(turns.nextQueued(sessionId(0))?.id).toBe(turnId(3));
    expect([3, 1, 2, 9].map((n) => turns.countAhead(turns.getOrThrow(turnId(n))))).toEqual([0, 1, 2, 0]);
    turns.update(turnId(3), { status: 'running' });
    expect(turns.getRunning(sessionId(0))?.id).toBe(turnId(3));
    expect(turns.nextQueued(sessionId(0))?.id).toBe(turnId(1));
    expect([3, 1, 2].map((n) => turns.countAhead(turns.getOrThrow(turnId(n))))).toEqual([0, 1, 2]);
    expect(turns.countByStatus()).toEqual({ running: 1, queued: 3 });
    expect(turns.countQueued(sessionId(0))).toBe(2);
    expect([...turns.liveBySession()].sort()).toEqual([
      [sessionId(0), { running: turnId(3), queued: 2 }],
      [sessionId(1), { running: null, queued: 1 }],
    ]);
    turns.update(turnId(3), { status: 'succeeded' });
    expect([1, 2].map((n) => turns.countAhead(turns.getOrThrow(turnId(n))))).toEqual([0, 1]);
    expect(turns.getRunning(sessionId(0))).toBeNull();
    expect(turns.listUnfinished().map((turn) => turn.id)).toEqual([turnId(1), turnId(2), turnId(9)]);
    expect(turns.listBySession(sessionId(0), 2).map((turn) => turn.id)).toEqual([turnId(2), turnId(1)]);
  });

  test('with too much input are refused', () => {
    const { turns } = store();
    turns.insert(newTurn(1, { input: Buffer.alloc(TURN_INPUT_BYTES) }));
    const failure = thrownError(() =>
      turns.insert(newTurn(2, { input: Buffer.alloc(TURN_INPUT_BYTES + 1) })),
    );
    expect(failure.code).toBe('file_too_large');
    expect(turns.get(turnId(2))).toBeNull();
  });

  test('are deleted with their session', () => {
    const { turns, sessions } = store();
    turns.insert(newTurn(1));
    sessions.remove(sessionId(0));
    expect(turns.get(turnId(1))).toBeNull();
    expect(() => turns.insert(newTurn(2))).toThrow('The database refused an operation');
  });
});
