import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { RunnerPickup } from '../../../supervisor/turns/runner-pickup.ts';

test('a turn that lies untaken for too long is overdue; a pause, and its being taken, begin anew', async () => {
  const taking = new RunnerPickup(60);
  expect(taking.isOverdue('accepted', false)).toBe(false);
  await sleep(70);
  expect(taking.isOverdue('accepted', true)).toBe(false);
  expect(taking.isOverdue('accepted', false)).toBe(false);
  await sleep(70);
  expect(taking.isOverdue('accepted', false)).toBe(true);
  expect(taking.isOverdue('running', false)).toBe(false);
  await sleep(70);
  expect(taking.isOverdue('accepted', false)).toBe(false);
});

test('after three sandboxes that did not take it a turn fails, with the reason of the last', () => {
  const taking = new RunnerPickup();
  taking.recordFailure('one');
  taking.recordFailure('two');
  expect(() => taking.recordFailure('the container ended because it ran out of memory')).toThrow(
    expect.objectContaining({
      code: 'sandbox_failed',
      why: 'the container ended because it ran out of memory; 3 sandboxes were tried',
      next: expect.stringContaining('limits') as string,
    }),
  );
});
