import { type Duplex, duplexPair } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { SpareStreams } from '../../../supervisor/egress/spare-streams.ts';

const SPARE = 4;

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

function dialler() {
  const dialled: Duplex[] = [];
  const dial = (): Promise<Duplex> => {
    const [ours] = duplexPair();
    dialled.push(ours);
    return Promise.resolve(ours);
  };
  return { dialled, dial };
}

describe('spare streams', () => {
  test('are open before anybody needs one, and are replaced after one was taken', async () => {
    const { dialled, dial } = dialler();
    const streams = new SpareStreams(dial);
    await nextTurn();
    expect(dialled).toHaveLength(SPARE);

    expect(await streams.take()).toBe(dialled[0]);
    expect(await streams.take()).toBe(dialled[1]);
    expect(dialled).toHaveLength(SPARE);

    vi.advanceTimersByTime(1000);
    await nextTurn();
    expect(dialled).toHaveLength(SPARE + 2);
    streams.close();
  });

  test('are none in a burst: a stream is opened for whoever finds none', async () => {
    const { dialled, dial } = dialler();
    const streams = new SpareStreams(dial);
    await nextTurn();
    const taken = await Promise.all(Array.from({ length: 10 }, () => streams.take()));
    expect(new Set(taken).size).toBe(10);
    expect(dialled).toHaveLength(10);
    streams.close();
  });

  test('that were lost are given to nobody', async () => {
    const { dialled, dial } = dialler();
    const streams = new SpareStreams(dial);
    await nextTurn();
    for (const stream of dialled) stream.destroy(new Error('the process has ended'));
    expect((await streams.take()).destroyed).toBe(false);
    streams.close();
  });

  test('that cannot be opened fail whoever needs one, and nobody else', async () => {
    const streams = new SpareStreams(() => Promise.reject(new Error('it does not listen')));
    await nextTurn();
    await expect(streams.take()).rejects.toThrow('it does not listen');
    streams.close();
  });

  test('end with the process, also one that is opened meanwhile', async () => {
    const { promise, resolve } = Promise.withResolvers<Duplex>();
    const streams = new SpareStreams(() => promise);
    streams.close();
    const [late] = duplexPair();
    resolve(late);
    await nextTurn();
    expect(late.destroyed).toBe(true);
  });
});
