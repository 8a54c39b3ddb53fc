import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/failpoints.ts';
import { expectSettled, expectWholeHistory, outputOf } from '../harness/expectations.ts';
import { endOfTurn } from '../harness/workbench.ts';
import { NUMBERED, script } from './counting.ts';
import { KILLED, askAgain, fresh, home, leave, nextCommand, variants, warm } from './stage.ts';

export async function turned(point: FailpointName): Promise<void> {
  for (const profile of variants(point, ['shell', 'handler'])) await turnedAgain(profile, point);
}

/** A turn whose supervisor is killed at each of `points` in turn. */
export async function turnedAgain(profile: 'shell' | 'handler', ...points: FailpointName[]): Promise<void> {
  const at = await home();
  const id = await warm(at, profile);
  const mark = fresh('mark');
  const request = {
    session: id,
    opId: fresh('op-turn'),
    ...(profile === 'shell' ? { prompt: script(mark) } : { input: { mark } }),
  };
  for (const [nth, point] of points.entries()) {
    await leave(at);
    // The second one dies while it puts right what the first left, perhaps before anybody can ask it anything.
    const supervisor = nth === 0 ? await at.start({ [point]: 'kill' }) : at.spawn({ [point]: 'kill' });
    if (nth === 0) {
      const answer = at.call('turn/start', request);
      // Before the queue is worked on it was acknowledged or not; afterwards it always was, though the answer may be lost.
      if (point === 'turn.after-queued') await at.lost(answer);
      else await answer.catch(expectLost);
    }
    expect(await supervisor.endsWithin(30_000)).toEqual(KILLED);
  }
  await nextCommand(at);
  const { turn } = await askAgain(at, 'turn/start', request);
  expect(await endOfTurn(at, turn.turnId)).toMatchObject({
    status: 'succeeded',
    exitCode: profile === 'shell' ? 0 : null,
    output: profile === 'shell' ? null : { mark },
  });
  expect((await outputOf(at, turn.turnId, 'stdout')).toString()).toBe(NUMBERED);
  expect(await readFile(join(at.path, 'workspaces', id, mark), 'utf8')).toBe('ran\n');
  const { turns } = await at.call('turn/list', { session: id, limit: 1000 });
  expect(turns.filter(({ turnId }) => turnId === turn.turnId)).toHaveLength(1);
  expect(turns.filter(({ endedAt }) => endedAt === null)).toEqual([]);
  const { events } = await at.call('session/events', { session: id, type: 'turn.ended', limit: 5000 });
  expect(events.filter(({ data }) => data['turnId'] === turn.turnId)).toHaveLength(1);
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

function expectLost(error: unknown): void {
  expect(error).toMatchObject({ code: 'connection_closed' });
}
