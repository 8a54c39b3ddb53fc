import { expect, test } from 'vitest';
import { SnapshotFiles } from '../../../supervisor/snapshots/files/snapshot-files.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { rejectedError } from '../../fixtures/store/temporary-home.ts';
import { folder, type ModelTree, plainFile, storeTree } from '../../fixtures/snapshots/model-tree.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';

const MIB = 2 ** 20;

function filesOf(tree: ModelTree): SnapshotFiles {
  const objects = new StoredObjects();
  return new SnapshotFiles(objects, storeTree(tree, objects.add));
}
const link = (target: string): ReturnType<typeof plainFile> =>
  plainFile(target, { type: 'symlink', mode: 0o777 });

test('any part of a file can be read, holes as zeros', async () => {
  const random = new SeededRandom(seedOfRun('snapshot files'));
  const bytes = Buffer.alloc(3 * MIB + 7);
  for (let at = 0; at < bytes.length; at += 1000) bytes.writeUInt8(random.below(256), at);
  const holes = Buffer.alloc(4 * MIB);
  holes.write('data', 2 * MIB + 5);
  const files = filesOf(
    new Map([
      ['', folder()],
      ['f', plainFile(bytes)],
      ['s', plainFile(holes, { sparse: true })],
    ]),
  );
  for (const [path, whole] of [
    ['/workspace/f', bytes],
    ['/workspace/s', holes],
  ] as const) {
    for (let round = 0; round < 40; round += 1) {
      const offset = random.below(whole.length + 100);
      const length = random.below(2 * MIB);
      const part = await files.read(path, { offset, length });
      expect(part.bytes.equals(whole.subarray(offset, offset + length))).toBe(true);
      expect(part.size).toBe(whole.length);
      expect((await files.read(path, { length: 0, ifVersion: part.version })).version).toBe(part.version);
    }
  }
  expect((await rejectedError(files.read('/workspace/f', { ifVersion: 'other' }))).code).toBe('conflict');
});

test('a directory is listed in pages in byte order, with the types of link targets', async () => {
  const tree: ModelTree = new Map([
    ['', folder()],
    ['\xff', plainFile('bytes', { mtimeNs: 1_234_567_890n })],
    ['a', plainFile('abc', { mode: 0o4755 })],
    ['d', folder({ mode: 0o700 })],
    ['d/x', plainFile('x')],
    ['in', link('d/x')],
    ['out', link('/etc/passwd')],
    ['p', plainFile('', { type: 'fifo' })],
    ['up', link('d/../../workspace/d')],
  ]);
  const files = filesOf(tree);
  const names: string[] = [];
  const stats: Record<string, unknown> = {};
  for (let cursor: string | null | undefined; cursor !== null;) {
    const page = await files.list('/workspace', { limit: 3, ...(cursor === undefined ? {} : { cursor }) });
    for (const { name, ...stat } of page.entries) {
      names.push(name);
      stats[name] = stat;
    }
    cursor = page.nextCursor;
  }
  expect(names).toEqual(['a', 'd', 'in', 'out', 'p', 'up', '\u241bff']);
  expect(stats).toMatchObject({
    a: { type: 'file', size: 3, mode: 0o4755, link: null },
    d: { type: 'directory', mode: 0o700 },
    in: { type: 'symlink', link: 'd/x', linkType: 'file' },
    out: { linkType: null, link: '/etc/passwd' },
    p: { type: 'fifo' },
    up: { linkType: 'directory' },
    '\u241bff': { mtimeNs: '1234567890', mtimeMs: 1234 },
  });
  expect((await files.stat('/workspace/in', {})).type).toBe('file');
  expect((await files.stat('/workspace/in', { follow: false })).type).toBe('symlink');
  expect((await files.stat('/workspace/up/x', { version: true })).version).toMatch(/^snapshot-/);
  expect((await files.read('/workspace/up/x', {})).bytes.toString()).toBe('x');
});

test.each([
  ['/workspace/none', 'file_not_found'],
  ['/workspace/out', 'file_not_found'],
  ['/workspace/above', 'file_not_found'],
  ['/workspace/above/etc', 'file_not_found'],
  ['/workspace/f/x', 'file_not_a_directory'],
  ['/workspace/loop', 'file_unavailable'],
  ['/workspace', 'file_is_a_directory'],
  ['/workspace/p', 'file_not_regular'],
  ['/etc/passwd', 'file_not_found'],
  ['/workspace/../x', 'invalid_params'],
])('reading %s is %s', async (path, code) => {
  const files = filesOf(
    new Map([
      ['', folder()],
      ['f', plainFile('x')],
      ['out', link('/etc/passwd')],
      ['above', link('../..')],
      ['loop', link('loop')],
      ['p', plainFile('', { type: 'fifo' })],
    ]),
  );
  expect((await rejectedError(files.read(path, {}))).code).toBe(code);
});
