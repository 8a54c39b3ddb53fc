import { createHash } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import type { HeadEntry } from '../../../protocol/review-base.ts';
import { randomIds } from '../../../supervisor/base/ids.ts';
import { KeyedMutex } from '../../../supervisor/base/keyed-mutex.ts';
import { HeadBases } from '../../../supervisor/reviews/head-bases.ts';
import { ReviewTrees } from '../../../supervisor/reviews/review-trees.ts';
import { ReviewReader } from '../../../supervisor/reviews/review-reader.ts';
import { Reviews } from '../../../supervisor/reviews/reviews.ts';
import { TextComparison } from '../../../supervisor/snapshots/patch/text-comparison.ts';
import { SnapshotFiles } from '../../../supervisor/snapshots/files/snapshot-files.ts';
import { parseHash } from '../../../snapshot-format/objects.ts';
import { rejectedError } from '../../fixtures/store/temporary-home.ts';
import { snapshotFixture } from '../../fixtures/snapshots/snapshot-fixture.ts';
import type { SmallTree } from '../../fixtures/snapshots/small-tree.ts';

const COMMIT = 'c'.repeat(40);
const BASE = `head:${COMMIT}`;
const ORIGIN = { root: '/p', prefix: '', head: 'd'.repeat(40), branch: 'main', remote: null };

function gitId(text: string): string {
  return createHash('sha1')
    .update(`blob ${Buffer.byteLength(text)}\0${text}`)
    .digest('hex');
}

/** A file of the commit. */
function committed(path: string, text: string, over: Partial<HeadEntry> = {}): HeadEntry {
  const size = Buffer.byteLength(text);
  return { path, mode: '100644', blob: gitId(text), size, wasDeployed: true, ...over };
}

/** Reviews of a session that began with `start`, on real stores. Only the sidecar is played. */
async function fixture(start: SmallTree) {
  const base = snapshotFixture();
  const texts = new TextComparison('/nonexistent/worker');
  onTestFinished(() => texts.close());
  const trees = new ReviewTrees(base);
  base.sidecar.tree = start;
  const { row } = await base.take();
  const began = { root: row.root, origin: ORIGIN, folder: '', isExact: true };
  const heads = new HeadBases({ trees, baseTrees: { find: () => began } });
  const reviews = new Reviews({
    ...{ ...base, texts, trees, heads, rows: base.reviewRows, mutex: new KeyedMutex(), ids: randomIds },
    now: Date.now,
  });
  const reader = new ReviewReader(reviews);
  const owner = {};
  const session = () => base.session();
  /** As a client does it. `texts`: the contents that are asked for, by their ids. */
  const send = async (entries: readonly HeadEntry[], contents: readonly string[]): Promise<string> => {
    const { upload } = heads.begin(session(), COMMIT, owner);
    heads.append(upload, owner, entries);
    const { blobs } = await heads.missing(upload, owner, 0);
    const byId = new Map(contents.map((text) => [gitId(text), text]));
    expect(blobs.toSorted()).toEqual([...byId.keys()].toSorted());
    const all = Buffer.from(blobs.map((blob) => byId.get(blob) ?? '').join(''));
    for (let at = 0; at === 0 || at < all.length; at += 3)
      await heads.receive(upload, owner, all.subarray(at, at + 3));
    return upload;
  };
  return {
    ...{ ...base, heads, owner, reviews, reader, session, send },
    open: async (now: SmallTree, upload?: string) => {
      base.sidecar.tree = now;
      const sent = upload === undefined ? undefined : { upload, owner };
      return await reviews.open(session(), BASE, {}, sent);
    },
    changes: async () =>
      Object.fromEntries(
        (await reader.files(session(), {})).files.map(({ path, kind }) => [path.slice(11), kind]),
      ),
    read: (root: string, path: string) =>
      base.stores.use(session().lineage, async (store) =>
        (await new SnapshotFiles(store, parseHash(root)).read(`/workspace/${path}`, {})).bytes.toString(),
      ),
  };
}

test('a commit is the base: what differs from it is reviewed, and only what the session lacks is sent', async () => {
  const at = await fixture({ same: 'same\n', moved: 'deployed\n', gone: 'gone\n', src: { deep: 'deep\n' } });
  const upload = await at.send(
    [
      committed('same', 'same\n'),
      committed('moved', 'committed since\n'),
      committed('src/deep', 'deep\n'),
      committed('src/new', 'new in the commit\n', { wasDeployed: false }),
      committed('empty', '', { wasDeployed: false }),
    ],
    ['committed since\n', 'new in the commit\n', ''],
  );
  const now = { same: 'by the agent\n', moved: 'deployed\n', gone: 'gone\n', src: { deep: 'deep\n' } };
  const { base } = await at.open(now, upload);
  expect(base).toMatchObject({ spec: BASE, snapshotId: null });
  expect(await at.changes()).toEqual({
    ...{ same: 'modified', moved: 'modified', gone: 'added', 'src/new': 'deleted', empty: 'deleted' },
  });
  expect(await at.read(base.root, 'moved')).toBe('committed since\n');
  expect(await at.read(base.root, 'src/deep')).toBe('deep\n');
  expect(at.reviewRows.roots(at.session().lineage)).toContain(base.root);
});

test('what git does not track and ignores, and what the deploy left out, is no change; git’s own folder neither', async () => {
  const start = {
    '.gitignore': 'node_modules\n',
    '.git': { HEAD: 'ref\n' },
    node_modules: { a: 'a\n', b: 'b\n' },
    src: { '.gitignore': '*.log\n', 'x.log': 'log\n' },
  };
  const at = await fixture(start);
  const upload = await at.send(
    [
      committed('.gitignore', 'node_modules\n'),
      committed('src/.gitignore', '*.log\n'),
      committed('film.mp4', 'left out\n'),
    ],
    [],
  );
  // The agent changed an installed package: that is a change since the session began.
  await at.open({ ...start, node_modules: { a: 'A\n', b: 'b\n' } }, upload);
  expect(await at.changes()).toEqual({ 'node_modules/a': 'modified' });
});

test('what .holdfastignore names is no change: the client does not list it, although the session may have begun with it', async () => {
  const start = {
    '.holdfastignore': 'keys\n',
    keys: { old: 'old\n' },
    src: { 'a.c': 'a\n', '.gitignore': '*.o\n' },
  };
  const at = await fixture(start);
  const listed = [
    committed('.holdfastignore', 'keys\n'),
    committed('src/a.c', 'a\n'),
    committed('src/.gitignore', '*.o\n'),
  ];
  await at.open({ ...start, src: { ...start.src, 'a.c': 'b\n' } }, await at.send(listed, []));
  expect(await at.changes()).toEqual({ 'src/a.c': 'modified' });
});

test('modes are compared as git knows them, and links by their text', async () => {
  const at = await fixture({ tool: 'tool\n', plain: 'plain\n' });
  const upload = await at.send(
    [
      committed('tool', 'tool\n', { mode: '100755' }),
      committed('plain', 'plain\n'),
      committed('link', 'plain', { mode: '120000', wasDeployed: false }),
    ],
    ['plain'],
  );
  await at.open({ tool: 'tool\n', plain: 'plain\n' }, upload);
  const { files } = await at.reader.files(at.session(), {});
  expect(files.map(({ path, kind, type, risks }) => ({ path, kind, type, risks }))).toEqual([
    { path: '/workspace/tool', kind: 'mode', type: 'file', risks: ['mode'] },
    { path: '/workspace/link', kind: 'deleted', type: 'symlink', risks: [] },
  ]);
});

test('the same commit continues with its review, without another upload; another one begins a new review', async () => {
  const at = await fixture({ a: '1\n' });
  const first = await at.open({ a: '2\n' }, await at.send([committed('a', '0\n')], ['0\n']));
  expect(at.reviews.hasBase(at.session(), BASE)).toBe(true);
  expect(await at.open({ a: '3\n' })).toMatchObject({ id: first.id, base: first.base });
  const other = `head:${'e'.repeat(40)}` as const;
  expect(await rejectedError(at.reviews.open(at.session(), other, {}))).toMatchObject({
    code: 'invalid_params',
  });
  expect(await at.reviews.show(at.session())).toMatchObject({ id: first.id });
});

test('contents that are not those of their ids, too many, or too few are refused, and the review stays as it was', async () => {
  const at = await fixture({ a: '1\n' });
  const begin = async () => {
    const { upload } = at.heads.begin(at.session(), COMMIT, at.owner);
    at.heads.append(upload, at.owner, [committed('a', '0\n')]);
    expect(await at.heads.missing(upload, at.owner, 0)).toEqual({ blobs: [gitId('0\n')], next: null });
    return upload;
  };
  for (const bytes of ['x\n', '0\nmore']) {
    const error = await rejectedError(at.heads.receive(await begin(), at.owner, Buffer.from(bytes)));
    expect(error).toMatchObject({ code: 'invalid_params' });
  }
  const early = await begin();
  await at.heads.receive(early, at.owner, Buffer.from('0'));
  expect(await rejectedError(at.open({ a: '2\n' }, early))).toMatchObject({ code: 'invalid_params' });
  expect(await rejectedError(at.reviews.show(at.session()))).toMatchObject({ code: 'not_found' });
  // It is over then.
  expect(await rejectedError(at.open({ a: '2\n' }, early))).toMatchObject({ code: 'interrupted' });
});

test('an upload is for its connection, its session and its commit, and no path comes twice or leads out', async () => {
  const at = await fixture({ a: '1\n' });
  const begin = () => at.heads.begin(at.session(), COMMIT, at.owner).upload;
  expect(() => at.heads.append(begin(), {}, [])).toThrow('was not opened');
  for (const path of ['../a', 'a/../../b', '/a', '.', 'a//b']) {
    expect(() => at.heads.append(begin(), at.owner, [committed(path, 'x')]), path).toThrow();
  }
  const twice = [committed('a', 'x'), committed('a', 'y')];
  expect(() => at.heads.append(begin(), at.owner, twice)).toThrow();
  // Those that failed are over, and keep no place; of four that are open, a fifth is refused.
  const own = {};
  const open = [1, 2, 3].map(() => at.heads.begin(at.session(), COMMIT, own).upload);
  expect(() => at.heads.begin(at.session(), COMMIT, own)).toThrow('cannot be opened now');
  for (const upload of open) at.heads.end(upload, own);
  at.heads.end(at.heads.begin(at.session(), COMMIT, own).upload, own);
});

test('a client that has ended its upload has none, and nobody ends that of another one', async () => {
  const at = await fixture({ a: '1\n' });
  const upload = await at.send([committed('a', '0\n')], ['0\n']);
  at.heads.end(upload, {});
  expect(await at.heads.missing(upload, at.owner, 0)).toMatchObject({ blobs: [gitId('0\n')] });
  at.heads.end(upload, at.owner);
  at.heads.end(upload, at.owner);
  expect(() => at.heads.append(upload, at.owner, [])).toThrow('was not opened');
  expect(await rejectedError(at.open({ a: '2\n' }, upload))).toMatchObject({ code: 'interrupted' });
  expect(await rejectedError(at.reviews.show(at.session()))).toMatchObject({ code: 'not_found' });
});
