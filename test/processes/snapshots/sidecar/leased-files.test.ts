import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { ScanResult } from '../../../../snapshot-format/sidecar-calls.ts';
import { parseHash } from '../../../../snapshot-format/objects.ts';
import { Comparison } from '../../../../supervisor/snapshots/compare/comparison.ts';
import { SnapshotFiles } from '../../../../supervisor/snapshots/files/snapshot-files.ts';
import { rejectedError, temporaryDirectory } from '../../../fixtures/store/temporary-home.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';
import { LocalWorkspace } from './local-workspace.ts';

vi.setConfig({ testTimeout: 60_000 });

/** Holds leases on files. `polite`: gives them up when the kernel asks for it; else it takes them again, every few milliseconds. */
const HOLDER = `
import fcntl, os, signal, sys, time
polite = sys.argv[1] == 'polite'
signal.signal(signal.SIGIO, signal.SIG_IGN)
fds = [os.open(path, os.O_RDWR) for path in sys.argv[2:]]
for fd in fds: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
while True:
    for fd in fds:
        if not polite:
            try: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError: pass
        elif fcntl.fcntl(fd, fcntl.F_GETLEASE) not in (fcntl.F_WRLCK, fcntl.F_UNLCK):
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    time.sleep(0.005)
`;

async function hold(how: 'polite' | 'stubborn', ...paths: string[]): Promise<ChildProcess> {
  const holder = spawn('python3', ['-c', HOLDER, how, ...paths], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void holder.kill('SIGKILL'));
  await once(holder.stdout, 'data');
  return holder;
}

async function release(holder: ChildProcess): Promise<void> {
  const gone = once(holder, 'exit');
  holder.kill('SIGKILL');
  await gone;
}

interface Fixture {
  readonly store: MemoryStore;
  readonly workspace: LocalWorkspace;
  readonly at: (name: string) => string;
  readonly text: (name: string) => string;
}

async function opened(): Promise<Fixture> {
  const store = new MemoryStore();
  const workspace = await LocalWorkspace.open(temporaryDirectory(), store);
  const at = (name: string): string => join(workspace.path, name);
  mkdirSync(at('a'));
  for (const name of ['a/leased', 'a/beside', 'top']) writeFileSync(at(name), `first ${name}`);
  return { store, workspace, at, text: (name) => readFileSync(at(name), 'utf8') };
}

/** A scan while somebody holds a/leased. */
async function incomplete({ workspace, at }: Fixture): Promise<ScanResult> {
  const holder = await hold('stubborn', at('a/leased'));
  const scan = await workspace.scan();
  await release(holder);
  return scan;
}

test('a program that gives its lease up is waited for', async () => {
  const { workspace, at } = await opened();
  await hold('polite', at('top'));
  expect(await workspace.scan()).toMatchObject({ complete: true, missing: 0, missingPaths: [] });
});

test('a file that cannot be read is named, the rest is in the tree, and the next scan reads it', async () => {
  const fixture = await opened();
  const { workspace, store } = fixture;
  const first = await incomplete(fixture);
  expect(first).toMatchObject({
    complete: true,
    files: 3,
    missing: 1,
    missingPaths: ['/workspace/a/leased'],
  });
  const files = new SnapshotFiles(store, parseHash(first.root));
  expect((await files.list('/workspace/a', {})).entries.map(({ name }) => name)).toEqual(['beside']);
  expect((await files.read('/workspace/top', {})).bytes.toString()).toBe('first top');
  for (const act of [files.read('/workspace/a/leased', {}), files.stat('/workspace/a/leased', {})])
    expect((await rejectedError(act)).code).toBe('file_unavailable');
  const second = await workspace.scan(first.root);
  expect(second).toMatchObject({ complete: true, missing: 0 });
  expect(second.root).not.toBe(first.root);
});

test('a restore leaves what the snapshot lacks as it is', async () => {
  const fixture = await opened();
  const { workspace, at, text } = fixture;
  const { root } = await incomplete(fixture);
  for (const name of ['a/leased', 'a/beside', 'top']) writeFileSync(at(name), `second ${name}`);
  writeFileSync(at('a/new'), 'new');
  expect((await rejectedError(workspace.restore(root, { path: '/workspace/a/leased' }))).code).toBe(
    'file_unavailable',
  );
  expect(await workspace.restore(root, { dryRun: true })).toMatchObject({ replaced: 2, removed: 1 });
  expect(await workspace.restore(root)).toMatchObject({ replaced: 2, removed: 1 });
  expect([text('a/leased'), text('a/beside'), text('top')]).toEqual([
    'second a/leased',
    'first a/beside',
    'first top',
  ]);
  expect(workspace.runScript('ls a')).toBe('beside\nleased\n');
});

test('a workspace that begins with an incomplete snapshot has the rest, and its next scan has what is there', async () => {
  const fixture = await opened();
  const { store } = fixture;
  const { root } = await incomplete(fixture);
  const fork = await LocalWorkspace.open(temporaryDirectory(), store);
  expect(await fork.restore(root, { dryRun: true })).toMatchObject({ created: 3 });
  expect(await fork.restore(root)).toMatchObject({ created: 3 });
  expect(fork.runScript('find . -type f | sort')).toBe('./a/beside\n./top\n');
  const next = await fork.scan(root);
  expect(next).toMatchObject({ complete: true, files: 2, missing: 0 });
  expect(next.root).not.toBe(root);
  const right = await LocalWorkspace.open(join(fork.path, '..'), store);
  expect((await right.scan()).root).toBe(next.root);
});

test('a comparison does not take a missing file for a deleted or a new one', async () => {
  const fixture = await opened();
  const { workspace, store, at } = fixture;
  const whole = await workspace.scan();
  writeFileSync(at('a/leased'), 'changed');
  writeFileSync(at('top'), 'changed');
  const lacking = await incomplete(fixture);
  expect(lacking.missing).toBe(1);
  for (const [before, after] of [
    [whole, lacking],
    [lacking, whole],
  ] as const) {
    const sides = { before: parseHash(before.root), after: parseHash(after.root), path: [] };
    const { changes } = await (await Comparison.create(store, sides)).page(null, 100);
    expect(changes.map(({ kind, path }) => `${kind} ${path}`)).toEqual(['modified /workspace/top']);
  }
});

test('what is read of a workspace does not forge the mark of a missing file', async () => {
  const { workspace, store } = await opened();
  workspace.runScript(
    `python3 -c "import os; os.setxattr('top', 'user.holdfast.missing', b''); os.truncate('top', 0); os.chmod('top', 0); os.utime('top', (0, 0))"`,
  );
  const { root, missing } = await workspace.scan();
  expect(missing).toBe(0);
  workspace.runScript('rm -f top');
  await workspace.restore(root);
  expect(workspace.runScript('stat -c %a-%s top')).toBe('0-0\n');
  expect((await new SnapshotFiles(store, parseHash(root)).list('/workspace', {})).entries).toHaveLength(2);
});

test('a leased file that denies its owner to read it does not keep the scan from being of one moment', async () => {
  const { workspace, at } = await opened();
  await workspace.scan();
  const holder = await hold('stubborn', at('top'));
  workspace.runScript('chmod 000 top');
  const scan = await workspace.scan();
  expect(scan).toMatchObject({ complete: true, changedDuringScan: false, missing: 1 });
  await release(holder);
});
