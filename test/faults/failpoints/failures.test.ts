import { describe, test } from 'vitest';
import { FAILURES, failThenReuseName } from './failures.ts';

describe('an operation that failed at', () => {
  test.each(FAILURES)('%s: what its name is used for afterwards stays', async (point) => {
    await failThenReuseName(point);
  });
});
