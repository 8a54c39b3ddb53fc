import { describe, expect, test } from 'vitest';
import type { Verdict } from '../../../protocol/review.ts';
import { SnapshotFiles } from '../../../supervisor/snapshots/files/snapshot-files.ts';
import { reviewFixture } from '../../fixtures/reviews/review-fixture.ts';

const lines = (...all: (string | number)[]): string => all.map((line) => `${line}\n`).join('');
const BEFORE = { a: lines(1, 2, 3, 4, 5, 6, 7, 8), gone: 'gone\n', same: 'same\n' };
const AFTER = { a: lines(1, 'two', 3, 4, 5, 6, 'seven', 8), made: 'made\n', same: 'same\n' };

describe('a review', () => {
  test('without anything to compare with is refused', async () => {
    const { open } = reviewFixture();
    await expect(open(BEFORE)).rejects.toMatchObject({ code: 'not_found' });
  });

  test('all accepted is the target, nothing the base; the tree stays for collection', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    const { row: first } = await at.take();
    const opened = await at.open(AFTER);
    expect(opened).toMatchObject({
      base: { spec: 'last', snapshotId: first.id, root: first.root },
      counts: { files: 3, toReview: 3, accepted: 0, rejected: 0, partial: 0 },
    });
    expect((await at.tree()).accepted).toEqual({ root: first.root });
    await at.decide('accept', 'a', 'gone', 'made');
    const review = await at.tree();
    expect(review.accepted).toEqual({ root: review.target.root });
    expect(at.reviewRows.roots(at.session().lineage)).toEqual(
      expect.arrayContaining([first.root, review.target.root]),
    );
  });

  test('hunks are decided one by one, and the accepted tree has exactly those', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    const { path, id: seen } = await at.file('a');
    const [first, second] = await at.hunks('a');
    await at.decisions().decide(at.session(), {
      verdict: 'accept',
      decisions: [{ path, seen, hunks: [second?.id ?? ''] }],
    });
    expect(await at.states()).toEqual({ a: 'partial', gone: 'to-review', made: 'to-review' });
    expect(await at.read('a', 'accepted')).toBe(lines(1, 2, 3, 4, 5, 6, 'seven', 8));
    const { accepted } = await at.tree();
    const root = Buffer.from(accepted?.root ?? '', 'hex');
    const stored = await at.stores.use(at.session().lineage, async (store) => {
      const files = new SnapshotFiles(store, root);
      const { bytes } = await files.read('/workspace/a', {});
      return [bytes.toString(), (await files.list('/workspace', {})).entries.map(({ name }) => name)];
    });
    expect(stored).toEqual([lines(1, 2, 3, 4, 5, 6, 'seven', 8), ['a', 'gone', 'same']]);
    await at.decisions().decide(at.session(), {
      verdict: 'accept',
      decisions: [{ path, seen, hunks: [first?.id ?? ''] }],
    });
    expect((await at.file('a')).state).toBe('accepted');
  });

  test('lines of a hunk are decided one by one, and only those that are in it', async () => {
    const at = reviewFixture();
    at.sidecar.tree = { a: lines(1, 2, 3) };
    await at.take();
    await at.open({ a: lines(1, 'x', 'y', 'z', 3) });
    const { path, id: seen } = await at.file('a');
    const [hunk] = await at.hunks('a');
    expect(hunk).toMatchObject({ removed: { start: 1, end: 2 }, added: { start: 1, end: 4 } });
    const decide = (verdict: Verdict, removed: [number, number], added: [number, number]) =>
      at.decisions().decide(at.session(), {
        verdict,
        decisions: [
          {
            path,
            seen,
            lines: {
              hunk: hunk?.id ?? '',
              removed: { start: removed[0], end: removed[1] },
              added: { start: added[0], end: added[1] },
            },
          },
        ],
      });
    await expect(decide('accept', [0, 2], [1, 2])).rejects.toMatchObject({ code: 'conflict' });
    await expect(decide('accept', [1, 2], [1, 5])).rejects.toMatchObject({ code: 'conflict' });
    await decide('accept', [1, 2], [2, 3]);
    expect(await at.read('a', 'accepted')).toBe(lines(1, 'y', 3));
    await decide('reject', [0, 0], [3, 4]);
    expect(at.workspace.written.get(path)).toBe(lines(1, 'x', 'y', 3));
    // What is left is decided with all, and nothing that was decided changes.
    const { id: review, revision } = await at.reviews().show(at.session());
    await at.decisions().decide(at.session(), { verdict: 'accept', all: { review, revision } });
    expect(await at.read('a', 'accepted')).toBe(lines(1, 'x', 'y', 3));
    expect(await at.file('a')).toMatchObject({ state: 'mixed' });
    expect((await at.hunks('a')).map(({ state }) => state)).toEqual(['mixed']);
  });

  test('what a hostile client asks for, or an agent does meanwhile, leaves the accepted tree as it is', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    await at.decide('accept', 'a');
    const { accepted, revision, id: review } = await at.tree();
    const { path, id: seen } = await at.file('made');
    const ofOther = (await at.file('gone')).id;
    const [hunk] = await at.hunks('a');
    const decide = (request: object) =>
      at.decisions().decide(at.session(), { verdict: 'accept', ...request } as never);
    const requests: readonly object[] = [
      { decisions: [{ path, seen: ofOther }] },
      { decisions: [{ path, seen: '0'.repeat(24) }] },
      { decisions: [{ path, seen, hunks: [hunk?.id ?? ''] }] },
      { decisions: [{ path, seen, hunks: ['f'.repeat(24)] }] },
      // All of them or none: the first alone would be right.
      {
        decisions: [
          { path, seen },
          { path: '/workspace/same', seen },
        ],
      },
      { decisions: [{ path: '/workspace/../etc/passwd', seen }] },
      { decisions: [{ path: '/workspace/.git/config', seen }] },
      { decisions: [{ path: '/etc/passwd', seen }] },
      { decisions: [{ path: '/workspace/a\0', seen }] },
      { all: { review, revision: revision + 1 } },
      { all: { review: 'rev-aaaaaaaaaaaaaaaa', revision } },
    ];
    for (const request of requests) await expect(decide(request), JSON.stringify(request)).rejects.toThrow();
    // The agent writes what it likes, also over what was accepted and under the names that were asked for.
    at.sidecar.tree = { a: 'evil', gone: 'evil', made: 'evil', same: 'evil', '.git': { config: 'evil' } };
    for (const path of ['a', 'made', 'same']) at.workspace.moved.add(`/workspace/${path}`);
    at.restart();
    expect(await at.tree()).toMatchObject({ accepted, revision });
    expect(await at.read('a', 'accepted')).toBe(AFTER.a);
    expect(await at.states()).toEqual({ a: 'accepted', gone: 'to-review', made: 'to-review' });
    // Compared again: what the agent has done since is to review, and nothing of it accepted.
    await at.open(at.sidecar.tree);
    expect(await at.read('a', 'accepted')).toBe(BEFORE.a);
    expect(Object.values(await at.states())).not.toContain('accepted');
  });

  test('decisions survive a restart, and can be taken back', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    await at.decide('accept', 'made');
    at.restart();
    expect(await at.states()).toEqual({ a: 'to-review', gone: 'to-review', made: 'accepted' });
    await at.decisions().undo(at.session(), undefined);
    expect(await at.states()).toEqual({ a: 'to-review', gone: 'to-review', made: 'to-review' });
    await expect(at.decisions().undo(at.session(), undefined)).rejects.toMatchObject({ code: 'not_found' });
  });

  test('what the person cannot have seen is refused', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    const { path, id: seen } = await at.file('made');
    await at.open({ ...AFTER, made: 'other\n' });
    const decide = (decision: object) =>
      at.decisions().decide(at.session(), { verdict: 'accept', decisions: [{ path, seen, ...decision }] });
    await expect(decide({})).rejects.toMatchObject({ code: 'conflict' });
    const { id: review, revision } = await at.reviews().show(at.session());
    for (const all of [
      { review, revision: 0 },
      // Another review can have the same revision.
      { review: 'rev-other', revision },
    ]) {
      await expect(at.decisions().decide(at.session(), { verdict: 'accept', all })).rejects.toMatchObject({
        code: 'conflict',
      });
    }
    expect((await at.reviews().show(at.session())).counts.toReview).toBe(3);
  });

  test('what changes after acceptance is to be reviewed again, and marked so', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    await at.decide('accept', 'a', 'made');
    const next = await at.open({ ...AFTER, a: lines(1, 'two', 3, 4, 5, 6, 'evil', 8), made: 'other\n' });
    expect(next.counts).toMatchObject({ files: 3, partial: 1, toReview: 2 });
    expect(await at.file('a')).toMatchObject({ state: 'partial', again: true });
    expect(await at.file('made')).toMatchObject({ state: 'to-review', again: true });
    expect(await at.read('a', 'accepted')).toBe(lines(1, 'two', 3, 4, 5, 6, 7, 8));
    expect((await at.file('gone')).again).toBe(false);
  });

  test('a rejected hunk, which is gone, leaves no mark on a file whose other hunks stay accepted', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    const { path, id: seen } = await at.file('a');
    const [first, second] = await at.hunks('a');
    const decide = (verdict: 'accept' | 'reject', hunk: string | undefined) =>
      at.decisions().decide(at.session(), { verdict, decisions: [{ path, seen, hunks: [hunk ?? ''] }] });
    await decide('accept', first?.id);
    await decide('reject', second?.id);
    await at.open({ ...AFTER, a: at.workspace.written.get('/workspace/a') ?? '' });
    expect(await at.file('a')).toMatchObject({ state: 'accepted', again: false });
  });

  test('a file that was accepted and became a folder is not accepted any more', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    await at.decide('accept', 'made', 'a');
    await at.open({ ...AFTER, a: { below: 'x\n' }, made: { below: 'x\n' } });
    expect(await at.states()).toEqual({ a: 'to-review', gone: 'to-review', 'made/below': 'to-review' });
    expect(await at.file('a')).toMatchObject({ kind: 'typechange', below: 1, again: true });
    expect((await at.tree()).accepted?.root).toBe((await at.reviews().show(at.session())).base.root);
  });
});

describe('rejecting', () => {
  test('writes the base back, and undo the target', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    const { path, id: seen } = await at.file('a');
    const [, second] = await at.hunks('a');
    await at.decisions().decide(at.session(), {
      verdict: 'reject',
      decisions: [{ path, seen, hunks: [second?.id ?? ''] }],
    });
    expect(at.workspace.written.get(path)).toBe(lines(1, 'two', 3, 4, 5, 6, 7, 8));
    await at.decide('reject', 'gone', 'made');
    expect(at.workspace.written.get('/workspace/gone')).toBe('gone\n');
    expect(at.workspace.written.get('/workspace/made')).toBeNull();
    await at.decisions().undo(at.session(), undefined);
    expect(at.workspace.written.get('/workspace/made')).toBe('made\n');
    expect(at.workspace.written.get('/workspace/gone')).toBeNull();
    expect((await at.tree()).counts).toMatchObject({ toReview: 2, partial: 1 });
  });

  test('a file that changed since is left alone, and nothing is decided', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    at.workspace.moved.add('/workspace/made');
    await expect(at.decide('reject', 'gone', 'made')).rejects.toMatchObject({ code: 'conflict' });
    expect([...at.workspace.written]).toEqual([]);
    expect((await at.reviews().show(at.session())).counts).toMatchObject({ toReview: 3, rejected: 0 });
  });

  test('what could not be written is to review again, at another revision, and the history says so', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    at.workspace.fullAt = '/workspace/made';
    await expect(at.decide('reject', 'gone', 'made')).rejects.toMatchObject({ code: 'no_space' });
    expect(await at.states()).toEqual({ a: 'to-review', gone: 'rejected', made: 'to-review' });
    const { revision } = await at.reviews().show(at.session());
    expect(at.told('review.decided')).toMatchObject([{ count: 2, revision: revision - 1 }]);
    expect(at.told('review.undone')).toMatchObject([{ verdict: 'reject', count: 1, revision }]);

    // The same where an undo cannot be written.
    at.workspace.fullAt = '/workspace/gone';
    await expect(at.decisions().undo(at.session(), undefined)).rejects.toMatchObject({ code: 'no_space' });
    expect(await at.states()).toEqual({ a: 'to-review', gone: 'rejected', made: 'to-review' });
    expect((await at.reviews().show(at.session())).revision).toBe(revision + 2);
    expect(at.told('review.decided').at(-1)).toMatchObject({ verdict: 'reject', revision: revision + 2 });
  });

  test('a supervisor that died while it wrote: the next one continues, once', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    const decisions = [];
    for (const name of ['gone', 'made']) {
      const { path, id: seen } = await at.file(name);
      decisions.push({ path, seen });
    }
    at.workspace.diesAt = '/workspace/made';
    const request = { verdict: 'reject' as const, decisions, opId: 'op-1' };
    void at.decisions().decide(at.session(), request);
    await expect.poll(() => at.workspace.written.size).toBe(1);
    at.workspace.diesAt = null;
    at.restart();
    const { decided } = await at.decisions().decide(at.session(), request);
    expect(decided).toBe(2);
    expect(at.workspace.written.get('/workspace/made')).toBeNull();
    await at.decisions().undo(at.session(), undefined);
    expect(at.workspace.written.get('/workspace/made')).toBe('made\n');
  });

  test('what was rejected and is there again is to be reviewed', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    await at.decide('reject', 'made');
    await at.open({ ...AFTER, more: 'more\n' });
    expect(await at.file('made')).toMatchObject({ state: 'to-review', again: true });
  });
});

describe('withdrawing', () => {
  test('makes paths to review again, whenever they were decided, and can be undone itself', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    await at.decide('accept', 'a');
    await at.decide('reject', 'made');
    await at.decide('accept', 'gone');
    const { decided, review } = await at.decide('withdraw', 'a', 'made');
    expect(decided).toBe(2);
    expect(review.counts).toMatchObject({ toReview: 2, accepted: 1, rejected: 0 });
    expect(at.workspace.written.get('/workspace/made')).toBe('made\n');
    expect(await at.read('a', 'accepted')).toBe(BEFORE.a);
    // What nobody decided stays as it is, and is not counted.
    const nothing = await at.decide('withdraw', 'a');
    expect([nothing.decided, nothing.review.revision]).toEqual([0, review.revision]);
    at.restart();
    expect(await at.decisions().undo(at.session(), undefined)).toMatchObject({
      verdict: 'withdraw',
      paths: 2,
    });
    expect(await at.states()).toEqual({ a: 'accepted', gone: 'accepted', made: 'rejected' });
    expect(at.workspace.written.get('/workspace/made')).toBeNull();
  });

  test('takes single hunks, and a path counts its hunks while it is decided in part', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    expect(await at.file('a')).not.toHaveProperty('hunks');
    await at.decide('accept', 'a');
    expect(await at.file('a')).not.toHaveProperty('hunks');
    const { path, id: seen } = await at.file('a');
    const [first, second] = (await at.hunks('a')).map(({ id }) => id);
    const withdraw = (hunk = '') =>
      at
        .decisions()
        .decide(at.session(), { verdict: 'withdraw', decisions: [{ path, seen, hunks: [hunk] }] });
    await withdraw(first);
    expect(await at.file('a')).toMatchObject({ state: 'partial', hunks: { accepted: 1, all: 2 } });
    expect(await at.read('a', 'accepted')).toBe(lines(1, 2, 3, 4, 5, 6, 'seven', 8));
    await withdraw(second);
    expect(await at.file('a')).toMatchObject({ state: 'to-review' });
    const { id, counts } = await at.reviews().show(at.session());
    expect(counts).toMatchObject({ toReview: 3, partial: 0 });
    expect(at.reviewRows.countDecided(id)).toEqual({ accepted: 0, rejected: 0, partly: 0 });
  });

  test('of a version that the person did not see is refused, and so is everything at once', async () => {
    const at = reviewFixture();
    at.sidecar.tree = BEFORE;
    await at.take();
    await at.open(AFTER);
    await at.decide('accept', 'a', 'made');
    const { path, id: seen } = await at.file('a');
    await at.open({ ...AFTER, a: lines(1, 'two', 3, 4, 5, 6, 'eight', 8) });
    const withdraw = (what: object) => at.decisions().decide(at.session(), { verdict: 'withdraw', ...what });
    await expect(withdraw({ decisions: [{ path, seen }] })).rejects.toMatchObject({ code: 'conflict' });
    const { id: review, revision } = await at.reviews().show(at.session());
    await expect(withdraw({ all: { review, revision } })).rejects.toMatchObject({ code: 'invalid_params' });
    expect(await at.states()).toMatchObject({ a: 'partial', made: 'accepted' });
  });
});

test('the next review begins with what the last one accepted', async () => {
  const at = reviewFixture();
  at.sidecar.tree = BEFORE;
  await at.take();
  await at.open(AFTER);
  await at.decide('accept', 'made');
  const { accepted } = await at.tree();
  await at.reviews().end(at.session());
  const next = await at.open(AFTER);
  expect(next.base).toEqual({ spec: 'last', snapshotId: null, root: accepted?.root });
  expect(await at.states()).toEqual({ a: 'to-review', gone: 'to-review' });
  const from = await at.open(AFTER, 'start');
  expect(from.counts.files).toBe(3);
});
