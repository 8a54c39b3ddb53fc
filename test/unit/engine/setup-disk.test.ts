import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { bytesOfSteps, fullDiskError, watchDisk } from '../../../supervisor/engine/docker/setup-disk.ts';

const image = (Id: string, ParentId: string, Size: number, session: string | null = 'setup-1') => ({
  ...{ Id, ParentId, Size, Created: 1, RepoTags: null },
  Labels: session === null ? null : { 'dev.holdfast.session': session },
});

test('what steps wrote counts once each, also in other stages, and what others built does not', () => {
  const images = [
    image('base', '', 1000, null),
    image('a', 'base', 1100),
    // Removed what was there before: the layer is small, and the one before it stays.
    image('b', 'a', 1100),
    image('c', 'b', 1350),
    image('stage', 'base', 1040),
    image('other', 'base', 9000, 'setup-2'),
  ];
  expect(bytesOfSteps(images, 'setup-1')).toBe(390);
  // From nothing.
  expect(bytesOfSteps([image('x', '', 70)], 'setup-1')).toBe(70);
});

test('a disk that is nearly full ends a setup; one that cannot be seen does not', async () => {
  const free = (bytes: number | null) => fullDiskError('/data', () => Promise.resolve(bytes));
  expect(await free(2 ** 30 - 1)).toMatchObject({
    code: 'setup_failed',
    details: { freeBytes: 2 ** 30 - 1 },
  });
  expect(await free(2 ** 30)).toBeNull();
  expect(await free(null)).toBeNull();
  expect(await fullDiskError(null, () => Promise.resolve(0))).toBeNull();
});

test('a watch continues after a measurement that fails, and ends with its signal', async () => {
  let asked = 0;
  const written = (): Promise<number> => {
    asked += 1;
    return asked < 3 ? Promise.reject(new Error('the step has ended')) : Promise.resolve(101);
  };
  const options = { folder: null, limitBytes: 100, everyMs: 1 };
  expect(await watchDisk({ ...options, written, signal: new AbortController().signal })).toMatchObject({
    message: 'The setup wrote too much',
  });
  const ended = new AbortController();
  const watch = watchDisk({ ...options, written: () => Promise.resolve(100), signal: ended.signal });
  await sleep(5);
  ended.abort();
  expect(await watch).toBeNull();
});
