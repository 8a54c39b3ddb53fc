import { describe, test } from 'vitest';
import type { FailpointName } from '../../supervisor/base/failpoints.ts';
import { expectMoveSurvives } from './failpoints/moves.ts';

/** The steps of a move that belong to other operations; `failpoints` has its own. */
const STEPS: readonly (readonly ['source' | 'target', FailpointName])[] = [
  ['source', 'stop.after-agent'],
  ['source', 'snapshot.after-publish'],
  ['target', 'import.after-contents'],
  ['target', 'import.after-publish'],
  ['target', 'import.after-row'],
  ['source', 'delete.after-intent'],
  ['source', 'delete.after-workspace'],
  ['source', 'delete.before-row'],
];

describe('a move whose supervisor dies', () => {
  test.for(STEPS)('at the %s, at %s', { timeout: 120_000 }, async ([side, point]) => {
    await expectMoveSurvives(point, side);
  });
});
