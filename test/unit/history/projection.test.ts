import { describe, expect, test } from 'vitest';
import { DISPATCH_CASES, SESSION_STATUSES } from '../../../protocol/entities.ts';
import type { TurnStatus } from '../../../protocol/entities.ts';
import { JSON_TEXT } from '../../../protocol/contents.ts';
import { OUTPUT_STREAMS } from '../../../protocol/turn-events.ts';
import type { EventData } from '../../../protocol/events.ts';
import { Artifacts } from '../../../supervisor/history/artifacts.ts';
import { Contents } from '../../../supervisor/history/contents.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { verifyHistory } from '../../../supervisor/history/history-verification.ts';
import { applyEvent, projectionMismatches, replay } from '../../../supervisor/history/projection.ts';
import { TurnOutput } from '../../../supervisor/history/turn-output.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import {
  newTurn,
  sessionId,
  sessionRow,
  temporaryDatabase,
  temporaryHome,
  turnId,
} from '../../fixtures/store/temporary-home.ts';

const SESSION = sessionId(0);
const ENDS: readonly TurnStatus[] = ['succeeded', 'failed', 'cancelled', 'timeout', 'interrupted'];

/** A session whose every change is written to its row and to its history at once. */
function given(seed: number) {
  const home = temporaryHome();
  const database = temporaryDatabase(home);
  const sessions = new Sessions(database);
  const turns = new Turns(database);
  const log = new EventLog(database);
  const artifacts = new Artifacts(home);
  const contents = new Contents(database, artifacts);
  const output = new TurnOutput(database, log, contents, artifacts);
  const random = seededRandom(seed);
  const below = (limit: number): number => Math.floor(random() * limit);
  const oneOf = <T>(list: readonly T[]): T => {
    const found = list[below(list.length)];
    if (found === undefined) throw new Error('nothing to choose from');
    return found;
  };
  const { name, profile, persistent, throwaway, backing, uid, gid } = sessionRow(0);
  sessions.insert(sessionRow(0));
  log.append(SESSION, [
    { type: 'session.created', data: { name, profile, persistent, throwaway, backing, uid, gid } },
  ]);
  let made = 0;

  const changes: Record<string, () => void> = {
    status: () => {
      const from = sessions.find(SESSION).status;
      const to = oneOf(SESSION_STATUSES.filter((status) => status !== 'deleted'));
      sessions.update(SESSION, { status: to });
      log.append(SESSION, [{ type: 'session.status', data: { from, to, why: 'test' } }]);
    },
    update: () => {
      const data: EventData<'session.updated'> = oneOf([
        { name: `name ${below(100)}`, pinned: below(2) === 0 },
        { tags: ['a', `b${below(9)}`], starred: true },
        { model: null, about: 'x', archived: below(2) === 0 },
        { model: 'm' },
      ]);
      sessions.update(SESSION, data as Parameters<Sessions['update']>[1]);
      log.append(SESSION, [{ type: 'session.updated', data }]);
    },
    start: () => {
      const generation = sessions.find(SESSION).generation + 1;
      const codeVersion = 1 + below(5);
      sessions.update(SESSION, { generation, codeVersion });
      log.append(SESSION, [
        {
          type: 'sandbox.started',
          data: { generation, codeVersion, case: 'create', image: 'i', imageIdentity: null },
        },
      ]);
    },
    begin: () => {
      const generation = sessions.find(SESSION).generation + 1;
      sessions.update(SESSION, { generation });
      log.append(SESSION, [{ type: 'sandbox.starting', data: { generation } }]);
    },
    lose: () => {
      const { generation } = sessions.update(SESSION, { codeVersion: null });
      log.append(SESSION, [
        { type: oneOf(['sandbox.lost', 'sandbox.removed']), data: { generation, why: 'test' } },
      ]);
    },
    measure: () => {
      const bytes = below(1000);
      sessions.update(SESSION, { workspaceBytes: bytes });
      log.append(SESSION, [{ type: 'workspace.measured', data: { bytes } }]);
    },
    clean: () => {
      sessions.update(SESSION, { workspaceBytes: 0 });
      log.append(SESSION, [{ type: 'workspace.cleaned', data: { files: 1, bytes: 2, why: 'test' } }]);
    },
    queue: () => {
      made += 1;
      const turn = newTurn(made, { input: Buffer.alloc(below(10)), timeoutMs: 1 + below(99) });
      const content = turns.insert(turn);
      log.append(SESSION, [
        {
          type: 'turn.queued',
          data: {
            turnId: turn.id,
            kind: turn.kind,
            inputBytes: turn.input.length,
            preview: '',
            content,
            timeoutMs: turn.timeoutMs,
          },
        },
      ]);
    },
    edit: () => {
      const turn = turns.nextQueued(SESSION);
      if (turn === null) return;
      const content = turns.replaceInput(turn, Buffer.alloc(below(10), 'e'), []);
      log.append(SESSION, [
        {
          type: 'turn.edited',
          data: { turnId: turn.id, inputBytes: content.bytes, preview: '', content },
        },
      ]);
    },
    restart: () => {
      const turn = turns.getRunning(SESSION);
      if (turn === null) return;
      const generation = below(9);
      // An older supervisor did not say how the next sandbox came to be.
      const how = below(2) === 0 ? {} : { case: oneOf(DISPATCH_CASES), reused: below(2) === 0 };
      turns.update(turn.id, {
        generation,
        ...(how.case === undefined ? {} : { dispatchCase: how.case, reused: how.reused }),
      });
      log.append(SESSION, [{ type: 'turn.restarted', data: { turnId: turn.id, generation, ...how } }]);
    },
    work: () => {
      const turn = turns.getRunning(SESSION);
      if (turn === null) return;
      const worker = { workerId: `w${below(9)}`, workerReused: below(2) === 0, workerStartMs: random() };
      turns.update(turn.id, worker);
      log.append(SESSION, [{ type: 'turn.worker', data: { turnId: turn.id, ...worker } }]);
    },
    run: () => {
      const turn = turns.nextQueued(SESSION);
      if (turn === null) return;
      const started = {
        reused: below(2) === 0,
        generation: below(9),
        codeVersion: below(2) === 0 ? null : below(9),
        queuedMs: random() * 10,
        dispatchMs: null,
      };
      const dispatchCase = oneOf(DISPATCH_CASES);
      turns.update(turn.id, { ...started, dispatchCase, status: 'running' });
      log.append(SESSION, [
        { type: 'turn.started', data: { turnId: turn.id, case: dispatchCase, ...started } },
      ]);
    },
    write: () => {
      const turn = turns.getRunning(SESSION);
      if (turn === null) return;
      const stream = oneOf(OUTPUT_STREAMS);
      output.store(turn.id, stream, turn[`${stream}Bytes`], Buffer.alloc(1 + below(20_000), 'x'));
    },
    cancel: () => {
      const turn = turns.getRunning(SESSION);
      if (turn === null) return;
      turns.update(turn.id, { cancelRequested: true });
      log.append(SESSION, [{ type: 'turn.cancelling', data: { turnId: turn.id } }]);
    },
    end: () => {
      const turn = turns.getRunning(SESSION);
      if (turn === null) return;
      const ended = {
        status: oneOf(ENDS),
        exitCode: oneOf([null, 0, 137]),
        error: oneOf([null, { message: 'm', data: { code: 'agent_failed' as const, why: 'w' } }]),
        outputArtifact: below(2) === 0,
        turnMs: random() * 1000,
        workerStartMs: oneOf([null, 3.5]),
        workerId: oneOf([null, 'w1']),
        workerReused: oneOf([null, true]),
      };
      const output = oneOf([null, { z: 1, a: [true] }, 'text']);
      const content =
        output === null ? null : contents.insert(SESSION, Buffer.from(JSON.stringify(output)), JSON_TEXT);
      turns.update(turn.id, { ...ended, output, resultSha256: content?.sha256 ?? null });
      log.append(SESSION, [{ type: 'turn.ended', data: { turnId: turn.id, ...ended, content } }]);
    },
  };
  const compare = (): string[] =>
    projectionMismatches(replay(everything(log)), sessions.find(SESSION), turns.listBySession(SESSION, 1000));
  return {
    database,
    sessions,
    turns,
    log,
    contents,
    compare,
    change: () => oneOf(Object.values(changes))(),
    random,
  };
}

function everything(log: EventLog) {
  const events = [];
  for (
    let page = log.read(SESSION);
    page.length > 0;
    page = log.read(SESSION, { after: events.at(-1)?.seq ?? 0 })
  ) {
    events.push(...page);
  }
  return events;
}

describe('replaying a history', () => {
  test.each([1, 2, 3, 4, 5, 6])('rebuilds the rows after any operations (seed %i)', async (seed) => {
    const { change, compare, database, random, log, contents } = given(seed);
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
    const { ok, contents: verified } = await verifyHistory(log, contents, SESSION);
    expect([ok, verified.damaged, verified.removed]).toEqual([true, [], 0]);
  });

  test('reports a row changed without the history, and a history without the row', () => {
    const { compare, sessions, turns, log } = given(1);
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
    const { log } = given(1);
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
    const { log } = given(1);
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
