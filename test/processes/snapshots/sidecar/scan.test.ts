import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { HoldfastError } from '../../../../protocol/errors.ts';
import { SOAK, soakCount } from '../../../setup/run-length.ts';
import { temporaryDirectory } from '../../../fixtures/store/temporary-home.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';
import { LocalWorkspace } from './local-workspace.ts';

vi.setConfig({ testTimeout: 60_000 });

/** Longer than bytes may be on their way: what was written before is relied on then. */
const SETTLED_MS = 150;

async function opened(): Promise<{
  workspace: LocalWorkspace;
  store: MemoryStore;
  at: (name: string) => string;
}> {
  const store = new MemoryStore();
  const workspace = await LocalWorkspace.open(temporaryDirectory(), store);
  workspace.runScript(
    'mkdir -p a/b c; for n in 1 2 3 4 5; do echo file $n > a/b/$n; done; echo x > c/x; ln c/x c/y',
  );
  await sleep(SETTLED_MS);
  return { workspace, store, at: (name) => join(workspace.path, name) };
}

test('only what has changed is read, and only that is sent', async () => {
  const { workspace, store, at } = await opened();
  const first = await workspace.scan();
  expect(first).toMatchObject({
    complete: true,
    files: 7,
    directories: 3,
    bytes: 5 * 7 + 2,
    changedFiles: 7,
    changedDuringScan: false,
  });
  expect(first.newObjects).toBe(store.objects.size);
  await sleep(SETTLED_MS);
  const calls = new Map(store.calls);
  expect(await workspace.scan(first.root)).toMatchObject({
    root: first.root,
    changedFiles: 0,
    newObjects: 0,
    newBytes: 0,
  });
  expect(store.calls.get('put')).toBe(calls.get('put'));

  // The same size and the time put back: only the change time tells.
  const { mtime, atime } = statSync(at('a/b/3'));
  writeFileSync(at('a/b/3'), 'FILE 3\n');
  utimesSync(at('a/b/3'), atime, mtime);
  const second = await workspace.scan(first.root);
  expect(second).toMatchObject({ changedFiles: 1, changedBytes: 7 });
  // The content, two directories above it, the top and the root.
  expect(second.newObjects).toBe(5);
  expect(second.root).not.toBe(first.root);
});

test('a file that is changed twice within one tick of the clock is not missed', async () => {
  const { workspace, at } = await opened();
  let base = (await workspace.scan()).root;
  for (let round = 0; round < 40; round += 1) {
    const text = String(round).padStart(4);
    writeFileSync(at('a/b/1'), `${text}-one\n`);
    await workspace.scan(base);
    writeFileSync(at('a/b/1'), `${text}-two\n`);
    const late = await workspace.scan(base);
    const other = await LocalWorkspace.open(join(workspace.path, '..'), new MemoryStore());
    expect((await other.scan()).root, `round ${round}`).toBe(late.root);
    other[Symbol.dispose]();
    base = late.root;
  }
});

test('what did not change is the same tree without a word to the store, and whatever does change makes another one', async () => {
  const { workspace, store } = await opened();
  const { root } = await workspace.scan();
  await sleep(SETTLED_MS);
  let settled = await workspace.scan(root);
  for (const change of [
    'echo more >>c/x',
    'chmod 600 a/b/2',
    'mkdir new',
    'ln -s a link',
    'mv a/b/4 a/b/five',
    'touch -d 2001-01-01 a',
    'rm c/y',
  ]) {
    store.calls.clear();
    const again = await workspace.scan(settled.root);
    expect(again, change).toMatchObject({
      root: settled.root,
      changedFiles: 0,
      newObjects: 0,
      changedDuringScan: false,
    });
    expect([...store.calls.keys()], change).toEqual([]);
    workspace.runScript(change);
    const { root: other } = await workspace.scan(settled.root);
    expect(other, change).not.toBe(settled.root);
    await sleep(SETTLED_MS);
    settled = await workspace.scan(other);
  }
});

test('over its budget a scan says so, and what it has read is not read again', async () => {
  const { workspace, at } = await opened();
  const { root } = await workspace.scan();
  writeFileSync(at('one'), Buffer.alloc(3000, 1));
  writeFileSync(at('two'), Buffer.alloc(3000, 2));
  await sleep(SETTLED_MS);
  const cut = await workspace.scan(root, { budgetBytes: 4000 });
  expect(cut.complete).toBe(false);
  expect(cut.changedBytes).toBe(3000);
  const rest = await workspace.scan(root, { budgetBytes: 4000 });
  expect(rest).toMatchObject({ complete: true, changedBytes: 3000 });
  const fresh = await LocalWorkspace.open(join(workspace.path, '..'), new MemoryStore());
  expect((await fresh.scan()).root).toBe(rest.root);
});

test('of what is compressed ahead nothing is missing where the store has a part of it, and nothing is sent twice', async () => {
  const { workspace, store, at } = await opened();
  const content = (byte: number): Buffer => Buffer.alloc(100_000, byte);
  writeFileSync(at('large'), content(1));
  const first = await workspace.scan();
  writeFileSync(at('large'), content(2));
  const second = await workspace.scan(first.root);
  await sleep(SETTLED_MS);
  // The one is in the store, and the other one is not.
  writeFileSync(at('large'), content(1));
  writeFileSync(at('more'), content(3));
  const before = store.objects.size;
  const third = await workspace.scan(second.root);
  // A blob, the tree with its name, and the root.
  expect(third.newObjects).toBe(3);
  expect(store.objects.size).toBe(before + 3);
  workspace.runScript('rm -rf ./*');
  await workspace.restore(third.root);
  const other = await LocalWorkspace.open(join(workspace.path, '..'), new MemoryStore());
  expect((await other.scan()).root).toBe(third.root);
  other[Symbol.dispose]();
});

test('what was sent and then not kept is sent again', async () => {
  const { workspace, store, at } = await opened();
  const first = await workspace.scan();
  const kept = new Map(store.objects);
  writeFileSync(at('a/b/2'), 'something new');
  writeFileSync(at('big'), Buffer.alloc(20 * 2 ** 20, 7));
  await sleep(SETTLED_MS);
  const lost = await workspace.scan(first.root);
  // The supervisor did not publish it: with the old base, all of it comes again.
  store.objects.clear();
  for (const [hash, object] of kept) store.objects.set(hash, object);
  const again = await workspace.scan(first.root);
  expect(again.root).toBe(lost.root);
  workspace.runScript('rm -rf a big; echo z > c/x');
  await workspace.restore(again.root);
  expect(workspace.runScript('cat a/b/2')).toBe('something new');
  // Another base than the last two: the store is asked for everything.
  store.objects.delete([...store.objects.keys()][3] ?? '');
  const other = await workspace.scan('f'.repeat(64));
  workspace.runScript('rm -rf a');
  await workspace.restore(other.root);
  expect(workspace.runScript('cat a/b/2 a/b/1')).toBe('something newfile 1\n');
});

test('where the store has found damage, all that is known is asked for, and what it lacks is sent again', async () => {
  const store = new MemoryStore();
  // Long after the files were written: none is read again for that it was just before.
  using workspace = await LocalWorkspace.open(temporaryDirectory(), store, (system) => ({
    ...system,
    fileClock: () => system.fileClock() + 5_000_000_000n,
  }));
  workspace.runScript('mkdir a b; echo one > a/one; echo two > b/two; head -c 9000000 /dev/urandom > large');
  const { root } = await workspace.scan();
  expect(await workspace.scan(root)).toMatchObject({ root, newObjects: 0 });
  const all = [...store.objects.keys()].sort();
  for (const hash of all) store.objects.delete(hash);
  // Without a doubt nothing is asked: the base says that it is there.
  expect(await workspace.scan(root)).toMatchObject({ root, newObjects: 0 });
  expect(await workspace.scan(root, { isBaseSuspect: true })).toMatchObject({ root });
  expect([...store.objects.keys()].sort()).toEqual(all);
  expect(await workspace.scan(root)).toMatchObject({ root, newObjects: 0, changedFiles: 0 });
});

test('a scan during which something is written says that it is not of one moment; frozen, that is an error', async () => {
  const { workspace, store, at } = await opened();
  // More than is read ahead of what is sent.
  const incompressible = randomBytes(48 * 2 ** 20);
  writeFileSync(at('big'), incompressible);
  await sleep(SETTLED_MS);
  let writes = 0;
  // While the file is read, after each few MiB of it.
  store.beforeCall = (call) => {
    if (call === 'put') appendFileSync(at('big'), String((writes += 1)));
    return Promise.resolve();
  };
  expect(await workspace.scan(null)).toMatchObject({ complete: true, changedDuringScan: true });
  expect(writes).toBeGreaterThan(0);
  writeFileSync(at('big'), incompressible);
  const restless = await LocalWorkspace.open(join(workspace.path, '..'), store, undefined, () => {
    appendFileSync(at('big'), String((writes += 1)));
  });
  expect(await restless.scan(null)).toMatchObject({ complete: true, changedDuringScan: true });
  await expect(restless.scan(null, { frozen: true })).rejects.toMatchObject({
    code: 'file_unavailable',
    why: expect.stringContaining('/workspace/big') as string,
  });
  store.beforeCall = () => Promise.resolve();
  await sleep(SETTLED_MS);
  const { root, changedDuringScan } = await workspace.scan();
  expect(changedDuringScan).toBe(false);

  // What is written to what was seen already need not be known; what is new when it is seen must be.
  let noticed = 0;
  for (let round = 0; round < soakCount(10, 40) && (SOAK || noticed === 0); round += 1) {
    writeFileSync(at('big'), randomBytes(48 * 2 ** 20));
    await sleep(SETTLED_MS);
    const names = ['a/b/1', 'a/b/4', 'c/x', 'later'];
    store.beforeCall = (call) => {
      if (call === 'put') for (const name of names.splice(0)) writeFileSync(at(name), `round ${round}`);
      return Promise.resolve();
    };
    const taken = await workspace.scan(root);
    store.beforeCall = () => Promise.resolve();
    const other = await LocalWorkspace.open(temporaryDirectory(), store);
    await other.restore(taken.root);
    const seesNew = other.runScript(`grep -rlx 'round ${round}' . || true`).trim() !== '';
    if (seesNew) expect(taken.changedDuringScan, `round ${round}`).toBe(true);
    noticed += seesNew ? 1 : 0;
  }
  // Or this proves nothing.
  expect(noticed).toBeGreaterThan(0);
});

test('what was written just before a scan does not count as written meanwhile: no agent is frozen for it', async () => {
  const { workspace, at } = await opened();
  let root: string | null = null;
  for (let round = 0; round < 20; round += 1) {
    writeFileSync(at('last'), `round ${round}`);
    const taken = await workspace.scan(root);
    expect(taken, `round ${round}`).toMatchObject({ changedDuringScan: false });
    ({ root } = taken);
  }
});

test('a write within the timestamp granularity of a scan is in its tree', async () => {
  const { workspace, store, at } = await opened();
  let act: (() => void) | null = null;
  const hooked = await LocalWorkspace.open(join(workspace.path, '..'), store, (system) => ({
    ...system,
    statAt: (directory, name) => {
      const isThere = system.statAt(directory, name);
      const now = act;
      act = null;
      now?.();
      return isThere;
    },
  }));
  let { root } = await hooked.scan();
  // However long it takes on a busy machine: no time tells that something was written after the begin.
  const now = Date.now.bind(Date);
  vi.spyOn(Date, 'now').mockImplementation(() => now() + 10_000);
  for (let round = 0; round < 8; round += 1) {
    await sleep(SETTLED_MS);
    root = (await hooked.scan(root)).root;
    const names = readdirSync(at('a/b'));
    for (const name of names) writeFileSync(at(`a/b/${name}`), `before ${round}`);
    // The first name that is looked at was seen when it is written to again.
    act = () => {
      for (const name of names) writeFileSync(at(`a/b/${name}`), `meanwhile ${round}`);
    };
    const taken = await hooked.scan(root);
    expect(act).toBe(null);
    expect(taken.changedDuringScan, `round ${round}`).toBe(false);
    using fresh = await LocalWorkspace.open(join(workspace.path, '..'), new MemoryStore());
    expect((await fresh.scan()).root, `round ${round}`).toBe(taken.root);
    ({ root } = taken);
  }
});

test('a cancelled scan or restore changes nothing, and the next one is right', async () => {
  const store = new MemoryStore();
  let left = Number.POSITIVE_INFINITY;
  const check = (): void => {
    left -= 1;
    if (left < 0) throw new HoldfastError('cancelled', 'enough');
  };
  const workspace = await LocalWorkspace.open(temporaryDirectory(), store, undefined, check);
  workspace.runScript(
    'mkdir -p a/b c/d/e; for n in $(seq 40); do head -c 3000 /dev/urandom > a/b/$n; done; cp a/b/1 c/d/e',
  );
  const describe = (): string =>
    workspace.runScript(`find . -printf '%p %m %T@ %s\\n' | sort; cat a/b/* | sha256sum`);
  const { root } = await workspace.scan();
  workspace.runScript('for n in $(seq 20); do echo $n > a/b/$n; done; rm -r c; mkdir c; touch c/new');
  const edited = describe();
  for (let after = 0; after < 12; after += 1) {
    left = after;
    await expect(workspace.restore(root)).rejects.toMatchObject({ code: 'cancelled' });
    expect(describe(), `restore after ${after}`).toBe(edited);
    left = after;
    await workspace.scan(root).catch((error: unknown) => expect(error).toMatchObject({ code: 'cancelled' }));
    left = Number.POSITIVE_INFINITY;
    const whole = await LocalWorkspace.open(join(workspace.path, '..'), new MemoryStore());
    expect((await workspace.scan(root)).root, `scan after ${after}`).toBe((await whole.scan()).root);
  }
});

test('one path is restored, and nothing beside it', async () => {
  const { workspace, at } = await opened();
  workspace.runScript('touch -d 2003-03-03 a/b a c .');
  const { root } = await workspace.scan();
  workspace.runScript(
    'echo other > a/b/1; echo other > c/x; rm a/b/2; echo new > a/b/new; touch -d 2004-04-04 .',
  );
  const top = statSync(at('.')).mtimeMs;

  expect(await workspace.restore(root, { path: '/workspace/a/b/2' })).toMatchObject({
    created: 1,
    removed: 0,
  });
  expect(workspace.runScript('cat a/b/1 a/b/2')).toBe('other\nfile 2\n');
  expect(readdirSync(at('a/b'))).toContain('new');
  expect(statSync(at('.')).mtimeMs).toBe(top);

  expect(await workspace.restore(root, { path: '/workspace/a' })).toMatchObject({ replaced: 1, removed: 1 });
  expect(workspace.runScript('cat a/b/1 c/x')).toBe('file 1\nother\n');
  expect(statSync(at('a')).mtime.getFullYear()).toBe(2003);

  workspace.runScript('rm -r a');
  expect(await workspace.restore(root, { path: '/workspace/a/b/5' })).toMatchObject({ created: 3 });
  expect(readdirSync(at('a/b'))).toEqual(['5']);

  for (const path of ['/workspace/none', '/workspace/a/b/5/x', '/workspace/a/none/x']) {
    await expect(workspace.restore(root, { path }), path).rejects.toMatchObject({ code: 'file_not_found' });
  }
  workspace.runScript('rm -r a');
  symlinkSync('c', at('a'));
  await expect(workspace.restore(root, { path: '/workspace/a/b/5' })).rejects.toMatchObject({
    code: 'file_not_a_directory',
  });
  expect(readdirSync(at('c')).sort()).toEqual(['x', 'y']);
});

test('a renamed folder is known again', async () => {
  const { workspace } = await opened();
  const { root } = await workspace.scan();
  await sleep(SETTLED_MS);
  await workspace.scan(root);
  workspace.runScript('mv a z; mkdir a; mv z a/inner; ln c/x a/inner/b/link');
  const after = await workspace.scan(root);
  // Of five files below it none is read again; three are names of one file that has got another name.
  expect(after.changedFiles).toBe(3);
  const fresh = await LocalWorkspace.open(join(workspace.path, '..'), new MemoryStore());
  expect((await fresh.scan()).root).toBe(after.root);
});

test('bytes that come later than the time of their write are in the next tree, and what did not change is no change', async () => {
  const store = new MemoryStore();
  // In memory: a disk that wrote the page back just then would have the next write leave a time.
  const below = mkdtempSync('/dev/shm/holdfast-');
  mkdirSync(join(below, 'workspace'));
  const path = join(below, 'workspace', 'file');
  writeFileSync(path, Buffer.alloc(4096, 'x'));
  writeFileSync(join(below, 'workspace', 'other'), 'stays');
  // Through a page that was written to already a byte leaves no time: as it is with one that a write brings late.
  const program = [
    'import mmap, sys',
    `file = open(${JSON.stringify(path)}, 'r+b')`,
    'page = mmap.mmap(file.fileno(), 4096)',
    'page[0:1] = b"a"',
    'print("ready", flush=True)',
    'sys.stdin.readline()',
    'page[1:2] = b"b"',
    'print("done", flush=True)',
    'sys.stdin.readline()',
  ].join('\n');
  const writer = spawn('python3', ['-c', program], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => writer.once('exit', resolve));
  // Whole lines: an unbuffered Python writes the end of a line by itself.
  const lines = createInterface(writer.stdout);
  try {
    await once(lines, 'line');
    const { ctimeNs } = statSync(path, { bigint: true });
    let clock = ctimeNs + 50_000_000n;
    using workspace = await LocalWorkspace.open(below, store, (system) => ({
      ...system,
      fileClock: () => (clock += 1000n),
    }));
    const first = await workspace.scan();
    const written = once(lines, 'line');
    writer.stdin.write('\n');
    await written;
    expect(statSync(path, { bigint: true }).ctimeNs).toBe(ctimeNs);
    const second = await workspace.scan(first.root);
    expect(second).toMatchObject({ changedFiles: 1, changedBytes: 4096 });
    using other = await LocalWorkspace.open(below, new MemoryStore());
    expect((await other.scan()).root).toBe(second.root);
    // It is looked at again, and nothing comes of it; a while later it is not looked at any more.
    clock += 5_000_000_000n;
    expect(await workspace.scan(second.root)).toMatchObject({ root: second.root, changedFiles: 0 });
    store.calls.clear();
    expect(await workspace.scan(second.root)).toMatchObject({ root: second.root, changedFiles: 0 });
    expect([...store.calls.keys()]).toEqual([]);
  } finally {
    writer.stdin.end();
    await ended;
    rmSync(below, { recursive: true, force: true });
  }
});
