import { expect, onTestFinished, test } from 'vitest';
import { CHECK_LIMITS, type CheckSubject } from '../../../protocol/checks.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { formatPath } from '../../../protocol/paths.ts';
import { parseHash } from '../../../snapshot-format/objects.ts';
import { randomIds } from '../../../supervisor/base/ids.ts';
import { KeyedMutex } from '../../../supervisor/base/keyed-mutex.ts';
import { Checks } from '../../../supervisor/checks/checks.ts';
import { KeptOutput } from '../../../supervisor/checks/kept-output.ts';
import { Artifacts } from '../../../supervisor/history/artifacts.ts';
import { Contents } from '../../../supervisor/history/contents.ts';
import { CheckTrees } from '../../../supervisor/reviews/check-trees.ts';
import { ReviewTrees } from '../../../supervisor/reviews/review-trees.ts';
import { Reviews } from '../../../supervisor/reviews/reviews.ts';
import { TextComparison } from '../../../supervisor/snapshots/patch/text-comparison.ts';
import { SnapshotFiles } from '../../../supervisor/snapshots/files/snapshot-files.ts';
import type { SnapshotRow } from '../../../supervisor/store/snapshots.ts';
import type { ExecListener } from '../../../supervisor/terminals/execs.ts';
import { rejectedError } from '../../fixtures/store/temporary-home.ts';
import { NO_HEADS, snapshotFixture } from '../../fixtures/snapshots/snapshot-fixture.ts';
import type { SmallTree } from '../../fixtures/snapshots/small-tree.ts';

/** Checks of a profile, on real trees. Only the sandbox is a fake: `act` is what a command does. */
function fixture(act: (listener: ExecListener) => Promise<void>) {
  const base = snapshotFixture();
  const texts = new TextComparison('/nonexistent/worker');
  onTestFinished(() => texts.close());
  const trees = new ReviewTrees(base);
  const reviews = new Reviews({
    ...base,
    rows: base.reviewRows,
    mutex: new KeyedMutex(),
    texts,
    trees,
    ids: randomIds,
    now: Date.now,
    heads: NO_HEADS,
  });
  const forks: SnapshotRow[] = [];
  const ran: string[] = [];
  const deleted: string[] = [];
  const contents = new Contents(base.database, new Artifacts(base.home));
  const image = { identity: 'sha256:one' };
  const profile = {
    ...{ name: 'p', incarnation: 1, version: 1, image: 'agent' },
    config: { checks: { test: 'npm test', lint: 'lint .' } },
  };
  const checks = new Checks({
    ...base,
    contents,
    ids: randomIds,
    now: Date.now,
    checkTrees: new CheckTrees({ reviews, trees }),
    profiles: { getOrThrow: () => profile as never },
    imageIdentity: () =>
      image.identity === '' ? Promise.reject(new Error('no engine')) : Promise.resolve(image.identity),
    creation: {
      insert: (_profile, { throwaway, from }) => {
        expect(throwaway).toBe(true);
        if (from !== undefined) forks.push(from);
        return { id: 'ses-fork' } as never;
      },
    },
    removal: { deleteSession: (id) => (deleted.push(id), Promise.resolve()) },
    execs: {
      start: (sessionId, { command }, listener) => {
        ran.push(`${sessionId}: ${command.join(' ')}`);
        void act(listener);
        return Promise.resolve({} as never);
      },
    },
  });
  const outcomeOf = (name: string, of: CheckSubject, again: boolean, signal = new AbortController().signal) =>
    checks.run(base.session(), {
      ...{ name, of, again, signal },
      onOutput: () => Promise.resolve(),
      onProgress: () => undefined,
    });
  const run = async (name: string, of: CheckSubject = 'workspace', signal?: AbortSignal) =>
    (await outcomeOf(name, of, false, signal)).check;
  /** The small files of a tree by path. */
  const filesOf = async (root: string): Promise<Record<string, string>> =>
    base.stores.use(base.session().lineage, async (store) => {
      const files = new SnapshotFiles(store, parseHash(root));
      const found: Record<string, string> = {};
      const enter = async (names: Buffer[]): Promise<void> => {
        for (const { name, type } of (await files.list(formatPath(names), {})).entries) {
          const path = [...names, Buffer.from(name)];
          if (type === 'directory') await enter(path);
          else found[path.join('/')] = (await files.read(formatPath(path), {})).bytes.toString();
        }
      };
      await enter([]);
      return found;
    });
  const review = async (
    before: SmallTree,
    after: SmallTree,
    accepted: readonly string[],
    rejected: readonly string[],
  ) => {
    base.sidecar.tree = before;
    await base.take();
    base.sidecar.tree = after;
    const { id } = await reviews.open(base.session(), undefined, {});
    for (const [verdict, paths] of [
      ['accept', accepted],
      ['reject', rejected],
    ] as const)
      for (const path of paths) {
        const state = { whole: verdict, mode: null, text: null, again: false };
        reviews.decisionsOf(id).set(`/workspace/${path}`, state);
        base.reviewRows.decide(id, `/workspace/${path}`, '0'.repeat(24), state);
      }
    return id;
  };
  const accept = (id: string, path: string): void => {
    const state = { whole: 'accept' as const, mode: null, text: null, again: false };
    reviews.decisionsOf(id).set(`/workspace/${path}`, state);
    base.reviewRows.decide(id, `/workspace/${path}`, '0'.repeat(24), state);
    base.reviewRows.update(id, { acceptedRoot: null });
  };
  const own = { checks, run, outcomeOf, accept, profile, image };
  return { ...base, ...own, forks, ran, deleted, review, filesOf, contents };
}

const says =
  (text: string, exitCode: number | null) =>
  async (listener: ExecListener): Promise<void> => {
    await listener.output('exec', 'stdout', Buffer.from(text));
    await listener.exited('exec', exitCode);
  };

test('a check of the workspace is recorded with its exit code, its output and the tree', async () => {
  const at = fixture(says('1 failed\n', 1));
  at.sidecar.tree = { a: 'a\n' };
  const { row } = await at.take();
  const result = await at.run('test');
  expect(result).toMatchObject({ name: 'test', command: 'npm test', of: 'workspace', exitCode: 1 });
  expect([result.tree, result.review, result.outputBytes]).toEqual([row.root, null, 9]);
  expect(at.told('check.ended')).toEqual([result]);
  expect(at.contents.read(at.session().id, result.content.sha256, 0, 100).part.toString()).toBe('1 failed\n');
  expect(at.checks.list(at.session(), undefined)).toEqual([
    { name: 'test', command: 'npm test', last: result },
    { name: 'lint', command: 'lint .', last: null },
  ]);
  expect(at.checks.list(at.session(), 'accepted').map(({ last }) => last)).toEqual([null, null]);
});

test('what is accepted is judged in a session of its own: exactly that, and what its ignore files name', async () => {
  const at = fixture(says('ok\n', 0));
  const before = { a: '1\n', '.gitignore': 'deps/\n', sub: { '.gitignore': '*.log\n', x: '1\n' } };
  const after = {
    ...{ a: '2\n', b: 'new\n', secret: 'ignored by nobody\n', '.gitignore': 'deps/\nsecret\n' },
    ...{ deps: { one: 'dependency\n', bad: 'rejected\n' }, '.git': { config: 'agent\n' } },
    sub: { '.gitignore': '*.log\n', x: '2\n', 'y.log': 'log\n' },
  };
  await at.review(before, after, ['a'], ['deps/bad']);
  const result = await at.run('test', 'accepted');
  expect(at.ran).toEqual(['ses-fork: sh -c npm test']);
  expect(at.deleted).toEqual(['ses-fork']);
  const [fork] = at.forks;
  expect(fork).toMatchObject({ root: result.tree, stateRoot: null, lineage: at.session().lineage });
  expect(await at.filesOf(result.tree)).toEqual({
    ...{ a: '2\n', '.gitignore': 'deps/\n', 'deps/one': 'dependency\n' },
    ...{ 'sub/.gitignore': '*.log\n', 'sub/x': '1\n', 'sub/y.log': 'log\n' },
  });
  expect(await at.filesOf(result.review?.accepted ?? '')).toEqual({
    ...{ a: '2\n', '.gitignore': 'deps/\n', 'sub/.gitignore': '*.log\n', 'sub/x': '1\n' },
  });
  expect(at.checks.list(at.session(), 'accepted')[0]?.last).toEqual(result);
});

test('what passed on the same tree, image and version of the profile is not judged again, unless it is asked for', async () => {
  let exitCode = 1;
  const at = fixture((listener) => says('ok\n', exitCode)(listener));
  const review = await at.review({ a: '1\n', b: '1\n' }, { a: '2\n', b: '2\n' }, ['a'], []);
  const judged = async (again = false, name = 'test'): Promise<boolean> =>
    !(await at.outcomeOf(name, 'accepted', again)).cached;
  // A failure is never kept: it may have been an accident.
  expect([await judged(), await judged()]).toEqual([true, true]);
  exitCode = 0;
  expect(await judged()).toBe(true);
  const told = at.told('check.ended');
  const { check, cached } = await at.outcomeOf('test', 'accepted', false);
  expect([cached, check]).toEqual([true, told.at(-1)]);
  expect(at.told('check.ended')).toEqual(told);
  expect(at.ran).toHaveLength(3);
  expect([await judged(true), await judged(false, 'lint')]).toEqual([true, true]);
  at.profile.version = 2;
  expect([await judged(), await judged()]).toEqual([true, false]);
  at.image.identity = 'sha256:two';
  expect([await judged(), await judged()]).toEqual([true, false]);
  at.profile.config.checks.test = 'npm test -- --all';
  expect([await judged(), await judged()]).toEqual([true, false]);
  at.accept(review, 'b');
  expect([await judged(), await judged()]).toEqual([true, false]);
  // The last result counts: one that failed when it was asked for again ends it.
  exitCode = 1;
  expect([await judged(true), await judged()]).toEqual([true, true]);
  expect(at.forks).toHaveLength(at.deleted.length);
});

test('a result that another home brought is not believed, even with the key of this one, and is not listed', async () => {
  const at = fixture(says('failed\n', 1));
  await at.review({ a: '1\n' }, { a: '2\n' }, ['a'], []);
  const own = await at.run('test', 'accepted');
  const { id, name, profile, persistent, backing, uid, gid } = at.session();
  const from = { home: 'c'.repeat(26), keyId: 'd'.repeat(64), from: id, snapshotId: 'snp-aaaaaaaaaaaaaaaa' };
  at.events.append(id, [
    { type: 'check.ended', data: { ...own, exitCode: 0 } },
    {
      type: 'session.imported',
      data: { ...from, eventSeq: 9, name, profile, persistent, backing, uid, gid },
    },
  ]);
  expect(at.checks.list(at.session(), undefined).map(({ last }) => last)).toEqual([null, null]);
  const { check, cached } = await at.outcomeOf('test', 'accepted', false);
  expect([check.key, check.exitCode, cached]).toEqual([own.key, 1, false]);
  expect(at.ran).toHaveLength(2);
  expect(at.checks.list(at.session(), 'accepted')[0]?.last).toEqual(check);
});

test('nothing is taken for judged while the engine does not say which image it has', async () => {
  const at = fixture(says('', 0));
  await at.review({ a: '1\n' }, { a: '2\n' }, ['a'], []);
  at.image.identity = '';
  for (let n = 0; n < 2; n += 1) {
    const { check, cached } = await at.outcomeOf('test', 'accepted', false);
    expect([check.key, cached]).toEqual([null, false]);
  }
});

test('a check that does not end by itself leaves no result, and no session', async () => {
  const lost = fixture(says('', null));
  await lost.review({ a: '1\n' }, { a: '2\n' }, ['a'], []);
  expect((await rejectedError(lost.run('test', 'accepted'))).code).toBe('sandbox_lost');
  const never = fixture(() => new Promise(() => undefined));
  never.sidecar.tree = { a: 'a\n' };
  const stop = new AbortController();
  const running = never.run('lint', 'workspace', stop.signal);
  await expect.poll(() => never.ran).toHaveLength(1);
  stop.abort(new HoldfastError('cancelled', 'enough'));
  await expect(running).rejects.toThrow('enough');
  expect([lost.deleted, lost.told('check.ended'), never.told('check.ended')]).toEqual([['ses-fork'], [], []]);
});

test('an unknown check, also one with the name of a property of objects, is refused with those that exist', async () => {
  const { run } = fixture(says('', 0));
  for (const name of ['tset', 'constructor', '__proto__'])
    expect((await rejectedError(run(name))).sentence).toContain('it has test, lint');
});

test('of a long output the beginning and the end are kept, whatever its pieces', () => {
  const all = Buffer.from(Array.from({ length: 100_000 }, (_, n) => `line ${n}\n`).join(''));
  for (const size of [1000, 65_537, all.length]) {
    const output = new KeptOutput();
    for (let at = 0; at < all.length; at += size) output.add(all.subarray(at, at + size));
    const kept = output.bytes();
    expect(output.total).toBe(all.length);
    expect(kept.subarray(0, CHECK_LIMITS.keptStart).equals(all.subarray(0, CHECK_LIMITS.keptStart))).toBe(
      true,
    );
    expect(kept.subarray(-CHECK_LIMITS.keptEnd).equals(all.subarray(-CHECK_LIMITS.keptEnd))).toBe(true);
    const left = all.length - CHECK_LIMITS.keptStart - CHECK_LIMITS.keptEnd;
    expect(kept.toString()).toContain(`… ${left} bytes are not kept …`);
  }
  const short = new KeptOutput();
  short.add(all.subarray(0, 1000));
  expect(short.bytes().equals(all.subarray(0, 1000))).toBe(true);
});
