import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { OBJECT_KINDS, type ObjectReader } from '../../../snapshot-format/objects.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import { pairSimilar } from '../../../supervisor/snapshots/compare/similar-files.ts';
import { similarity, sketchOf } from '../../../supervisor/snapshots/compare/similarity.ts';
import { soakCount } from '../../setup/run-length.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { folder, type ModelTree, plainFile, storeTree } from '../../fixtures/snapshots/model-tree.ts';
import { listChanges, openComparison } from '../../fixtures/snapshots/expected-changes.ts';
import { ISOLATED_GIT_ENV } from '../../fixtures/snapshots/patching.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';

const run = promisify(execFile);
const EDITED = { findEdited: true };
const lines = (...texts: string[]): string => texts.map((text) => `${text}\n`).join('');
const TEXT = lines('one', 'two', 'three', 'four', 'five', 'six');

function tree(files: Readonly<Record<string, string | Buffer>>): ModelTree {
  const made: ModelTree = new Map([['', folder()]]);
  for (const [path, content] of Object.entries(files)) {
    for (let at = path.indexOf('/'); at !== -1; at = path.indexOf('/', at + 1))
      made.set(path.slice(0, at), folder());
    made.set(path, plainFile(content));
  }
  return made;
}

async function compared(before: ModelTree, after: ModelTree) {
  const objects = new StoredObjects();
  const [a, b] = [storeTree(before, objects.add), storeTree(after, objects.add)];
  return { objects, comparison: await openComparison(objects, a, b, '', EDITED) };
}

test('similarity is the share of the longer file that the other contains, in any order', () => {
  const of = (one: string, other: string): number =>
    similarity(sketchOf(Buffer.from(one)), sketchOf(Buffer.from(other)));
  expect(of(TEXT, TEXT)).toBe(1);
  expect(of(lines('a', 'b', 'c'), lines('c', 'a', 'b'))).toBe(1);
  expect(of(lines('a', 'b'), lines('a', 'c'))).toBe(0.5);
  expect(of(lines('a', 'a', 'a', 'a'), lines('a'))).toBe(0.25);
  expect(of('x'.repeat(640), 'x'.repeat(639))).toBeCloseTo(0.9, 1);
  expect(of('', 'a')).toBe(0);
  expect(of('', '')).toBe(0);
});

test('a renamed and edited file is one change with both sizes and modes', async () => {
  const before = tree({ 'src/parser.ts': TEXT, 'src/other.ts': 'something else\n', keep: 'x' });
  const after = tree({ 'lib/scanner.ts': `${TEXT}seven\n`, 'src/other.ts': 'something else\n', keep: 'x' });
  after.set('lib/scanner.ts', plainFile(`${TEXT}seven\n`, { mode: 0o755 }));
  const { comparison } = await compared(before, after);
  const { changes } = await comparison.page(null, 100);
  expect(changes.filter(({ type }) => type === 'file')).toEqual([
    {
      path: '/workspace/lib/scanner.ts',
      kind: 'renamed',
      oldPath: '/workspace/src/parser.ts',
      edited: true,
      type: 'file',
      oldBytes: TEXT.length,
      newBytes: TEXT.length + 6,
      oldMode: 0o644,
      newMode: 0o755,
    },
  ]);
  expect(comparison.totals).toMatchObject({ added: 0, deleted: 0, renamed: 1, directories: 1 });
});

test('a chmod shows both modes, and a directory does not count as a file', async () => {
  const before = tree({ 'run.sh': 'echo\n' });
  const after = tree({ 'run.sh': 'echo\n', 'made/file': 'x' });
  after.set('run.sh', plainFile('echo\n', { mode: 0o755 }));
  const { comparison } = await compared(before, after);
  const { changes } = await comparison.page(null, 100);
  expect(changes.map(({ path, kind, oldMode, newMode }) => [path, kind, oldMode, newMode])).toEqual([
    ['/workspace/made', 'added', null, 0o755],
    ['/workspace/made/file', 'added', null, 0o644],
    ['/workspace/run.sh', 'mode', 0o644, 0o755],
  ]);
  expect(comparison.totals).toMatchObject({ added: 1, mode: 1, directories: 1, modified: 0 });
});

test('files with less than half in common are not paired; equal names and the most similar files are paired first', async () => {
  const { comparison: other } = await compared(
    tree({ a: TEXT }),
    tree({ b: lines('one', 'two', '3', '4', '5', '6') }),
  );
  expect((await listChanges(other)).map(({ kind }) => kind)).toEqual(['deleted', 'added']);
  const { comparison } = await compared(
    tree({ 'old/name': TEXT, 'old/second': `${TEXT}second\n` }),
    tree({ 'new/third': `${TEXT}second\nmore\n`, 'new/name': TEXT.replace('six', '6') }),
  );
  const renamed = (await listChanges(comparison)).filter(({ kind }) => kind === 'renamed');
  expect(renamed).toEqual([
    { path: 'new/name', kind: 'renamed', oldPath: 'old/name' },
    { path: 'new/third', kind: 'renamed', oldPath: 'old/second' },
  ]);
});

test('finds the same renames as git', { timeout: 120_000 }, async () => {
  const random = new SeededRandom(seedOfRun('edited renames'));
  const root = await mkdtemp(join(tmpdir(), 'holdfast-renames-'));
  const lay = async (place: string, files: Readonly<Record<string, string>>): Promise<void> => {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(place, path)), { recursive: true });
      await writeFile(join(place, path), text);
    }
  };
  try {
    for (let round = 0; round < soakCount(10, 200); round += 1) {
      const before: Record<string, string> = {};
      const after: Record<string, string> = {};
      for (let file = 0; file < 12; file += 1) {
        const text = Array.from({ length: 10 + random.below(20) }, () => `line ${random.below(2 ** 31)}`);
        before[`old/${file}`] = lines(...text);
        const kept = text.map((line) => (random.below(100) < 20 ? `other ${random.below(2 ** 31)}` : line));
        const place = random.pick([`old/${file}`, `new/${file}`, `new/x${file}`]);
        // Some go, and some are written again under another name.
        if (random.below(5) === 0)
          after[`anew/${file}`] = lines(...text.map(() => `${random.below(2 ** 31)}`));
        else after[place] = lines(...kept);
      }
      const place = join(root, String(round));
      await lay(join(place, 'a'), before);
      await lay(join(place, 'b'), after);
      const said = await run('git', ['diff', '--no-index', '-M50%', '--name-status', 'a', 'b'], {
        cwd: place,
        env: ISOLATED_GIT_ENV,
      }).catch((error: unknown) => error as { stdout: string });
      const byGit = said.stdout
        .split('\n')
        .filter((line) => line.startsWith('R'))
        .map((line) =>
          line
            .split('\t')
            .slice(1)
            .map((path) => path.slice(2)),
        );
      const { comparison } = await compared(tree(before), tree(after));
      const ours = (await listChanges(comparison))
        .filter(({ kind }) => kind === 'renamed')
        .map(({ path, oldPath }) => [oldPath, path]);
      expect(ours.sort()).toEqual(byGit.sort());
    }
  } finally {
    await rm(root, { recursive: true, force: true });
  }
});

test('unreadable content causes neither a rename nor an error', async () => {
  const objects = new StoredObjects();
  const [a, b] = [
    storeTree(tree({ a: TEXT }), objects.add),
    storeTree(tree({ b: `${TEXT}x\n` }), objects.add),
  ];
  const damaged: ObjectReader = {
    read: (hash, kind) =>
      kind === OBJECT_KINDS.blob
        ? Promise.reject(new HoldfastError('snapshot_damaged', 'The object is damaged'))
        : objects.read(hash, kind),
  };
  const comparison = await openComparison(damaged, a, b, '', EDITED);
  expect((await listChanges(comparison)).map(({ kind }) => kind)).toEqual(['deleted', 'added']);
});

test('with very many files it reads a bounded amount in bounded time', async () => {
  const files = (side: string, count: number, size: number) =>
    Array.from({ length: count }, (_, at) => ({ key: `${side}/${at}`, name: String(at), size }));
  const read = async (all: { size: number }[]): Promise<{ reads: number; bytes: number; pairs: number }> => {
    let [reads, bytes] = [0, 0];
    const [gone, come] = [
      files('a', all.length, all[0]?.size ?? 0),
      files('b', all.length, all[0]?.size ?? 0),
    ];
    const pairs = await pairSimilar(
      gone,
      come,
      ({ size }) => {
        reads += 1;
        bytes += size;
        return Promise.resolve(Buffer.alloc(size, '\n'));
      },
      new TimeSlice(),
    );
    return { reads, bytes, pairs: pairs.length };
  };
  const many = await read(files('', 20_000, 1_000));
  expect(many.reads).toBeLessThanOrEqual(1_000);
  expect(many.pairs).toBe(500);
  const large = await read(files('', 80, 2 ** 19));
  expect(large.bytes).toBeLessThanOrEqual(8 * 2 ** 20);
  expect((await read(files('', 10, 2 ** 19 + 1))).reads).toBe(0);
  const controller = new AbortController();
  controller.abort(new Error('enough'));
  const endless = pairSimilar(
    files('a', 60, 2 ** 16),
    files('b', 60, 2 ** 16).map((one) => ({ ...one, name: `${one.name}x` })),
    ({ key, size }) => Promise.resolve(Buffer.alloc(size, `${key}\n`)),
    new TimeSlice(controller.signal),
  );
  await expect(endless).rejects.toThrow('enough');
});
