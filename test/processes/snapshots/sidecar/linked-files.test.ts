import { closeSync, openSync, statSync, utimesSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import type { SystemCalls } from '../../../../sidecar/snapshots/system-calls.ts';
import { temporaryDirectory } from '../../../fixtures/store/temporary-home.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';
import { LocalWorkspace } from './local-workspace.ts';

vi.setConfig({ testTimeout: 60_000 });

/** Longer than bytes may be on their way: what was written before is relied on then. */
const SETTLED_MS = 150;

/** A workspace, and how many files were opened in it. */
async function opened(): Promise<{
  workspace: LocalWorkspace;
  store: MemoryStore;
  below: string;
  opens: () => number;
  lag: (ns: bigint) => void;
}> {
  const store = new MemoryStore();
  const below = temporaryDirectory();
  let count = 0;
  let clockLag = 0n;
  const counting = (system: SystemCalls): SystemCalls => ({
    ...system,
    fileClock: () => system.fileClock() - clockLag,
    openAt: (directory, address, flags, mode) => {
      if ((flags & 0o200000) === 0) count += 1;
      return system.openAt(directory, address, flags, mode);
    },
  });
  const workspace = await LocalWorkspace.open(below, store, counting);
  const opens = (): number => {
    const opened = count;
    count = 0;
    return opened;
  };
  /** Scans take files for written so much later than they were, ns. */
  const lag = (ns: bigint): void => void (clockLag = ns);
  return { workspace, store, below, opens, lag };
}

test('a file is read once, whatever number of names it has, also after a touch', async () => {
  const { workspace, opens } = await opened();
  const names = 500;
  workspace.runScript(
    `mkdir a b; head -c 3000000 /dev/urandom > a/first; head -c 5000 /dev/urandom > a/small
     for n in $(seq ${names}); do ln a/first b/$n; ln a/small b/s$n; done`,
  );
  await sleep(SETTLED_MS);
  opens();
  const first = await workspace.scan();
  expect(first).toMatchObject({ complete: true, files: 2 * names + 2, bytes: 3_005_000 });
  expect(first.changedBytes).toBe(3_005_000);
  expect(opens()).toBeLessThan(10);
  await sleep(SETTLED_MS);
  utimesSync(join(workspace.path, 'b/7'), 1, 1);
  await sleep(SETTLED_MS);
  const touched = await workspace.scan(first.root);
  expect(touched).toMatchObject({ complete: true, changedFiles: names + 1, changedBytes: 3_000_000 });
  expect(opens()).toBeLessThan(10);
  expect(touched.newObjects).toBeLessThan(10);
  // All names have the same time in the tree.
  workspace.runScript('rm -r a b');
  await workspace.restore(touched.root);
  for (const name of ['a/first', 'b/1', 'b/7']) {
    const { nlink, mtimeMs } = statSync(join(workspace.path, name));
    expect([nlink, mtimeMs]).toEqual([names + 1, 1000]);
  }
});

test('a file with a bounded read counts its bytes once against the bound', async () => {
  const { workspace } = await opened();
  workspace.runScript('head -c 1000000 /dev/urandom > f; for n in $(seq 20); do ln f $n; done');
  await sleep(SETTLED_MS);
  expect(await workspace.scan(null, { budgetBytes: 1_500_000 })).toMatchObject({ complete: true });
});

test('a file that changes between two of its names is read again, and the next scan has all names alike', async () => {
  const store = new MemoryStore();
  const below = temporaryDirectory();
  let writer: number | null = null;
  const around = (system: SystemCalls): SystemCalls => ({
    ...system,
    close: (fd) => {
      system.close(fd);
      // After the first name was read.
      if (writer !== null) {
        writeSync(writer, 'changed', 0);
        closeSync(writer);
        writer = null;
      }
    },
  });
  const workspace = await LocalWorkspace.open(below, store, around);
  writeFileSync(join(workspace.path, 'f'), 'x'.repeat(10_000));
  workspace.runScript('mkdir a b; mv f a/f; ln a/f b/f');
  await sleep(SETTLED_MS);
  writer = openSync(join(workspace.path, 'a/f'), 'r+');
  const first = await workspace.scan();
  expect(first.changedDuringScan).toBe(true);
  await sleep(SETTLED_MS);
  const second = await workspace.scan(first.root);
  expect(second).toMatchObject({ complete: true, changedDuringScan: false });
  workspace.runScript('rm -r a b');
  await workspace.restore(second.root);
  expect(workspace.runScript('cmp a/f b/f && head -c 7 a/f && stat -c %h a/f')).toBe('changed2\n');
});

test('what was read in one scan is not believed in the next one', async () => {
  const { workspace, opens, lag } = await opened();
  workspace.runScript('head -c 10000 /dev/urandom > f; ln f g');
  // Read while bytes may still be on their way.
  lag(60_000_000_000n);
  const first = await workspace.scan();
  lag(0n);
  opens();
  await sleep(SETTLED_MS);
  const second = await workspace.scan(first.root);
  expect(second.root).toBe(first.root);
  expect(opens()).toBe(1);
  expect((await workspace.scan(second.root)).changedFiles).toBe(0);
  expect(opens()).toBe(0);
});
