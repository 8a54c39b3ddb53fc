import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { DispatchSignals } from '../../../supervisor/sandboxes/dispatch-signals.ts';

const WHY = new HoldfastError('interrupted', 'The sandbox was not made ready');

/** A dispatch that lasts until its signal aborts. It settles with the reason. */
function dispatch(signals: DispatchSignals, sessionId: string, requested?: AbortSignal): Promise<unknown> {
  return signals.during(
    sessionId,
    requested,
    (signal) =>
      new Promise((resolve) => {
        const end = (): void => resolve(signal.reason);
        if (signal.aborted) end();
        else signal.addEventListener('abort', end, { once: true });
      }),
  );
}

test('an interruption ends every dispatch of its session, those of no other, and none that begins later', async () => {
  const signals = new DispatchSignals();
  const own = [dispatch(signals, 'a'), dispatch(signals, 'a', new AbortController().signal)];
  const other = dispatch(signals, 'b');
  signals.interrupt('a', WHY);
  expect(await Promise.all(own)).toEqual([WHY, WHY]);
  expect(await signals.during('a', undefined, (signal) => Promise.resolve(signal.aborted))).toBe(false);
  expect(await Promise.race([other, Promise.resolve('goes on')])).toBe('goes on');
  signals.interrupt('b', WHY);
  expect(await other).toBe(WHY);
});

test('who asked can end it too', async () => {
  const asked = new AbortController();
  const dispatched = dispatch(new DispatchSignals(), 'a', asked.signal);
  asked.abort('cancelled');
  expect(await dispatched).toBe('cancelled');
});

test('a shutdown ends those of all sessions, and those that come later', async () => {
  const signals = new DispatchSignals();
  const running = [dispatch(signals, 'a'), dispatch(signals, 'b')];
  signals.close(WHY);
  expect(await Promise.all([...running, dispatch(signals, 'c')])).toEqual([WHY, WHY, WHY]);
});
