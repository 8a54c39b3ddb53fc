import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { EventEntry } from '../../../protocol/events.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { Progress } from '../../../protocol/wire/shapes.ts';
import type { Log } from '../../../supervisor/base/log.ts';
import type { SnapshotCallOptions } from '../../../supervisor/snapshots/connection.ts';
import { Hydration } from '../../../supervisor/snapshots/hydration.ts';

const SNAPSHOT = 'snp-aaaaaaaaaaaaaaaa';

interface Fixture {
  readonly hydrations: Hydration;
  /** Sessions whose files are being brought now, in the order of their beginning. */
  readonly running: Map<string, { options: SnapshotCallOptions; end: PromiseWithResolvers<undefined> }>;
  readonly pending: Set<string>;
  readonly reported: EventEntry[];
  readonly background: Promise<void>[];
}

function fixture(...sessions: string[]): Fixture {
  const running: Fixture['running'] = new Map();
  const pending = new Set(sessions);
  const reported: EventEntry[] = [];
  const background: Promise<void>[] = [];
  const quiet = (): void => undefined;
  const hydrations: Hydration = new Hydration({
    snapshotFor: (id) => (pending.has(id) ? SNAPSHOT : null),
    useWorkspace: (id) =>
      hydrations.hydrate(id, async (options) => {
        const end = Promise.withResolvers<undefined>();
        running.set(id, { options, end });
        options.signal?.addEventListener('abort', () => end.reject(new Error('cut off')));
        try {
          await end.promise;
          pending.delete(id);
        } finally {
          running.delete(id);
        }
      }),
    events: {
      append: (_, entries) => {
        reported.push(...entries);
        return [];
      },
    },
    background: { add: (work) => void background.push(work.catch(quiet)) },
    log: { warn: quiet } as unknown as Log,
  });
  return { hydrations, running, pending, reported, background };
}

test('two hydrations run at a time, the others wait in order', async () => {
  const { hydrations, running } = fixture('a', 'b', 'c', 'd');
  for (const id of ['a', 'b', 'c', 'd']) hydrations.start(id);
  await turn();
  expect([...running.keys()]).toEqual(['a', 'b']);
  running.get('b')?.end.resolve(undefined);
  await turn();
  expect([...running.keys()]).toEqual(['a', 'c']);
  expect(hydrations.isBusy).toBe(true);
  for (const id of ['a', 'c', 'd']) {
    running.get(id)?.end.resolve(undefined);
    await turn();
  }
  expect(running.size).toBe(0);
  expect(hydrations.isBusy).toBe(false);
  expect(hydrations.stateOf('a')).toBeNull();
});

test('a waiting client gets the progress, and cancelling the wait does not stop the hydration', async () => {
  const { hydrations, running, pending } = fixture('a');
  const heard: Progress[] = [];
  const leaving = new AbortController();
  const left = hydrations.waitFor('a', { signal: leaving.signal });
  const waited = hydrations.waitFor('a', { onProgress: (progress) => heard.push(progress) });
  await turn();
  const progress = { stage: 'restoring', done: 1, of: 2, unit: 'files' };
  running.get('a')?.options.onProgress?.(progress);
  expect(heard).toEqual([progress]);
  leaving.abort();
  await expect(left).rejects.toMatchObject({ code: 'cancelled' });
  expect(running.get('a')?.options.signal?.aborted).toBe(false);
  running.get('a')?.end.resolve(undefined);
  await waited;
  expect(pending.size).toBe(0);
});

test('a repeated failure is recorded once, until it changes or is resolved', async () => {
  const { hydrations, running, reported } = fixture('a');
  const fail = async (why: string): Promise<void> => {
    const waited = hydrations.waitFor('a', {});
    await turn();
    running.get('a')?.end.reject(new HoldfastError('no_space', why));
    await expect(waited).rejects.toMatchObject({ code: 'no_space' });
  };
  await fail('The disk is full');
  await fail('The disk is full');
  await fail('The other disk is full');
  expect(reported.map(({ type, data }) => [type, data])).toEqual([
    ['workspace.hydration-failed', { snapshotId: SNAPSHOT, code: 'no_space', why: 'The disk is full' }],
    ['workspace.hydration-failed', { snapshotId: SNAPSHOT, code: 'no_space', why: 'The other disk is full' }],
  ]);
  expect(hydrations.stateOf('a')).toEqual({
    snapshotId: SNAPSHOT,
    failed: { code: 'no_space', why: 'The other disk is full' },
  });
  hydrations.clearFailure('a');
  expect(hydrations.stateOf('a')).toEqual({ snapshotId: SNAPSHOT, failed: null });
});

test('a suspended hydration rejects with the reason, also while it waits, and is not a failure', async () => {
  const { hydrations, running, reported } = fixture('a', 'b', 'c');
  for (const id of ['a', 'b']) hydrations.start(id);
  const gone = new HoldfastError('not_found', 'It is being deleted');
  const running1 = hydrations.waitFor('a', {});
  const waiting = hydrations.waitFor('c', {});
  await turn();
  const release = hydrations.suspend('c', gone);
  await expect(waiting).rejects.toBe(gone);
  await expect(hydrations.waitFor('c', {})).rejects.toBe(gone);
  hydrations.suspend('a', gone);
  await expect(running1).rejects.toBe(gone);
  // Its place is free, and nobody sits in it.
  release();
  hydrations.start('c');
  await turn();
  expect([...running.keys()]).toEqual(['b', 'c']);
  expect(reported).toEqual([]);
});

test('suspending all aborts every hydration; resuming starts them again', async () => {
  const { hydrations, running, pending, background, reported } = fixture('a', 'b', 'c');
  for (const id of ['a', 'b', 'c']) hydrations.start(id);
  await turn();
  const goOn = await hydrations.suspendAll();
  await Promise.all(background);
  expect(running.size).toBe(0);
  expect(hydrations.isBusy).toBe(false);
  hydrations.start('a');
  await turn();
  expect(running.size).toBe(0);
  goOn();
  await turn();
  expect([...running.keys()]).toEqual(['a', 'b']);
  running.get('a')?.end.resolve(undefined);
  await turn();
  expect([...pending]).toEqual(['b', 'c']);
  await hydrations.suspendAll();
  expect(reported).toEqual([]);
});
