import { expect, test } from 'vitest';
import { LineageLocks } from '../../../supervisor/snapshots/store/lineage-locks.ts';

/** Something that goes on until it is ended. */
function work(): {
  readonly act: () => Promise<void>;
  readonly begun: Promise<void>;
  readonly end: () => void;
} {
  let begin = (): void => undefined;
  let end = (): void => undefined;
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const ended = new Promise<void>((resolve) => (end = resolve));
  const act = async (): Promise<void> => {
    begin();
    await ended;
  };
  return { act, begun, end };
}

test('a use begins beside others although a removal waits, which begins when all of them have ended', async () => {
  const locks = new LineageLocks();
  const [snapshot, removal, restore] = [work(), work(), work()];
  const done: string[] = [];
  const all = [
    locks.shared('a', snapshot.act).then(() => done.push('snapshot')),
    locks.exclusive('a', removal.act).then(() => done.push('removal')),
    locks.shared('a', restore.act).then(() => done.push('restore')),
  ];
  // The snapshot may wait for the session mutex, which the restore has.
  await restore.begun;
  restore.end();
  await all[2];
  snapshot.end();
  await removal.begun;
  removal.end();
  await Promise.all(all);
  expect(done).toEqual(['restore', 'snapshot', 'removal']);
});

test('nothing begins beside a removal, and another lineage has a lock of its own', async () => {
  const locks = new LineageLocks();
  const [removal, other] = [work(), work()];
  let isUsed = false;
  const removed = locks.exclusive('a', removal.act);
  const used = locks.shared('a', async () => {
    isUsed = true;
  });
  const elsewhere = locks.exclusive('b', other.act);
  await Promise.all([removal.begun, other.begun]);
  expect(isUsed).toBe(false);
  other.end();
  await elsewhere;
  expect(isUsed).toBe(false);
  removal.end();
  await Promise.all([removed, used]);
  expect(isUsed).toBe(true);
});
