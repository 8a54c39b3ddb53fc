import { describe, test } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { soakCount } from '../../setup/run-length.ts';
import { seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { testScenarios } from './scenarios.ts';
import { repeatedTurnScenario } from './turns.ts';

testScenarios('turns');

describe('a supervisor killed at', () => {
  test('two places, the second while the next one puts right what the first left', async () => {
    const order: FailpointName[] = [
      'turn.before-launch',
      'turn.after-launch',
      'turn.during-output',
      'turn.before-end',
    ];
    const pairs = order.flatMap((first, at) => order.slice(at).map((second) => [first, second] as const));
    const seed = seedOfRun('places to be killed at');
    const chosen = Array.from(
      { length: soakCount(2, pairs.length) },
      (_, at) => pairs[(seed + at * 3) % pairs.length],
    );
    for (const pair of chosen) if (pair !== undefined) await repeatedTurnScenario('shell', ...pair);
  });
});
