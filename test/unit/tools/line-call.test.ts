import { duplexPair } from 'node:stream';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { AGENT_TOOL_LIMITS } from '../../../protocol/agent-tools.ts';
import { LineCall } from '../../../supervisor/tools/line-call.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

test('a call that gets no answer ends, a while after the longest wait for a person', async () => {
  const [ours, theirs] = duplexPair();
  const begun = Promise.withResolvers<AbortSignal>();
  new LineCall(ours, (_message, signal) => {
    begun.resolve(signal);
    return new Promise(() => undefined);
  });
  theirs.write('{}\n');
  const signal = await begun.promise;
  await vi.advanceTimersByTimeAsync(AGENT_TOOL_LIMITS.answerWaitMs);
  expect(ours.destroyed).toBe(false);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(ours.destroyed).toBe(true);
  await vi.waitFor(() => expect(signal.aborted).toBe(true));
});
