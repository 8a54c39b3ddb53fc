import { mkdtempSync, mkdirSync, openSync, rmSync, fstatSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Directory } from '../../../sidecar/files/directory.ts';
import { DirectorySyncs } from '../../../sidecar/files/directory-syncs.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-syncs-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Syncs that the test ends. */
function given() {
  const begun: { readonly inode: number; readonly end: (error?: Error) => void }[] = [];
  const syncs = new DirectorySyncs(
    (fd) =>
      new Promise((resolve, reject) => {
        const { ino } = fstatSync(fd);
        begun.push({ inode: ino, end: (error) => (error === undefined ? resolve() : reject(error)) });
      }),
  );
  return { syncs, begun };
}

function directory(name = '.'): Directory {
  return Directory.fromFd(openSync(join(folder, name), 'r'));
}

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('those who come while a sync runs share the next one, and none is answered before it', async () => {
  const { syncs, begun } = given();
  using at = directory();
  const done: string[] = [];
  const wait = (name: string): Promise<void> => syncs.sync(at).then(() => void done.push(name));
  const all = [wait('first'), wait('second'), wait('third')];
  await settle();
  expect(begun).toHaveLength(1);
  begun[0]?.end();
  await settle();
  // What came during the first one is not covered by it.
  expect([done, begun.length]).toEqual([['first'], 2]);
  all.push(wait('fourth'));
  begun[1]?.end();
  await settle();
  expect([done, begun.length]).toEqual([['first', 'second', 'third'], 3]);
  begun[2]?.end();
  await Promise.all(all);
  expect(done).toEqual(['first', 'second', 'third', 'fourth']);
  // Nothing runs any more: the next one begins at once.
  const last = syncs.sync(at);
  expect(begun).toHaveLength(4);
  begun[3]?.end();
  await last;
});

test('a sync that fails fails for all who share it, and not for those after it', async () => {
  const { syncs, begun } = given();
  using at = directory();
  const first = syncs.sync(at);
  const shared = [syncs.sync(at), syncs.sync(at)];
  begun[0]?.end(new Error('first'));
  await expect(first).rejects.toThrow('first');
  await settle();
  const after = syncs.sync(at);
  begun[1]?.end(new Error('second'));
  for (const one of shared) await expect(one).rejects.toThrow('second');
  await settle();
  begun[2]?.end();
  await after;
});

test('two directories do not wait for each other', async () => {
  const { syncs, begun } = given();
  mkdirSync(join(folder, 'a'));
  using one = directory();
  using other = directory('a');
  const both = [syncs.sync(one), syncs.sync(other)];
  await settle();
  expect(new Set(begun.map(({ inode }) => inode)).size).toBe(2);
  for (const { end } of begun) end();
  await Promise.all(both);
});
