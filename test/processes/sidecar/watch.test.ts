import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Directory } from '../../../sidecar/files/directory.ts';
import { WorkspaceFiles } from '../../../sidecar/files/workspace-files.ts';
import { compileExcludes } from '../../../sidecar/watch/excludes.ts';
import { PendingChanges } from '../../../sidecar/watch/pending-changes.ts';
import { ConnectionWatches, WatchedTrees, type WatchRequest } from '../../../sidecar/watch/watches.ts';

const never = new AbortController().signal;

let root: string;
let workspace: string;
let files: WorkspaceFiles;
let trees: WatchedTrees;
let watches: ConnectionWatches;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'holdfast-watch-'));
  workspace = join(root, 'workspace');
  mkdirSync(workspace);
  mkdirSync(join(root, 'control'));
  files = new WorkspaceFiles({ workspace, control: join(root, 'control') });
  trees = new WatchedTrees(files);
  watches = new ConnectionWatches(trees);
});
afterEach(() => {
  watches.close();
  files.close();
  execFileSync('rm', ['-rf', root]);
});

const all = (path = '/workspace', excludes: string[] = []): WatchRequest => ({
  path,
  recursive: true,
  excludes,
});

/** Everything that is told until nothing more comes for a while. */
async function heard(watch: string, on = watches, quietMs = 150): Promise<string[]> {
  const told = new Map<string, string>();
  let overflow = false;
  // Twice: after a time in which this process did not run, its timers come before its news.
  for (let quiet = 0; quiet < 2;) {
    const batch = await on.next(watch, quietMs, never);
    quiet = batch.changes.length === 0 && !batch.overflow ? quiet + 1 : 0;
    overflow ||= batch.overflow;
    for (const { path, kind } of batch.changes) told.set(path, kind);
  }
  return [...told]
    .map(([path, kind]) => `${kind} ${path}`)
    .concat(overflow ? ['overflow'] : [])
    .sort();
}

describe('watching', () => {
  test('created, changed, renamed and deleted entries are reported, also in new folders', async () => {
    mkdirSync(join(workspace, 'old'));
    writeFileSync(join(workspace, 'old/there'), '1');
    writeFileSync(join(workspace, 'goes'), '1');
    const { watch, mode } = await watches.open(all());
    expect(mode).toBe('inotify');
    writeFileSync(join(workspace, 'old/there'), '22');
    renameSync(join(workspace, 'goes'), join(workspace, 'old/went'));
    mkdirSync(join(workspace, 'new/deep/er'), { recursive: true });
    writeFileSync(join(workspace, 'new/deep/er/file'), '1');
    expect(await heard(watch)).toEqual([
      'changed /workspace/old/there',
      'created /workspace/new',
      'created /workspace/new/deep',
      'created /workspace/new/deep/er',
      'created /workspace/new/deep/er/file',
      'created /workspace/old/went',
      'deleted /workspace/goes',
    ]);
    // What was made after the watch began is watched too.
    writeFileSync(join(workspace, 'new/deep/er/file'), '22');
    expect(await heard(watch)).toEqual(['changed /workspace/new/deep/er/file']);
    renameSync(join(workspace, 'new/deep'), join(workspace, 'old/deep'));
    expect(await heard(watch)).toEqual([
      'created /workspace/old/deep',
      'created /workspace/old/deep/er',
      'created /workspace/old/deep/er/file',
      'deleted /workspace/new/deep',
    ]);
    unlinkSync(join(workspace, 'old/deep/er/file'));
    expect(await heard(watch)).toEqual(['deleted /workspace/old/deep/er/file']);
  });

  test('changes without a pause are reported while they continue', async () => {
    writeFileSync(join(workspace, 'busy'), '');
    const { watch } = await watches.open(all());
    let batches = 0;
    const until = performance.now() + 10_000;
    const goesOn = (): boolean => batches < 5 && performance.now() < until;
    const listening = (async () => {
      while (goesOn()) if ((await watches.next(watch, 100, never)).changes.length > 0) batches += 1;
    })();
    while (goesOn()) {
      writeFileSync(join(workspace, 'busy'), String(performance.now()));
      await sleep(2);
    }
    await listening;
    expect(batches).toBe(5);
  });

  test('excluded folders are not read', async () => {
    mkdirSync(join(workspace, 'a/node_modules/x'), { recursive: true });
    const { watch } = await watches.open(all('/workspace', ['**/node_modules/**']));
    writeFileSync(join(workspace, 'a/node_modules/x/file'), '1');
    writeFileSync(join(workspace, 'a/node_modules/file'), '1');
    mkdirSync(join(workspace, 'node_modules/y'), { recursive: true });
    writeFileSync(join(workspace, 'a/seen'), '1');
    expect(await heard(watch)).toEqual(['created /workspace/a/seen']);
  });

  test('names that are not UTF-8, or look like our temporary ones, are reported', async () => {
    const { watch } = await watches.open(all());
    writeFileSync(Buffer.concat([Buffer.from(`${workspace}/x`), Buffer.from([0xff])]), '1');
    const { temporaryEntries } = files;
    const [ours, gone] = [temporaryEntries.newName('restore'), temporaryEntries.newName('write')];
    {
      using folder = Directory.open(workspace);
      temporaryEntries.register(ours, folder);
      temporaryEntries.register(gone, folder);
    }
    mkdirSync(join(workspace, ours.toString()));
    writeFileSync(join(workspace, ours.toString(), 'in it'), '1');
    writeFileSync(join(workspace, gone.toString()), '1');
    rmSync(join(workspace, gone.toString()));
    temporaryEntries.unregister(gone);
    writeFileSync(join(workspace, '.holdfast-write-1'), '1');
    writeFileSync(join(workspace, '-rf\n'), '1');
    expect(await heard(watch)).toEqual([
      'created /workspace/-rf\n',
      'created /workspace/.holdfast-write-1',
      'created /workspace/x\u241bff',
    ]);
  });

  test('a single file, and a folder without its subfolders, can be watched', async () => {
    writeFileSync(join(workspace, 'one'), '1');
    mkdirSync(join(workspace, 'sub'));
    const one = await watches.open(all('/workspace/one'));
    const flat = await watches.open({ path: '/workspace', recursive: false, excludes: [] });
    writeFileSync(join(workspace, 'one'), '22');
    writeFileSync(join(workspace, 'two'), '1');
    writeFileSync(join(workspace, 'sub/three'), '1');
    expect(await heard(one.watch)).toEqual(['changed /workspace/one']);
    expect(await heard(flat.watch)).toEqual(['changed /workspace/one', 'created /workspace/two']);
  });

  test('no link is followed, and nothing outside is reported', async () => {
    mkdirSync(join(root, 'outside/inner'), { recursive: true });
    symlinkSync(join(root, 'outside'), join(workspace, 'link'));
    symlinkSync('.', join(workspace, 'loop'));
    const { watch } = await watches.open(all());
    writeFileSync(join(root, 'outside/secret'), '1');
    writeFileSync(join(workspace, 'mine'), '1');
    expect(await heard(watch)).toEqual(['created /workspace/mine']);
    await expect(watches.open(all('/workspace/link'))).rejects.toMatchObject({ code: 'file_not_found' });
  });

  test('a folder that keeps swapping places with a link to the outside reveals nothing of it', async () => {
    mkdirSync(join(root, 'outside/inner'), { recursive: true });
    mkdirSync(join(workspace, 'swap/inner'), { recursive: true });
    const { watch } = await watches.open(all());
    const told: string[] = [];
    for (let round = 0; round < 200; round += 1) {
      renameSync(join(workspace, 'swap'), join(workspace, 'aside'));
      symlinkSync(join(root, 'outside'), join(workspace, 'swap'));
      writeFileSync(join(root, 'outside/inner/secret'), String(round));
      if (round % 20 === 0) await sleep(30);
      unlinkSync(join(workspace, 'swap'));
      renameSync(join(workspace, 'aside'), join(workspace, 'swap'));
    }
    told.push(...(await heard(watch)));
    expect(told.filter((line) => line.includes('secret'))).toEqual([]);
    writeFileSync(join(workspace, 'swap/inner/mine'), '1');
    expect(await heard(watch)).toContain('created /workspace/swap/inner/mine');
  });

  test('without inotify watches the tree is polled, and its mode says so', async () => {
    trees = new WatchedTrees(files, { limits: { watches: 1, names: 1000, folders: 100 }, pollMs: 30 });
    watches = new ConnectionWatches(trees);
    mkdirSync(join(workspace, 'sub/deep'), { recursive: true });
    writeFileSync(join(workspace, 'sub/deep/there'), '1');
    const { watch, mode } = await watches.open(all());
    expect(mode).toBe('polling');
    writeFileSync(join(workspace, 'sub/deep/there'), '22');
    writeFileSync(join(workspace, 'sub/new'), '1');
    mkdirSync(join(workspace, 'sub/folder'));
    writeFileSync(join(workspace, 'sub/folder/inside'), '1');
    expect(await heard(watch)).toEqual([
      'changed /workspace/sub/deep/there',
      'created /workspace/sub/folder',
      'created /workspace/sub/folder/inside',
      'created /workspace/sub/new',
    ]);
    rmSync(join(workspace, 'sub/folder'), { recursive: true });
    unlinkSync(join(workspace, 'sub/deep/there'));
    expect(await heard(watch)).toEqual([
      'deleted /workspace/sub/deep/there',
      'deleted /workspace/sub/folder',
    ]);
  });

  test('a tree beyond the budget is polled, and stays within the limits', async () => {
    const limits = { watches: 20, names: 50, folders: 30 };
    trees = new WatchedTrees(files, { limits, pollMs: 30 });
    watches = new ConnectionWatches(trees);
    for (let n = 0; n < 100; n += 1) mkdirSync(join(workspace, `d${String(n)}`));
    const { watch, mode } = await watches.open(all());
    expect(mode).toBe('polling');
    writeFileSync(join(workspace, 'seen'), '1');
    expect(await heard(watch)).toContain('created /workspace/seen');
  });

  test(
    'a flood of changes is one overflow, and later changes are reported',
    { timeout: 120_000 },
    async () => {
      const { watch } = await watches.open(all());
      for (let n = 0; n < 6000; n += 1) writeFileSync(join(workspace, `f${String(n)}`), '');
      // Waits for the whole batch: a reader that takes a part of it in between may keep up.
      const { overflow } = await watches.next(watch, 60_000, never);
      expect(overflow).toBe(true);
      await heard(watch);
      writeFileSync(join(workspace, 'after'), '1');
      expect(await heard(watch)).toEqual(['created /workspace/after']);
    },
  );

  test('equal watches share a tree, which closes with the last of them', async () => {
    const one = await watches.open(all());
    const other = new ConnectionWatches(trees);
    const two = await other.open(all());
    writeFileSync(join(workspace, 'a'), '1');
    expect(await heard(one.watch)).toEqual(['created /workspace/a']);
    watches.end(one.watch);
    writeFileSync(join(workspace, 'b'), '1');
    expect(await heard(two.watch, other)).toEqual(['created /workspace/a', 'created /workspace/b']);
    other.close();
  });
});

describe('globs', () => {
  test.each([
    [
      '**/node_modules/**',
      ['node_modules', 'a/node_modules', 'a/node_modules/x/y'],
      ['node_modules2', 'a/xnode_modules'],
    ],
    ['*.log', ['a.log', 'a.log/inner'], ['b/a.log', 'a.logs']],
    ['**/*.{log,tmp}', ['a.log', 'x/y.tmp'], ['x/y.tmpx', 'log']],
    ['build', ['build', 'build/x'], ['rebuild', 'x/build']],
    ['/src/?[a-c]', ['src/xa', 'src/yc/z'], ['src/xd', 'src//a']],
    ['a+(b).c', ['a+(b).c'], ['aab.c']],
  ])('%s', (glob, matching, others) => {
    const excludes = compileExcludes([glob]);
    expect(matching.filter((path) => excludes?.(path) !== true)).toEqual([]);
    expect(others.filter((path) => excludes?.(path) !== false)).toEqual([]);
  });
});

describe('pending changes', () => {
  test('have each path once, with the resulting kind', () => {
    const pending = new PendingChanges(10, 1000);
    for (const kind of ['created', 'changed'] as const) pending.add('/a', kind);
    for (const kind of ['deleted', 'created'] as const) pending.add('/b', kind);
    for (const kind of ['created', 'deleted'] as const) pending.add('/c', kind);
    expect(pending.take()).toEqual({
      changes: [
        { path: '/a', kind: 'created' },
        { path: '/b', kind: 'changed' },
        { path: '/c', kind: 'deleted' },
      ],
      overflow: false,
    });
    expect(pending.isEmpty).toBe(true);
  });

  test('beyond the limit are one overflow', () => {
    const pending = new PendingChanges(3, 1000);
    for (const path of ['/1', '/2', '/3', '/4', '/5']) pending.add(path, 'created');
    expect(pending.take()).toEqual({ changes: [], overflow: true });
    pending.add('/6', 'created');
    expect(pending.take().overflow).toBe(false);
  });
});
