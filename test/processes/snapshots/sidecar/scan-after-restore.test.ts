import { closeSync, openSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { ObjectKind } from '../../../../snapshot-format/objects.ts';
import { loadSystemCalls, type SystemCalls } from '../../../../sidecar/snapshots/system-calls.ts';
import { temporaryDirectory } from '../../../fixtures/store/temporary-home.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';
import { packOf } from '../../../fixtures/snapshots/publish-tree.ts';
import { LocalWorkspace } from './local-workspace.ts';

/** Longer than bytes of a small write may be on their way: what was written before is relied on then. */
const SETTLED_MS = 150;
const DESCRIBE = `find . -printf '%p %y %m %n %s %T@ %l\\n' | sort; find . -type f | sort | xargs -d '\\n' -r sha256sum`;
const TREE = `
  mkdir -p src/deep/deeper empty 'a name' closed; echo one > src/one; echo two > src/deep/two; echo three > src/deep/deeper/three
  chmod 640 src/one; chmod 4750 src/deep/two; : > src/nothing; head -c 3000000 /dev/urandom > src/deep/large; echo top > top
  truncate -s 2M 'a name/holes'; printf x | dd of='a name/holes' bs=1 seek=900000 conv=notrunc status=none
  ln src/one src/deep/linked; ln -s one src/link; mkfifo src/pipe; echo in > closed/in; chmod 500 closed; chmod 400 closed/in
  touch -d '2001-02-03 04:05:06.789' src/deep/two src/deep src/link -h
`;

/** Counts what is asked of the system. */
function counting(calls: Map<string, number>): (system: SystemCalls) => SystemCalls {
  const counted =
    <A extends unknown[], R>(name: string, call: (...args: A) => R) =>
    (...args: A): R => {
      calls.set(name, (calls.get(name) ?? 0) + 1);
      return call(...args);
    };
  return (system) => ({
    ...system,
    readDirents: counted('list', system.readDirents),
    statAt: counted('statAt', system.statAt),
  });
}

async function stored(store: MemoryStore, script: string): Promise<{ root: string; wanted: string }> {
  using source = await LocalWorkspace.open(temporaryDirectory(), store);
  source.runScript(script);
  const { root } = await source.scan();
  return { root, wanted: source.runScript(DESCRIBE) };
}

test('what was restored into an empty workspace is cached: the next scan reads no file of a folder, and asks nothing of the store', async () => {
  const store = new MemoryStore();
  const { root, wanted } = await stored(store, TREE);
  using fork = await LocalWorkspace.open(temporaryDirectory(), store);
  await fork.restore(root);
  expect(fork.runScript(DESCRIBE)).toBe(wanted);

  store.calls.clear();
  const scan = await fork.scan(root);
  expect(scan).toMatchObject({ root, complete: true, newObjects: 0 });
  // A file at the top got its place within the last tick of the clock; links, FIFOs and names of one file are looked at
  // again.
  expect(scan.changedBytes).toBe('top\n'.length + 2 * 'one\n'.length);
  expect(store.calls.get('read')).toBeUndefined();
  // What was read that soon after its time is read once more.
  await sleep(SETTLED_MS);
  expect(await fork.scan(root)).toMatchObject({ root, newObjects: 0 });
  expect(await fork.scan(root)).toMatchObject({ root, changedFiles: 0 });
});

test.each([
  ['another content of the same length, and the old time', "printf 'THREE\\n' > $f; touch -r ref $f"],
  ['another mode', 'chmod 600 $f'],
  ['another file in its place', 'cp $f new; rm $f; mv new $f'],
  ['an attribute', 'setfattr -n user.a -v b $f 2>/dev/null || chmod 600 $f'],
  ['gone', 'rm $f'],
])('whatever is done to such a file at once, the next look finds it: %s', async (_what, edit) => {
  const store = new MemoryStore();
  const { root } = await stored(store, TREE);
  using fork = await LocalWorkspace.open(temporaryDirectory(), store);
  await fork.restore(root);
  fork.runScript(`f=src/deep/deeper/three; touch -r $f ../ref; ln -s ../ref ref; ${edit}; rm ref`);
  const edited = fork.runScript(DESCRIBE);
  const scan = await fork.scan(root);
  expect(scan.root).not.toBe(root);

  using other = await LocalWorkspace.open(temporaryDirectory(), store);
  await other.restore(scan.root);
  expect(other.runScript(DESCRIBE)).toBe(edited);
});

test('folders that come back beside others are known, and asked of the store before they are relied on', async () => {
  const store = new MemoryStore();
  using workspace = await LocalWorkspace.open(temporaryDirectory(), store);
  workspace.runScript(TREE);
  const wanted = workspace.runScript(DESCRIBE);
  const { root } = await workspace.scan();
  workspace.runScript(
    'rm -r src/deep; echo beside > src/beside; mkdir other; echo x > other/x; touch empty; rm -r "a name"',
  );
  const undo = await workspace.scan(root);
  await workspace.restore(root, { scannedRoot: undo.root });
  expect(workspace.runScript(DESCRIBE)).toBe(wanted);
  const again = await workspace.scan(undo.root);
  expect(again).toMatchObject({ root, complete: true, newObjects: 0 });
  expect(again.changedBytes).toBeLessThan(100);

  // With a store that has lost what came back, it is read and sent.
  workspace.runScript('rm -r src/deep');
  const without = await workspace.scan(root);
  await workspace.restore(root, { scannedRoot: without.root });
  const kept = new MemoryStore();
  for (const pack of store.packs()) await kept.addPack(pack);
  const lost = [...store.objects].filter(([, { object }]) => object.length === 2 ** 20);
  expect(lost).toHaveLength(2);
  for (const [hash] of lost) store.objects.delete(hash);
  const healed = await workspace.scan(without.root);
  expect(healed.root).toBe(root);
  for (const [hash] of lost) expect(store.objects.has(hash)).toBe(true);
});

test('a tree that was just scanned is not scanned again, and another one is', async () => {
  const store = new MemoryStore();
  const calls = new Map<string, number>();
  using workspace = await LocalWorkspace.open(temporaryDirectory(), store, counting(calls));
  workspace.runScript(`for d in {1..20}; do mkdir $d; for f in {1..20}; do echo $d $f > $d/$f; done; done`);
  const wanted = workspace.runScript(DESCRIBE);
  const { root } = await workspace.scan();
  workspace.runScript('echo changed > 7/7; rm 8/8');
  const { root: scannedRoot } = await workspace.scan(root);

  calls.clear();
  await workspace.restore(root, { scannedRoot });
  expect([...calls]).toEqual([]);
  expect(workspace.runScript(DESCRIBE)).toBe(wanted);

  workspace.runScript('echo changed > 7/7; rm 8/8');
  await workspace.restore(root, { scannedRoot });
  expect(calls.get('list')).toBeGreaterThan(20);
  expect(workspace.runScript(DESCRIBE)).toBe(wanted);
});

test('folders within folders are restored with few descriptors, however deep, and scanned once', async () => {
  const store = new MemoryStore();
  const deep = `p=.; for i in {1..700}; do p=$p/d; done; mkdir -p $p; echo deep > $p/file; echo half > $(printf 'd/%.0s' {1..300})file`;
  const { root, wanted } = await stored(store, deep);
  using fork = await LocalWorkspace.open(temporaryDirectory(), store, (system) => ({
    ...system,
    openAt: (at, name, flags, mode) => {
      const fd = system.openAt(at, name, flags, mode);
      expect(fd).toBeLessThan(400);
      return fd;
    },
  }));
  await fork.restore(root);
  expect(fork.runScript(DESCRIBE)).toBe(wanted);
  expect(await fork.scan(root)).toMatchObject({ root, changedFiles: 0 });
  // In place, too.
  fork.runScript(
    `p=.; for i in {1..700}; do p=$p/d; done; echo other > $p/file; echo y > $(printf 'd/%.0s' {1..300})file`,
  );
  await fork.restore(root);
  expect(fork.runScript(DESCRIBE)).toBe(wanted);
  fork.runScript(`rm -r ${join('.', 'd')}`);
}, 60_000);

/** A store in which each object has a frame of its own. */
async function manyFrames(store: MemoryStore): Promise<MemoryStore> {
  const bodies = new Map<string, { kind: ObjectKind; body: Buffer }>();
  for (const [hex, { object }] of store.objects) {
    bodies.set(hex, { kind: object.kind, body: await store.read(Buffer.from(hex, 'hex'), object.kind) });
  }
  const apart = new MemoryStore();
  await apart.addPack(packOf(bodies, 1));
  return apart;
}

const MANY = `for d in {1..12}; do mkdir $d; for f in {1..30}; do yes "$d $f" | head -c 5000 > $d/$f; done; done`;

test('frames that are unpacked and checked in a thread of their own give what they have', async () => {
  const store = new MemoryStore();
  const { root, wanted } = await stored(store, MANY);
  const apart = await manyFrames(store);
  using fork = await LocalWorkspace.open(temporaryDirectory(), apart);
  const result = await fork.restore(root);
  expect(result).toMatchObject({ created: 12 * 31, bytes: 12 * 30 * 5000 });
  expect(fork.runScript(DESCRIBE)).toBe(wanted);
  expect(await fork.scan(root)).toMatchObject({ root, changedFiles: 0 });
}, 60_000);

test('and where one of them is damaged, nothing is restored', async () => {
  const store = new MemoryStore();
  const { root } = await stored(store, MANY);
  const apart = await manyFrames(store);
  const bodies = [...apart.objects].filter(([, { object }]) => object.length === 5000);
  // One that comes late: the thread has been started by then.
  for (const at of [bodies.length - 1, Math.floor(bodies.length / 2), 0]) {
    apart.damagedObject = bodies[at]?.[0] ?? null;
    using fork = await LocalWorkspace.open(temporaryDirectory(), apart);
    fork.runScript('echo there > there');
    const before = fork.runScript(DESCRIBE);
    await expect(fork.restore(root)).rejects.toMatchObject({
      code: 'snapshot_damaged',
      details: { object: apart.damagedObject },
    });
    expect(fork.runScript(DESCRIBE)).toBe(before);
    expect(fork.runScript('ls -A').trim()).toBe('there');
  }
}, 60_000);

test('a hole is one, also where the block of an attribute makes up for it', async () => {
  const store = new MemoryStore();
  using workspace = await LocalWorkspace.open(temporaryDirectory(), store);
  // A block of hole, a block of data, and one for the attribute.
  workspace.runScript('truncate -s 4096 file; head -c 900 /dev/urandom >> file; sync file');
  const system = await loadSystemCalls();
  const file = openSync(join(workspace.path, 'file'), 'r+');
  system?.setXattr(file, Buffer.from('user.long'), Buffer.alloc(900, 'x'));
  closeSync(file);
  const blocks = (): string => workspace.runScript('sync file; stat -c "%s %b" file');
  const before = blocks();
  const { root } = await workspace.scan();
  workspace.runScript('rm file');
  await workspace.restore(root);
  expect(blocks()).toBe(before);
});

test('a file of several names is linked from a folder that nobody may enter, which is lent for that', async () => {
  const below = temporaryDirectory();
  const modes: number[] = [];
  const modeOfClosed = (): number => statSync(join(below, 'workspace', 'closed')).mode & 0o777;
  using workspace = await LocalWorkspace.open(below, new MemoryStore(), (system) => ({
    ...system,
    linkAt: (from, old, to, name) => {
      modes.push(modeOfClosed());
      system.linkAt(from, old, to, name);
    },
  }));
  workspace.runScript(
    'mkdir -p closed/deep open; cd closed/deep; echo one > one; ln one two; ln one ../../open/three; chmod 000 ..',
  );
  const { root } = await workspace.scan();
  workspace.runScript('rm open/three');
  await workspace.restore(root);
  // First the name in the staging folder, then the one that was missing: a superuser may enter whatever there is.
  expect(modes[0]).toBe(0o100);
  expect(modeOfClosed()).toBe(0);
  expect(readdirSync(join(below, 'control', 'snapshots'))).toEqual([]);
  workspace.runScript('chmod 700 closed');
  expect(workspace.runScript('stat -c %i closed/deep/one open/three | uniq | wc -l').trim()).toBe('1');
});
