import { expect, test } from 'vitest';
import { inParts, sendParts } from '../../../extension/review/send-decisions.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { DecisionSchema, REVIEW_LIMITS } from '../../../protocol/review.ts';
import type { Decision } from '../../../protocol/review.ts';

const MANY: readonly Decision[] = Array.from({ length: 2 * REVIEW_LIMITS.decisions + 1 }, (_, at) =>
  DecisionSchema.parse({ path: `/workspace/${at}`, seen: '0'.repeat(24) }),
);
const say = (count: number): string => `${count} changes accepted`;

test('many decisions go in as many requests as it takes, and count together', async () => {
  const sent: Decision[] = [];
  const count = await sendParts(inParts(MANY), say, (part) => {
    const decisions = 'decisions' in part ? part.decisions : [];
    expect(decisions.length).toBeLessThanOrEqual(REVIEW_LIMITS.decisions);
    sent.push(...decisions);
    return Promise.resolve(decisions.length);
  });
  expect(count).toBe(MANY.length);
  expect(sent).toEqual(MANY);
});

test('an error says what was decided before it, if anything was', async () => {
  const failsAt = (last: number) => {
    let sent = 0;
    return sendParts(inParts(MANY), say, () => {
      sent += 1;
      if (sent < last) return Promise.resolve(REVIEW_LIMITS.decisions);
      throw new HoldfastError('conflict', '/workspace/7 has changed since');
    });
  };
  await expect(failsAt(3)).rejects.toMatchObject({
    code: 'conflict',
    message: 'Only 2000 changes accepted',
    why: expect.stringContaining('/workspace/7 has changed since') as string,
  });
  await expect(failsAt(1)).rejects.toMatchObject({
    message: '/workspace/7 has changed since',
    why: undefined,
  });
});
