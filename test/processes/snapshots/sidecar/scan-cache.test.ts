import { cpSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { ScanResult } from '../../../../snapshot-format/sidecar-calls.ts';
import type { SystemCalls } from '../../../../sidecar/snapshots/system-calls.ts';
import { soakCount } from '../../../setup/run-length.ts';
import { SeededRandom, seedOfRun } from '../../../fixtures/protocol/seeded-random.ts';
import { temporaryDirectory } from '../../../fixtures/store/temporary-home.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';
import { LocalWorkspace } from './local-workspace.ts';

vi.setConfig({ testTimeout: 120_000 });

/** Longer than bytes of a small write may be on their way: what was written before is relied on then. */
const SETTLED_MS = 150;
const FILES = 300;
const TREE = `
  for d in $(seq 10); do mkdir -p "d$d/in"; for n in $(seq 30); do echo "file $d $n" > "d$d/in/f$n"; done; done
  ln d1/in/f1 d2/second; ln -s d1 link; mkdir empty; mkfifo fifo; setfattr -n user.note -v x d3/in 2>/dev/null || true
  head -c 3000000 /dev/urandom > large; truncate -s 10M d4/holes
`;

/** A workspace with a tree that was scanned, and what its sidecar has left. */
async function left(): Promise<{ below: string; store: MemoryStore; root: string; next: typeof opened }> {
  const below = temporaryDirectory();
  const store = new MemoryStore();
  using workspace = await LocalWorkspace.open(below, store);
  workspace.runScript(TREE);
  await sleep(SETTLED_MS);
  const { root } = await workspace.scan();
  expect(await workspace.saveScanCache()).toBe(true);
  return { below, store, root, next: opened };
}

/** As the next sidecar finds it. */
async function opened(
  below: string,
  store: MemoryStore,
  around?: (system: SystemCalls) => SystemCalls,
): Promise<LocalWorkspace> {
  const workspace = await LocalWorkspace.open(below, store, around);
  onTestFinished(() => workspace[Symbol.dispose]());
  return workspace;
}

/** What somebody who knows nothing finds. */
async function truth(below: string): Promise<ScanResult> {
  using workspace = await LocalWorkspace.open(below, new MemoryStore());
  return await workspace.scan();
}

const isRead = ({ changedFiles }: ScanResult): boolean => changedFiles > FILES;

test('the next sidecar reads nothing again, and what was changed meanwhile only', async () => {
  const { below, store, root, next } = await left();
  const second = await next(below, store);
  const calls = new Map(store.calls);
  expect(await second.scan(root)).toMatchObject({ root, changedFiles: 0, changedBytes: 0, newObjects: 0 });
  // The root alone is asked for, by who recalls and by who sends: what it needs is there with it.
  expect(store.calls.get('have')).toBe((calls.get('have') ?? 0) + 2);
  expect(await second.scan(root)).toMatchObject({ root, changedFiles: 0 });

  second.runScript(
    'echo more >> d5/in/f7; mv d6 moved; rm d7/in/f1; chmod 600 d8/in/f2; echo new > empty/new',
  );
  const third = await next(below, store);
  const found = await third.scan(root);
  expect(found.root).toBe((await truth(below)).root);
  expect(found.changedFiles).toBeLessThan(5);
  await third.restore(root);
  expect((await truth(below)).root).toBe(root);
});

test('it is left where much was read only, and once', async () => {
  const { below, store, root, next } = await left();
  const second = await next(below, store);
  expect(await second.saveScanCache()).toBe(false);
  await second.scan(root);
  expect(await second.saveScanCache()).toBe(false);
  second.runScript('for n in $(seq 150); do echo $n > new$n; done');
  await sleep(SETTLED_MS);
  const more = await second.scan(root);
  expect(await second.saveScanCache()).toBe(true);
  expect(await second.saveScanCache()).toBe(false);
  expect(await (await next(below, store)).scan(more.root)).toMatchObject({
    root: more.root,
    changedFiles: 0,
  });
});

test('a store that has its root has all of it, and one that has not is asked: what it lost is sent again', async () => {
  const { below, store, root, next } = await left();
  const first = await next(below, store);
  first.runScript('echo other > d1/in/f2');
  const { root: other } = await first.scan(root);
  const asked = store.calls.get('have') ?? 0;
  expect(await (await next(below, store)).scan(other)).toMatchObject({ root: other, newObjects: 0 });
  expect((store.calls.get('have') ?? 0) - asked).toBeLessThan(4);
  for (const lost of ['large', 'd9/in/f3', 'the root']) {
    const second = await next(below, store);
    for (const hash of [...store.objects.keys()].filter((_, at) => at % 7 === 0)) store.objects.delete(hash);
    store.objects.delete(root);
    const again = await second.scan(other);
    second.runScript('rm -rf ./*');
    await second.restore(again.root);
    expect((await truth(below)).root, lost).toBe(again.root);
  }
});

test('a take with it finds what a take without it finds, whatever was changed', async () => {
  const seed = seedOfRun('scan cache');
  for (let round = 0; round < soakCount(3, 400); round += 1) {
    const random = new SeededRandom(seed + round);
    const below = temporaryDirectory();
    const store = new MemoryStore();
    const workspace = await opened(below, store);
    workspace.runScript(TREE);
    if (random.below(2) === 0) await sleep(SETTLED_MS);
    let base = (await workspace.scan()).root;
    for (let life = 0; life < 3; life += 1) {
      const before = await opened(below, store);
      if (random.below(3) > 0) {
        before.runScript(edits(random));
        base = (await before.scan(base)).root;
        if (random.below(2) === 0) await before.saveScanCache();
      }
      before.runScript(edits(random));
      const after = await opened(below, store);
      const found = await after.scan(base);
      expect(found.root, `seed ${seed + round}, life ${life}`).toBe((await truth(below)).root);
      base = found.root;
      await after.saveScanCache();
    }
  }
});

test('one that is damaged or cut off anywhere is not believed', async () => {
  const { below, store, root, next } = await left();
  const whole = store.scanCache ?? Buffer.alloc(0);
  const seed = seedOfRun('damaged scan cache');
  const random = new SeededRandom(seed);
  const damaged = async (bytes: Buffer, how: string): Promise<void> => {
    store.scanCache = bytes;
    const found = await (await next(below, store)).scan(root);
    expect(found.root, `${how}, seed ${seed}`).toBe(root);
    expect(isRead(found), `${how}, seed ${seed}`).toBe(true);
  };
  for (let round = 0; round < soakCount(32, 1000); round += 1) {
    const at = round % 4 === 0 ? round : random.below(whole.length);
    const flipped = Buffer.from(whole);
    flipped[at] = (flipped[at] ?? 0) ^ (1 << random.below(8));
    await damaged(flipped, `a bit at ${at}`);
    const end = random.below(whole.length);
    await damaged(whole.subarray(0, end), `cut off at ${end}`);
  }
  await damaged(whole.subarray(0, -44), 'without its end');
  await damaged(Buffer.concat([whole, whole]), 'twice');
  await damaged(Buffer.concat([whole, Buffer.alloc(1)]), 'with more behind it');
  await damaged(Buffer.concat([whole.subarray(0, 60), Buffer.alloc(2 ** 20)]), 'overwritten');
  await damaged(Buffer.from('HFSCAN0\n'), 'of another version');
  store.scanCache = whole;
  expect(isRead(await (await next(below, store)).scan(root))).toBe(false);
});

test('one of another folder, another start of the machine, or a later time is not believed', async () => {
  const { below, store, root, next } = await left();
  const early = (system: SystemCalls): SystemCalls => ({
    ...system,
    fileClock: () => system.fileClock() - 3_600_000_000_000n,
  });
  expect(isRead(await (await next(below, store, early)).scan(root))).toBe(true);
  const restarted = (system: SystemCalls): SystemCalls => ({ ...system, bootId: () => 'another' });
  expect(isRead(await (await next(below, store, restarted)).scan(root))).toBe(true);
  const untold = (system: SystemCalls): SystemCalls => ({ ...system, bootId: () => null });
  const silent = await next(below, store, untold);
  expect(isRead(await silent.scan(root))).toBe(true);
  expect(await silent.saveScanCache()).toBe(false);

  // The same files under the same inodes, in another top folder.
  const elsewhere = temporaryDirectory();
  cpSync(join(below, 'control'), join(elsewhere, 'control'), { recursive: true });
  const other = await next(elsewhere, store);
  for (const name of readdirSync(join(below, 'workspace'))) {
    renameSync(join(below, 'workspace', name), join(elsewhere, 'workspace', name));
  }
  expect(isRead(await other.scan(root))).toBe(true);
});

test('a copy that was put back has other change times, whatever it looks like: it is read', async () => {
  const { below, store, root, next } = await left();
  const workspace = await next(below, store);
  workspace.runScript('cp -a . ../copy; rm -rf ./*; cp -a ../copy/. .');
  const found = await workspace.scan(root);
  expect(isRead(found)).toBe(true);
  expect(found.root).toBe((await truth(below)).root);
  // The same size, and the time put back: only the change time tells.
  const again = await next(below, store);
  await again.scan(root);
  again.runScript('touch -r d1/in/f3 ../time; echo "FILE 1 3" > d1/in/f3; touch -r ../time d1/in/f3');
  rmSync(join(below, 'time'));
  const last = await (await next(below, store)).scan(root);
  expect(last.root).toBe((await truth(below)).root);
});

test('one whose sending was cut off is not there, and the one before is', async () => {
  const { below, store, root, next } = await left();
  const before = store.scanCache;
  const workspace = await next(below, store);
  writeFileSync(join(workspace.path, 'large'), Buffer.alloc(5_000_000, 1));
  await workspace.scan(root);
  store.beforeCall = (call) =>
    call === 'cache/seal' ? Promise.reject(new Error('gone')) : Promise.resolve();
  await expect(workspace.saveScanCache()).rejects.toThrow('gone');
  store.beforeCall = () => Promise.resolve();
  expect(store.scanCache).toBe(before);
  expect(await workspace.saveScanCache()).toBe(true);
});

/** A script that changes some of the tree. */
function edits(random: SeededRandom): string {
  const file = (): string => `d${random.below(10) + 1}/in/f${random.below(30) + 1}`;
  const kinds = [
    () => `echo ${random.below(1000)} >> ${file()} || true`,
    () => `rm -f ${file()}`,
    () => `mkdir -p d${random.below(10) + 1}/in && echo again > ${file()} || true`,
    () => `mv ${file()} d${random.below(10) + 1}/in/moved${random.below(5)} || true`,
    () => `mv d${random.below(10) + 1} other${random.below(3)} || true`,
    () => `mv other${random.below(3)} d${random.below(10) + 1} || true`,
    () => `chmod 6${random.below(8)}4 ${file()} || true`,
    () => `ln -f ${file()} linked${random.below(3)} || true`,
    () => `touch -d @${random.below(2 ** 30)} ${file()} || true`,
    () => `rm -rf empty; ln -s x empty || true`,
    () =>
      `dd if=/dev/zero of=large bs=1 count=1 seek=${random.below(3_000_000)} conv=notrunc status=none || true`,
    () => `sleep 0.02`,
  ];
  return Array.from({ length: random.below(6) + 1 }, () => kinds[random.below(kinds.length)]?.()).join('\n');
}
