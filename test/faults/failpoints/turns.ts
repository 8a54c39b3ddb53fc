import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { expectSettled, expectWholeHistory, turnOutput } from '../harness/expectations.ts';
import { waitForTurn } from '../harness/fault-fixture.ts';
import { NUMBERED_LINES, countingScript } from './counting.ts';
import {
  KILLED,
  retryRequest,
  uniqueName,
  sharedHome,
  killSupervisor,
  startNextSupervisor,
  variants,
  sharedRunningSession,
} from './fixture.ts';

const LARGE_OUTPUT_LINES = 40_000;
const LARGE_OUTPUT = Array.from({ length: LARGE_OUTPUT_LINES }, (_, at) => `${at + 1}\n`).join('');

export async function turnScenario(point: FailpointName): Promise<void> {
  for (const profile of variants(point, ['shell', 'handler'])) await repeatedTurnScenario(profile, point);
}

/** A turn whose supervisor is killed at each of `points` in turn. */
export async function repeatedTurnScenario(
  profile: 'shell' | 'handler',
  ...points: FailpointName[]
): Promise<void> {
  const at = await sharedHome();
  const id = await sharedRunningSession(at, profile);
  const mark = uniqueName('mark');
  const request = {
    session: id,
    opId: uniqueName('op-turn'),
    ...(profile === 'shell' ? { prompt: countingScript(mark) } : { input: { mark } }),
  };
  for (const [nth, point] of points.entries()) {
    await killSupervisor(at);
    // The second one dies while it puts right what the first left, perhaps before anybody can ask it anything.
    const supervisor = nth === 0 ? await at.start({ [point]: 'kill' }) : at.spawn({ [point]: 'kill' });
    if (nth === 0) {
      const answer = at.call('turn/start', request);
      // Before the queue is worked on it was acknowledged or not; afterwards it always was, though the answer may be lost.
      if (point === 'turn.after-queued') await at.expectConnectionLost(answer);
      else await answer.catch(expectLost);
    }
    expect(await supervisor.waitForExit(30_000)).toEqual(KILLED);
  }
  await startNextSupervisor(at);
  const { turn } = await retryRequest(at, 'turn/start', request);
  expect(await waitForTurn(at, turn.turnId)).toMatchObject({
    status: 'succeeded',
    exitCode: profile === 'shell' ? 0 : null,
    output: profile === 'shell' ? null : { mark },
  });
  expect((await turnOutput(at, turn.turnId, 'stdout')).toString()).toBe(NUMBERED_LINES);
  expect(await readFile(join(at.path, 'workspaces', id, mark), 'utf8')).toBe('ran\n');
  const { turns } = await at.call('turn/list', { session: id, limit: 1000 });
  expect(turns.filter(({ turnId }) => turnId === turn.turnId)).toHaveLength(1);
  expect(turns.filter(({ endedAt }) => endedAt === null)).toEqual([]);
  const { events } = await at.call('session/events', { session: id, type: 'turn.ended', limit: 5000 });
  expect(events.filter(({ data }) => data['turnId'] === turn.turnId)).toHaveLength(1);
  await expectSettled(at);
  await expectWholeHistory(at, id);
}

/** Dies when the bytes of a large output are in their file, and the event that names them is not written. */
export async function largeOutputScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const id = await sharedRunningSession(at, 'shell');
  await killSupervisor(at);
  const supervisor = await at.start({ [point]: 'kill' });
  const opId = uniqueName('op-turn');
  const request = { session: id, opId, prompt: `seq 1 ${LARGE_OUTPUT_LINES}` };
  await at.call('turn/start', request).catch(expectLost);
  expect(await supervisor.waitForExit(30_000)).toEqual(KILLED);
  await startNextSupervisor(at);
  const { turn } = await retryRequest(at, 'turn/start', request);
  expect(await waitForTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  const output = await turnOutput(at, turn.turnId, 'stdout');
  expect(output.toString()).toBe(LARGE_OUTPUT);
  await expectSettled(at);
  // Every event has its content, and the file has nothing besides.
  await expectWholeHistory(at, id);
  const { contents } = await at.call('session/verify', { session: id });
  expect(contents).toMatchObject({ removed: 0, damaged: [] });
  const file = await stat(join(at.path, 'artifacts', id, `${turn.turnId}.output`));
  expect(file.size).toBeLessThanOrEqual(output.length);
}

function expectLost(error: unknown): void {
  expect(error).toMatchObject({ code: 'connection_closed' });
}
