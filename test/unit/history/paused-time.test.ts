import { describe, expect, test } from 'vitest';
import type { SessionStatus } from '../../../protocol/entities.ts';
import type { EventEntry } from '../../../protocol/events.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { pausedTime } from '../../../supervisor/history/paused-time.ts';
import { sessionId, temporaryDatabase } from '../../fixtures/store/temporary-home.ts';

const SESSION = sessionId(0);
function given(...events: EventEntry[]): EventLog {
  const log = new EventLog(temporaryDatabase());
  log.append(SESSION, events);
  return log;
}

const started = (at: number): EventEntry => ({
  type: 'turn.started',
  data: {
    ...{ turnId: 'turn_1', case: 'create', reused: false, generation: 1, codeVersion: 1 },
    ...{ queuedMs: 0, dispatchMs: 0 },
  },
  at,
});
const status = (at: number, from: SessionStatus, to: SessionStatus): EventEntry => ({
  type: 'session.status',
  data: { from, to, why: 'a test' },
  at,
});

describe('the time in which a session was paused', () => {
  test('is what lies between its pauses and what ended them, since its newest turn started', () => {
    const log = given(
      started(1000),
      status(2000, 'active', 'paused'),
      started(5000),
      status(5000, 'paused', 'active'),
      status(6000, 'active', 'paused'),
      status(9000, 'paused', 'active'),
      status(20_000, 'active', 'paused'),
      status(20_500, 'paused', 'idle'),
    );
    expect(pausedTime(log, SESSION, 30_000)).toBe(3500);
  });

  test('lasts until now where it still is', () => {
    const log = given(started(1000), status(2000, 'active', 'paused'));
    expect(pausedTime(log, SESSION, 62_000)).toBe(60_000);
    // A clock that was set back.
    expect(pausedTime(log, SESSION, 1500)).toBe(0);
  });

  test('is none where no turn started', () => {
    expect(pausedTime(given(status(2000, 'idle', 'paused')), SESSION, 9000)).toBe(0);
    expect(pausedTime(given(started(1)), SESSION, 9000)).toBe(0);
  });
});
