import { execFile } from 'node:child_process';
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { LineThread } from '../../../supervisor/snapshots/patch/line-thread.ts';
import { patchChangeOf } from '../../../supervisor/snapshots/patch/patch-changes.ts';
import { type PatchChange, writePatch } from '../../../supervisor/snapshots/patch/write-patch.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import {
  byPath,
  type ModelTree,
  RandomTrees,
  remove,
  storeTree,
} from '../../fixtures/snapshots/model-tree.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';
import { soakCount } from '../../setup/run-length.ts';
import { ISOLATED_GIT_ENV, LINE_WORKER } from '../../fixtures/snapshots/patching.ts';
import { openComparison } from '../../fixtures/snapshots/expected-changes.ts';

const run = promisify(execFile);

describe('the patch of a comparison', () => {
  test('git turns the first tree into the second with it', { timeout: 600_000 }, async () => {
    const random = new SeededRandom(seedOfRun('patches'));
    const trees = new RandomTrees(random);
    const lines = new LineThread(LINE_WORKER);
    const root = await mkdtemp(join(tmpdir(), 'holdfast-compare-'));
    try {
      for (let round = 0; round < soakCount(8, 400); round += 1) {
        const before = trees.tree(30);
        for (const path of [...before.keys()]) if (/(^|\/)\.git$/.test(path)) remove(before, path);
        const after = trees.edited(before, 8);
        for (const path of [...after.keys()]) if (/(^|\/)\.git$/.test(path)) remove(after, path);
        const objects = new StoredObjects();
        const [a, b] = [storeTree(before, objects.add), storeTree(after, objects.add)];
        const comparison = await openComparison(objects, a, b, '', { findEdited: true });
        const changes: PatchChange[] = [];
        for await (const difference of comparison.differences()) {
          const change = patchChangeOf(objects, difference);
          if (change !== null) changes.push(change);
        }
        const patch: Buffer[] = [];
        for await (const piece of writePatch(changes, lines, (path) => expect.fail(String(path)))) {
          patch.push(piece);
        }
        const place = join(root, `case-${round}`);
        await lay(place, before);
        await writeFile(`${place}.patch`, Buffer.concat(patch));
        if (patch.length > 0) {
          await run('git', ['apply', '--whitespace=nowarn', `${place}.patch`], {
            cwd: place,
            env: ISOLATED_GIT_ENV,
          });
        }
        expect(await found(place)).toEqual(forGit(after));
      }
    } finally {
      await lines.close();
      await rm(root, { recursive: true, force: true });
    }
  });
});

const on = (place: string, path: string): Buffer =>
  Buffer.concat([Buffer.from(`${place}/`), Buffer.from(path, 'latin1')]);

/** Files and links, and the folders that they need: a folder that git does not know of would be in its way. */
async function lay(place: string, tree: ModelTree): Promise<void> {
  await mkdir(place);
  for (const [path, { type, mode, bytes }] of [...tree].sort(([one], [other]) => byPath(one, other))) {
    if (type !== 'file' && type !== 'symlink') continue;
    await mkdir(on(place, path.slice(0, Math.max(path.lastIndexOf('/'), 0))), { recursive: true });
    if (type === 'symlink') await symlink(bytes, on(place, path));
    else {
      await writeFile(on(place, path), bytes);
      await chmod(on(place, path), (mode & 0o100) === 0 ? 0o644 : 0o755);
    }
  }
}

/** Path → what git knows of it: files and links. */
function forGit(tree: ModelTree): Record<string, string> {
  return Object.fromEntries(
    [...tree]
      .filter(([, { type }]) => type === 'file' || type === 'symlink')
      .map(([path, { type, mode, bytes }]) => [
        path,
        `${type} ${type === 'file' && (mode & 0o100) !== 0} ${bytes.toString('base64')}`,
      ]),
  );
}

async function found(place: string, below = ''): Promise<Record<string, string>> {
  const tree: Record<string, string> = {};
  for (const name of await readdir(on(place, below), { encoding: 'latin1' })) {
    const path = below === '' ? name : `${below}/${name}`;
    const status = await lstat(on(place, path));
    if (status.isDirectory()) Object.assign(tree, await found(place, path));
    else if (status.isSymbolicLink()) {
      tree[path] = `symlink false ${(await readlink(on(place, path), 'buffer')).toString('base64')}`;
    } else {
      const bytes = await readFile(on(place, path));
      tree[path] = `file ${(status.mode & 0o100) !== 0} ${bytes.toString('base64')}`;
    }
  }
  return tree;
}
