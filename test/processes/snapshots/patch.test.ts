import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  readlink,
  readdir,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LineThread } from '../../../supervisor/snapshots/patch/line-thread.ts';
import {
  type PatchChange,
  type PatchFile,
  writePatch,
} from '../../../supervisor/snapshots/patch/write-patch.ts';
import { SeededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { soakCount } from '../../setup/run-length.ts';
import { ISOLATED_GIT_ENV, LINE_WORKER } from '../../fixtures/snapshots/patching.ts';

const run = promisify(execFile);
const CASES = soakCount(12, 400);
interface Item {
  readonly type: 'file' | 'symlink';
  readonly executable: boolean;
  readonly bytes: Buffer;
}
/** Path (latin1, so that it can be a key) → what is there. Folders are there because something is in them. */
type Tree = ReadonlyMap<string, Item>;

let root: string;
const lines = new LineThread(LINE_WORKER);
afterAll(() => lines.close());
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-patch-'));
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

const file = (bytes: string | Buffer, executable = false): Item => ({
  type: 'file',
  executable,
  bytes: Buffer.from(bytes),
});
const link = (text: string): Item => ({ type: 'symlink', executable: false, bytes: Buffer.from(text) });

function side(path: string, item: Item | undefined): PatchFile | null {
  if (item === undefined) return null;
  return {
    path: Buffer.from(path, 'latin1'),
    type: item.type,
    executable: item.executable,
    size: item.bytes.length,
    contentId: createHash('sha256').update(item.type).update(item.bytes).digest('hex'),
    async *content() {
      for (let at = 0; at < item.bytes.length; at += 65_536) yield item.bytes.subarray(at, at + 65_536);
    },
  };
}

/** The changes between two trees; whole files that only moved are renames when asked for. */
function changesOf(before: Tree, after: Tree, renames: boolean): PatchChange[] {
  const changes: PatchChange[] = [];
  const gone = new Map([...before].filter(([path]) => !after.has(path)));
  for (const [path, item] of [...after].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const old = before.get(path);
    if (old === undefined && renames) {
      const from = [...gone].find(([, one]) => one.type === item.type && one.bytes.equals(item.bytes));
      if (from !== undefined) {
        gone.delete(from[0]);
        changes.push({ before: side(...from), after: side(path, item) });
        continue;
      }
    }
    changes.push({ before: side(path, old), after: side(path, item) });
  }
  for (const [path, item] of gone) changes.push({ before: side(path, item), after: null });
  return changes;
}

async function patchOf(changes: readonly PatchChange[]): Promise<{ patch: Buffer; leftOut: string[] }> {
  const pieces: Buffer[] = [];
  const leftOut: string[] = [];
  for await (const piece of writePatch(changes, lines, (path) =>
    leftOut.push(Buffer.from(path).toString('latin1')),
  )) {
    pieces.push(piece);
  }
  return { patch: Buffer.concat(pieces), leftOut };
}

const at = (folder: string, path: string): Buffer =>
  Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(path, 'latin1')]);

async function lay(folder: string, tree: Tree): Promise<void> {
  await mkdir(folder);
  for (const [path, item] of tree) {
    await mkdir(at(folder, dirname(path)), { recursive: true });
    if (item.type === 'symlink') await symlink(item.bytes, at(folder, path));
    else {
      await writeFile(at(folder, path), item.bytes);
      await chmod(at(folder, path), item.executable ? 0o755 : 0o644);
    }
  }
}

async function found(folder: string, below = ''): Promise<Map<string, Item>> {
  const tree = new Map<string, Item>();
  for (const name of await readdir(at(folder, below), { encoding: 'latin1' })) {
    const path = below === '' ? name : `${below}/${name}`;
    const status = await lstat(at(folder, path));
    if (status.isDirectory()) for (const [one, item] of await found(folder, path)) tree.set(one, item);
    else if (status.isSymbolicLink())
      tree.set(path, {
        type: 'symlink',
        executable: false,
        bytes: await readlink(at(folder, path), 'buffer'),
      });
    else
      tree.set(path, {
        type: 'file',
        executable: (status.mode & 0o100) !== 0,
        bytes: await readFile(at(folder, path)),
      });
  }
  return tree;
}

const sorted = (tree: Tree): [string, Item][] => [...tree].sort(([a], [b]) => (a < b ? -1 : 1));

let number = 0;
/** Real git turns `before` into `after`, and back. */
async function expectApplies(before: Tree, after: Tree, renames = true): Promise<Buffer> {
  const { patch, leftOut } = await patchOf(changesOf(before, after, renames));
  expect(leftOut).toEqual([]);
  number += 1;
  const folder = join(root, `case-${number}`);
  await lay(folder, before);
  const patchFile = `${folder}.patch`;
  await writeFile(patchFile, patch);
  if (patch.length > 0) {
    await run('git', ['apply', '--whitespace=nowarn', patchFile], { cwd: folder, env: ISOLATED_GIT_ENV });
  }
  expect(sorted(await found(folder))).toEqual(sorted(after));
  if (patch.length > 0) {
    await run('git', ['apply', '-R', '--whitespace=nowarn', patchFile], {
      cwd: folder,
      env: ISOLATED_GIT_ENV,
    });
  }
  expect(sorted(await found(folder))).toEqual(sorted(before));
  return patch;
}

const one = (item: Item, path = 'a'): Tree => new Map([[path, item]]);
const text = (count: number, change?: (line: number) => string | null): string =>
  Array.from({ length: count }, (_, n) => change?.(n) ?? `line ${n}\n`).join('');

describe('applying a patch reproduces the change', () => {
  test.each<[string, Tree, Tree]>([
    ['text', one(file(text(40))), one(file(text(40, (n) => (n % 17 === 3 ? `changed ${n}\n` : null))))],
    ['a line at the start', one(file('b\n')), one(file('a\nb\n'))],
    ['a line at the end', one(file('a\n')), one(file('a\nb\n'))],
    ['no line end before', one(file('a\nb')), one(file('a\nb\n'))],
    ['no line end after', one(file('a\nb\n')), one(file('a\nb'))],
    ['no line end on both sides', one(file('a\nb')), one(file('c\nb'))],
    ['a text that gets empty', one(file('a\n')), one(file(''))],
    ['an empty file that gets text', one(file('')), one(file('a'))],
    ['carriage returns', one(file('a\r\nb\r\n')), one(file('a\r\nc\r\n'))],
    [
      'lines that look like a patch',
      one(file('--- a/x\n+++ b/x\n@@ -1 +1 @@\n')),
      one(file('diff --git a/x b/x\n')),
    ],
    ['a new file', new Map(), one(file('new\n', true), 'deep/er/new')],
    ['a new empty file', new Map(), one(file(''))],
    ['a file that goes', one(file('old\n'), 'deep/old'), new Map()],
    ['an empty file that goes', one(file('')), new Map()],
    ['an executable', one(file('x\n')), one(file('x\n', true))],
    ['an executable with new text', one(file('x\n', true)), one(file('y\n'))],
    ['a rename', one(file('x\n'), 'd/old'), one(file('x\n'), 'e/new')],
    ['a rename with another mode', one(file('x\n'), 'old'), one(file('x\n', true), 'new')],
    ['a link', one(link('here')), one(link('there'))],
    ['a new link', new Map(), one(link('/etc/passwd'))],
    ['a link that goes', one(link('../..')), new Map()],
    ['a file that becomes a link', one(file('x\n')), one(link('x'))],
    ['a link that becomes a file', one(link('x')), one(file('x\n'))],
    ['a folder that becomes a file', one(file('x\n'), 'd/x'), one(file('x\n'), 'd')],
    ['a file that becomes a folder', one(file('x\n'), 'd'), one(file('x\n'), 'd/x')],
    ['a link that becomes a folder', one(link('e'), 'd'), one(file('x\n'), 'd/x')],
    ['a folder that becomes a link', one(file('x\n'), 'd/x'), one(link('e'), 'd')],
    ['bytes', one(file(Buffer.from([0, 1, 2]))), one(file(Buffer.from([0, 1, 3, 255])))],
    ['new bytes', new Map(), one(file(Buffer.alloc(1000)))],
    ['bytes that go', one(file(Buffer.alloc(53, 'a\0'))), new Map()],
    ['bytes that become text', one(file(Buffer.alloc(10))), one(file('text\n'))],
    ['bytes that get empty', one(file(Buffer.alloc(10))), one(file(''))],
    [
      'text that is not UTF-8',
      one(file(Buffer.from('caf\xe9\n', 'latin1'))),
      one(file(Buffer.from('\xff\xfe\n', 'latin1'))),
    ],
  ])('%s', async (_what, before, after) => {
    expect((await expectApplies(before, after)).length).toBeGreaterThan(0);
    await expectApplies(before, after, false);
  });

  test.each([
    'with blanks',
    ' ',
    'blank at the end ',
    'tab\there',
    'line\nend',
    'quote"d',
    'back\\slash',
    'caf\xc3\xa9',
    '\xff\x01\x7f',
    '-rf',
    'a b/b b/a',
    'x => y',
    'dev/null',
    '.gitignore',
    '.gitmodules',
    'a.git/b',
    '..git',
  ])('the name %j', async (name) => {
    await expectApplies(new Map(), one(file('x\n'), name));
    await expectApplies(one(file('x\n'), name), one(file('y\n'), name));
    await expectApplies(one(file(''), name), one(file('', true), name));
    await expectApplies(one(file('\0'), name), one(file('\0\0'), name));
    await expectApplies(one(file('x\n'), name), one(file('x\n'), `${name}.moved`));
  });

  test('paths that git would reject are omitted and reported, so that the rest applies', async () => {
    const refused = [
      '.git/config',
      'sub/.GIT/hooks/x',
      'sub/.git',
      'git~1',
      '.git. ./x',
      '.git::$INDEX',
      'a\\.git\\b',
    ];
    const after = new Map([
      ...refused.map((path) => [path, file('x\n')] as const),
      ['good', file('x\n')] as const,
    ]);
    const { patch, leftOut } = await patchOf([
      ...changesOf(new Map(), after, false),
      { before: null, after: side('.gitmodules', link('x')) },
    ]);
    expect(leftOut.sort()).toEqual([...refused, '.gitmodules'].sort());
    await mkdir(join(root, 'left-out'));
    await writeFile(join(root, 'p'), patch);
    await run('git', ['apply', join(root, 'p')], { cwd: join(root, 'left-out'), env: ISOLATED_GIT_ENV });
    expect([...(await found(join(root, 'left-out'))).keys()]).toEqual(['good']);
  });

  test('small changes of a long text give a short patch', async () => {
    const before = file(text(30_000));
    const after = file(text(30_000, (n) => (n % 3000 === 5 ? `changed ${n}\n` : null)));
    expect((await expectApplies(one(before), one(after))).length).toBeLessThan(10 * 300);
  });

  test('two long texts with nothing in common finish in time', async () => {
    const random = new SeededRandom(7);
    const noise = (): string => text(40_000, () => `${random.below(3)} ${random.below(40)}\n`);
    const started = performance.now();
    await expectApplies(one(file(noise())), one(file(noise())));
    expect(performance.now() - started).toBeLessThan(20_000);
  });

  test('without the line thread the patch is coarser but correct', async () => {
    const dead = new LineThread(join(root, 'there-is-no-such-program.cjs'));
    const change = [file('a\nb\nc\n'), file('a\nB\nc\n')] as const;
    expect(String(await dead.hunks(change[0].bytes, change[1].bytes))).toBe(
      '@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n',
    );
    await dead.close();
  });

  test('applies to random trees and edits', { timeout: 600_000 }, async () => {
    for (let seed = 1; seed <= CASES; seed += 1) {
      const random = new SeededRandom(seed);
      const before = new Map<string, Item>();
      for (let n = random.below(14); n > 0; n -= 1) add(before, random);
      const after = new Map(before);
      for (let n = 1 + random.below(8); n > 0; n -= 1) edit(after, random);
      try {
        await expectApplies(before, after, random.below(2) === 0);
      } catch (error) {
        throw new Error(`seed ${seed}`, { cause: error });
      }
    }
  });
});

const NAMES = ['a', 'b', 'c', 'd e', 'f"g', '\xc3\xa9', '\xff', '-x', 'tab\t', 'Z'];

function add(tree: Map<string, Item>, random: SeededRandom): void {
  const depth = 1 + random.below(3);
  const path = Array.from({ length: depth }, () => NAMES[random.below(NAMES.length)] ?? 'a').join('/');
  // What is in the way goes: a file where a folder must be, a folder where a file must be.
  for (const other of tree.keys()) {
    if (path.startsWith(`${other}/`) || other.startsWith(`${path}/`)) tree.delete(other);
  }
  tree.set(path, content(random));
}

function content(random: SeededRandom): Item {
  switch (random.below(6)) {
    case 0:
      return link(['x', '../y', '/etc/passwd', 'a b'][random.below(4)] ?? 'x');
    case 1:
      return file(
        Buffer.from(Array.from({ length: random.below(300) }, () => random.below(256))),
        random.below(2) === 0,
      );
    case 2:
      return file('', random.below(4) === 0);
    default:
      return file(
        text(random.below(60), () => `${random.below(12)}\n`) + (random.below(4) === 0 ? 'no end' : ''),
        random.below(4) === 0,
      );
  }
}

function edit(tree: Map<string, Item>, random: SeededRandom): void {
  const paths = [...tree.keys()];
  const path = paths[random.below(Math.max(paths.length, 1))];
  const item = path === undefined ? undefined : tree.get(path);
  if (path === undefined || item === undefined || random.below(5) === 0) {
    add(tree, random);
    return;
  }
  switch (random.below(4)) {
    case 0:
      tree.delete(path);
      return;
    case 1: {
      tree.delete(path);
      const to = `${NAMES[random.below(NAMES.length)] ?? 'a'}/${NAMES[random.below(NAMES.length)] ?? 'b'}`;
      for (const other of [...tree.keys()]) {
        if (to.startsWith(`${other}/`) || other.startsWith(`${to}/`)) tree.delete(other);
      }
      tree.set(to, item);
      return;
    }
    case 2:
      tree.set(path, item.type === 'file' ? { ...item, executable: !item.executable } : content(random));
      return;
    default: {
      const parts = item.bytes.toString('latin1').split('\n');
      parts.splice(random.below(parts.length + 1), random.below(4), `${random.below(12)}`, 'edited');
      tree.set(
        path,
        item.type === 'file' ? { ...item, bytes: Buffer.from(parts.join('\n'), 'latin1') } : content(random),
      );
    }
  }
}
