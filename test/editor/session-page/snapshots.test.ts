import { afterEach, describe, expect, test } from 'vitest';
import type { PageChanges, PageSnapshot, SnapshotPage } from '../../../webview/late-messages.ts';
import { RICH, TURN, page, state } from './conversations.ts';
import { HOSTILE_TEXTS } from './hostile-texts.ts';
import { harness, open as openPage, picture } from './opened-page.ts';
import type { PageHarness } from './page-harness.ts';

afterEach(() => harness.closeWithoutFaults());

const id = (n: number): string =>
  `snp-${n.toString(2).padStart(16, '2').replaceAll('0', 'a').replaceAll('1', 'b')}`;
const time = (minute: number): string => new Date(Date.UTC(2026, 0, 1, 10, minute)).toISOString();

/** The nth snapshot, which was created after event 10 × n. */
const snapshot = (n: number, more: Partial<PageSnapshot> = {}): PageSnapshot => ({
  ...{ id: id(n), createdAt: time(n), reason: 'before-turn', label: null, pinned: false, eventSeq: 10 * n },
  ...{ files: 24, bytes: 81_920, changedFiles: n, newBytes: 2048, duringTurn: false, missing: 0 },
  turn: { id: TURN, prompt: `Do number ${n}` },
  author: 'supervisor',
  ...more,
});

const noGraph: SnapshotPage['graph'] = { origin: null, restores: [], forks: [] };
const FORK = 'ses-bbbbbbbbbbbbbbbb';
const ORIGIN = 'ses-cccccccccccccccc';

/** A fork, whose third snapshot was left by a restore of the first, and from which another session was forked. */
const BRANCHED: SnapshotPage = {
  snapshots: [
    snapshot(6, { reason: 'agent', author: 'agent', turn: null, label: 'before the upgrade' }),
    snapshot(5, { reason: 'manual', turn: null, label: 'all tests pass', pinned: true }),
    snapshot(4, { reason: 'before-restore', turn: null }),
    snapshot(3),
    snapshot(2, {
      turn: { id: TURN, prompt: 'The CSV parser loses the last row of a file without a line end.' },
    }),
    snapshot(1),
  ],
  next: null,
  graph: {
    origin: { snapshotId: id(99), session: { id: ORIGIN, name: 'parser' } },
    restores: [{ seq: 42, at: time(4), snapshotId: id(2), path: null, undo: id(4) }],
    forks: [{ sessionId: FORK, name: 'parser, another way', snapshotId: id(2), at: time(3) }],
  },
  usage: { snapshots: 6, bytes: 1_310_720, uniqueBytes: null },
};

const CHANGES: PageChanges = {
  changes: [
    { path: '/workspace/src/parser.ts', kind: 'modified', type: 'file' },
    { path: '/workspace/src/flush.ts', kind: 'added', type: 'file' },
    { path: '/workspace/src/old.ts', kind: 'deleted', type: 'file' },
    { path: '/workspace/src/rows.ts', oldPath: '/workspace/src/lines.ts', kind: 'renamed', type: 'file' },
    { path: '/workspace/run.sh', kind: 'mode', type: 'file' },
    { path: '/workspace/src', kind: 'mode', type: 'directory' },
  ],
  totals: '1 added, 1 changed, 1 deleted, 1 renamed',
  caveat: null,
  nextCursor: null,
};

type Options = Partial<Parameters<typeof PageHarness.open>[0]> & { list?: SnapshotPage };

async function open({ list = BRANCHED, answers = {}, ...options }: Options = {}): Promise<
  PageHarness['page']
> {
  await openPage({
    answers: { snapshots: () => list, changes: () => CHANGES, ...answers },
    ...options,
  });
  await harness.send('state', state());
  await harness.send('begin', page(RICH));
  await harness.page.getByRole('tab', { name: 'Snapshots' }).click();
  return harness.page;
}

/** What the page asked the extension for, without what it asks by itself. */
const asked = (): unknown[] =>
  harness.requests.filter(
    ({ name }) => !['ready', 'shown', 'turnLines', 'snapshots', 'changes', 'content'].includes(name),
  );
const namesOf = (name: string): unknown[] =>
  harness.requests.filter((one) => one.name === name).map(({ params }) => params);
const row = (text: string) => harness.page.getByRole('listitem').filter({ hasText: text }).first();
const focused = (): Promise<string> =>
  harness.page.evaluate<string>('document.activeElement.textContent.trim()');

describe('the graph of snapshots', () => {
  test.each([
    ['dark', 900],
    ['light', 900],
    ['contrast', 900],
    ['dark', 300],
  ] as const)('draws branches, restores, forks and pins (%s, %d pixels)', async (theme, width) => {
    const view = await open({ theme, width });
    await view.getByRole('button', { name: 'all tests pass' }).waitFor();
    const titles = await view.locator('.row-title').allTextContents();
    expect(titles.map((title) => title.trim())).toEqual([
      'Now',
      'before the upgrade',
      'Pinned:all tests pass',
      'Before a restore',
      'parser, another way',
      'Do number 3',
      'The CSV parser loses the last row of a file without a line end.',
      'Do number 1',
      'parser',
    ]);
    await view.getByText('6 snapshots · 1.3 MB on disk').waitFor();
    await row('all tests pass').getByText('Goes on from “The CSV parser').waitFor();
    expect(await view.getByRole('button', { name: 'before the upgrade' }).getAttribute('title')).toBe(
      'By the agent',
    );
    await row('before the upgrade').getByText('Created by the agent · 6 changed files · +2 KB').waitFor();
    // The line that a restore left is a lane of its own, and so is the fork: both end in what they began with.
    const joining = view.locator('li', { hasText: 'The CSV parser loses' }).locator('.lanes path');
    await expect.poll(() => joining.count()).toBe(2);
    await picture(`snapshots-${theme}-${width}`);
    await view.getByRole('button', { name: 'Do number 3' }).click();
    await view.getByRole('list', { name: 'Files that differ' }).getByText('src/flush.ts').waitFor();
    await view.locator('.snapshot-details').getByText(`By Holdfast · ${TURN}: Do number 3`).waitFor();
    await picture(`snapshot-selected-${theme}-${width}`);
    expect(await view.evaluate('document.documentElement.scrollWidth')).toBe(width);
  });

  test('is the width of the window at a zoom of 200 %', async () => {
    const view = await open({ width: 450, height: 450 });
    await view.getByRole('button', { name: 'Do number 3' }).click();
    await view.getByText('src/flush.ts').waitFor();
    await picture('snapshots-zoomed');
    expect(await view.evaluate('document.documentElement.scrollWidth')).toBe(450);
  });

  test('is walked through with the arrow keys, and read in order', async () => {
    const view = await open();
    const list = view.getByRole('list', { name: 'Snapshots, newest first' });
    await list.waitFor();
    // One row is in the order of Tab; the others are reached from it.
    expect(await view.locator('.row-title[tabindex="0"]').count()).toBe(1);
    await view.getByRole('button', { name: 'Create Snapshot' }).focus();
    await view.keyboard.press('Tab');
    expect(await focused()).toBe('Now');
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowUp']) await view.keyboard.press(key);
    expect(await focused()).toBe('Pinned:all tests pass');
    await view.keyboard.press('End');
    expect(await focused()).toBe('parser');
    await view.keyboard.press('Home');
    expect(await focused()).toBe('Now');
    await view.keyboard.press('PageDown');
    expect(await focused()).toBe('parser');
    await view.keyboard.press('ArrowUp');
    await view.keyboard.press('Enter');
    const button = view.getByRole('button', { name: 'Do number 1', exact: true });
    await expect.poll(() => button.getAttribute('aria-expanded')).toBe('true');
    await view.keyboard.press('Tab');
    expect(await focused()).toBe('Restore…');
    await view.keyboard.press('Shift+Tab');
    await view.keyboard.press('Enter');
    await expect.poll(() => button.getAttribute('aria-expanded')).toBe('false');
    // What the lines show is in the text: the branch does not follow the row below it.
    await row('all tests pass').getByText('. Follows “The CSV parser').waitFor({ state: 'attached' });
    expect(await row('Do number 1').getByText('Follows').count()).toBe(0);
  });

  test('says what changed, and opens differences and files as they were', async () => {
    const view = await open();
    await view.getByRole('button', { name: 'Do number 3' }).click();
    const changes = view.getByRole('list', { name: 'Files that differ' });
    await changes.getByRole('button', { name: 'src/parser.ts', exact: true }).click();
    await changes.getByRole('button', { name: 'Open src/parser.ts as it was' }).click();
    await changes.getByRole('button', { name: 'src/lines.ts → src/rows.ts', exact: true }).click();
    // It is not in this snapshot.
    expect(await changes.getByRole('button', { name: 'Open src/old.ts as it was' }).count()).toBe(0);
    const [from, to] = [id(2), id(3)];
    await expect.poll(asked).toEqual([
      { name: 'openChange', params: { from, to, path: '/workspace/src/parser.ts', kind: 'modified' } },
      { name: 'openSnapshotFile', params: { snapshot: to, path: '/workspace/src/parser.ts' } },
      {
        name: 'openChange',
        params: {
          from,
          to,
          path: '/workspace/src/rows.ts',
          oldPath: '/workspace/src/lines.ts',
          kind: 'renamed',
        },
      },
    ]);
  });

  test('shows what differs from the newest snapshot alone when another one is created', async () => {
    let list: SnapshotPage = { ...BRANCHED, graph: noGraph };
    const change = (name: string): PageChanges => ({
      ...CHANGES,
      changes: [{ path: `/workspace/${name}`, kind: 'modified', type: 'file' }],
    });
    const view = await open({
      answers: {
        snapshots: () => list,
        changes: (params) => change((params as { from: string }).from === id(6) ? 'before.txt' : 'after.txt'),
      },
    });
    await view.getByRole('button', { name: 'Now' }).click();
    await view.getByRole('button', { name: 'before.txt', exact: true }).waitFor();
    list = { ...list, snapshots: [snapshot(7), ...list.snapshots] };
    await harness.send('snapshotsChanged', {});
    await view.getByRole('button', { name: 'after.txt', exact: true }).waitFor();
    expect(await view.getByRole('button', { name: 'before.txt', exact: true }).count()).toBe(0);
  });

  test('compares any two, the older one on the left, and one with now', async () => {
    const view = await open();
    await view.getByRole('button', { name: 'Do number 3' }).click();
    const other = view.getByRole('combobox', { name: 'Compared with' });
    const all = view.getByRole('button', { name: 'Open All Differences' });
    await all.click();
    await other.selectOption(id(6));
    await all.click();
    await other.selectOption(id(1));
    await all.click();
    await other.selectOption('now');
    await all.click();
    await expect
      .poll(() => namesOf('compareSnapshots'))
      .toEqual([
        { from: id(2), to: id(3) },
        { from: id(3), to: id(6) },
        { from: id(1), to: id(3) },
        { from: id(3), to: null },
      ]);
    await expect
      .poll(() => namesOf('changes'))
      .toEqual([
        { from: id(2), to: id(3) },
        { from: id(3), to: id(6) },
        { from: id(1), to: id(3) },
        { from: id(3), to: 'now' },
      ]);
    // The first snapshot of a fork is compared with what the fork began with.
    await view.getByRole('button', { name: 'Do number 1', exact: true }).click();
    await expect.poll(() => namesOf('changes').at(-1)).toEqual({ from: id(99), to: id(1) });
  });

  test('restores, forks, pins and deletes, and shows what became of it', async () => {
    let list = BRANCHED;
    const view = await open({
      answers: {
        snapshots: () => list,
        pinSnapshot: () => {
          const snapshots = list.snapshots.map((one) => (one.id === id(3) ? { ...one, pinned: true } : one));
          list = { ...list, snapshots };
          return {};
        },
        deleteSnapshot: () => {
          list = { ...list, snapshots: list.snapshots.filter((one) => one.id !== id(3)) };
          return { deleted: true };
        },
      },
    });
    await view.getByRole('button', { name: 'Do number 3' }).click();
    await view.getByRole('button', { name: 'Fork…' }).click();
    await view.getByRole('button', { name: 'Open a File…' }).click();
    await view.getByRole('button', { name: 'Pin', exact: true }).click();
    await view.getByRole('button', { name: 'Unpin' }).waitFor();
    await view.getByRole('button', { name: 'parser, another way' }).click();
    await view.getByRole('button', { name: 'Delete…' }).click();
    await view.getByRole('button', { name: 'Do number 3' }).waitFor({ state: 'detached' });
    await expect.poll(asked).toEqual([
      { name: 'forkSnapshot', params: { snapshot: id(3) } },
      { name: 'pickSnapshotFile', params: { snapshot: id(3) } },
      { name: 'pinSnapshot', params: { snapshot: id(3), pinned: true } },
      { name: 'openSession', params: { session: FORK } },
      { name: 'deleteSnapshot', params: { snapshot: id(3) } },
    ]);
  });

  test.each([
    ['dark', 900],
    ['light', 900],
    ['contrast', 900],
    ['dark', 300],
  ] as const)('previews a restore before it is done (%s, %d pixels)', async (theme, width) => {
    const answer = Promise.withResolvers<{ restored: boolean }>();
    const list = {
      ...BRANCHED,
      snapshots: BRANCHED.snapshots.map((one) => (one.id === id(3) ? { ...one, missing: 2 } : one)),
    };
    const view = await open({
      ...{ theme, width, list },
      answers: { restoreSnapshot: () => answer.promise },
    });
    await view.getByRole('button', { name: 'Do number 3' }).click();
    const open3 = view.getByRole('button', { name: 'Restore…' });
    await open3.focus();
    await view.keyboard.press('Enter');
    const preview = view.getByRole('region', { name: 'Preview of the restore' });
    await preview.getByText('1 added, 1 changed, 1 deleted, 1 renamed').waitFor();
    await preview.getByText('This snapshot lacks 2 files that could not be read').waitFor();
    expect(namesOf('changes').at(-1)).toEqual({ from: 'now', to: id(3) });
    await picture(`snapshot-restore-preview-${theme}-${width}`);
    expect(await view.evaluate('document.documentElement.scrollWidth')).toBe(width);
    await preview.getByRole('button', { name: 'src/parser.ts', exact: true }).click();
    // Nothing was restored by looking, and both ways out of it leave everything as it is.
    await view.keyboard.press('Escape');
    await preview.waitFor({ state: 'detached' });
    await open3.click();
    await preview.getByRole('button', { name: 'Cancel' }).click();
    await view.getByRole('combobox', { name: 'Compared with' }).waitFor();
    expect(namesOf('restoreSnapshot')).toEqual([]);

    await open3.click();
    await preview.getByRole('button', { name: 'Restore', exact: true }).click();
    await preview.getByRole('button', { name: 'Restoring…', disabled: true }).waitFor();
    await view.keyboard.press('Escape');
    answer.resolve({ restored: true });
    await preview.waitFor({ state: 'detached' });
    await expect.poll(asked).toEqual([
      {
        name: 'openChange',
        params: { from: 'now', to: id(3), path: '/workspace/src/parser.ts', kind: 'modified' },
      },
      { name: 'restoreSnapshot', params: { snapshot: id(3), seen: CHANGES.totals } },
    ]);
  });

  test('a restore is possible only when the files that it changes are shown', async () => {
    const compared = Promise.withResolvers<PageChanges>();
    const view = await open({ answers: { changes: () => compared.promise } });
    await view.getByRole('button', { name: 'Do number 3' }).click();
    await view.getByRole('button', { name: 'Restore…' }).click();
    const preview = view.getByRole('region', { name: 'Preview of the restore' });
    await preview.getByText('Comparing…').waitFor();
    await preview.getByRole('button', { name: 'Restore', exact: true, disabled: true }).waitFor();
    compared.resolve(CHANGES);
    await preview.getByRole('button', { name: 'Restore', exact: true, disabled: false }).waitFor();
  });

  test('a restore that was asked for in the conversation is previewed, however old its snapshot is', async () => {
    const all = Array.from({ length: 450 }, (_, at) => snapshot(450 - at));
    const view = await open({
      answers: {
        snapshots: (params) => {
          const from = Number((params as { cursor?: string }).cursor ?? 0);
          const next = from + 200 < all.length ? String(from + 200) : null;
          return { ...BRANCHED, snapshots: all.slice(from, from + 200), next, graph: noGraph };
        },
        snapshotBeforeTurn: () => ({ snapshot: id(7) }),
        restoreSnapshot: () => ({ restored: false }),
      },
    });
    await view.getByRole('tab', { name: 'Conversation' }).click();
    await view.getByRole('button', { name: 'Restore to Before…' }).first().click();
    const preview = view.getByRole('region', { name: 'Preview of the restore' });
    await preview.waitFor();
    await view.getByRole('button', { name: 'Do number 7', exact: true, expanded: true }).waitFor();
    expect(namesOf('changes').at(-1)).toEqual({ from: 'now', to: id(7) });
    // One that was not done leaves the preview, also after the page was hidden.
    await preview.getByRole('button', { name: 'Restore', exact: true }).click();
    await expect.poll(() => namesOf('restoreSnapshot')).toEqual([{ snapshot: id(7), seen: CHANGES.totals }]);
    await harness.reload();
    await harness.send('state', state());
    await preview.getByRole('button', { name: 'Restore', exact: true }).waitFor();
    // The preview is of that snapshot alone.
    await view.getByRole('button', { name: 'Do number 6', exact: true }).click();
    await view.getByRole('combobox', { name: 'Compared with' }).waitFor();
    expect(await preview.count()).toBe(0);
  });

  test('a deletion that was not confirmed, or failed, leaves the snapshot', async () => {
    let fails = false;
    const view = await open({
      answers: {
        deleteSnapshot: () => {
          if (fails) throw new Error('The snapshot was not deleted: a session was forked from it');
          return { deleted: false };
        },
      },
    });
    await view.getByRole('button', { name: 'Do number 3' }).click();
    await view.getByRole('button', { name: 'Delete…' }).click();
    await expect.poll(() => namesOf('deleteSnapshot')).toHaveLength(1);
    fails = true;
    await view.getByRole('button', { name: 'Delete…' }).click();
    await view.getByRole('alert').getByText('a session was forked from it').waitFor();
    await view.getByRole('button', { name: 'Do number 3' }).waitFor();
  });

  test('follows what happens, and stays where it was after the page was hidden', async () => {
    let list: SnapshotPage = { ...BRANCHED, snapshots: BRANCHED.snapshots.slice(3), graph: noGraph };
    const view = await open({ answers: { snapshots: () => list } });
    await view.getByRole('button', { name: 'Do number 3' }).click();
    list = BRANCHED;
    await harness.send('snapshotsChanged', {});
    await view.getByRole('button', { name: 'before the upgrade' }).waitFor();
    await harness.reload();
    await harness.send('state', state());
    await view.getByRole('button', { name: 'Do number 3', expanded: true }).waitFor();
    expect(await view.getByRole('tab', { name: 'Snapshots' }).getAttribute('aria-selected')).toBe('true');
  });

  test('says why it cannot be read, and reads it again', async () => {
    let fails = true;
    const view = await open({
      answers: {
        snapshots: () => {
          if (fails) throw new Error('The snapshots were not read: no supervisor answers');
          return BRANCHED;
        },
      },
    });
    await view.getByText('no supervisor answers').waitFor();
    fails = false;
    await view.getByRole('button', { name: 'Try Again' }).click();
    await view.getByRole('button', { name: 'Do number 3' }).waitFor();
  });

  test('a thousand snapshots are read a page at a time, and stay smooth', async () => {
    const all = Array.from({ length: 1000 }, (_, at) => snapshot(1000 - at));
    const restores = Array.from({ length: 60 }, (_, at) => ({
      ...{ seq: 9995 - at * 160, at: time(0), path: null, undo: null },
      snapshotId: id(Math.max(1, 990 - at * 16)),
    }));
    const pageAt = (cursor: number): SnapshotPage => ({
      snapshots: all.slice(cursor, cursor + 200),
      next: cursor + 200 < all.length ? String(cursor + 200) : null,
      graph: { ...noGraph, restores },
      usage: { snapshots: 1000, bytes: 2 ** 30, uniqueBytes: null },
    });
    const view = await open({
      answers: {
        snapshots: (params) => pageAt(Number((params as { cursor?: string }).cursor ?? 0)),
      },
    });
    const older = view.getByRole('button', { name: 'Show Older Snapshots' });
    for (let shown = 200; shown < 1000; shown += 200) {
      await expect.poll(() => view.locator('.row-title').count()).toBe(shown + 1);
      await older.click();
    }
    await expect.poll(() => view.locator('.row-title').count()).toBe(1001);
    await older.waitFor({ state: 'detached' });
    await view.getByRole('button', { name: 'Now', exact: true }).focus();
    const worst = view.evaluate<number>(`new Promise((resolve) => {
      let worst = 0, last = performance.now(), frames = 0;
      requestAnimationFrame(function frame(now) {
        worst = Math.max(worst, now - last);
        last = now;
        document.querySelector('.timeline').scrollTop += 400;
        if (++frames < 60) requestAnimationFrame(frame); else resolve(worst);
      });
    })`);
    expect(await worst).toBeLessThan(250);
    const begun = performance.now();
    await view.keyboard.press('End');
    await expect.poll(focused).toBe('Do number 1');
    expect(performance.now() - begun).toBeLessThan(2000);
    // A change while older pages are there keeps them.
    await harness.send('snapshotsChanged', {});
    await expect.poll(() => namesOf('snapshots').length).toBe(6);
    expect(await view.locator('.row-title').count()).toBe(1001);
  });

  test('an empty session is invited to make one', async () => {
    const view = await open({ list: { ...BRANCHED, snapshots: [], graph: noGraph } });
    await view.getByRole('heading', { name: 'No snapshots yet' }).waitFor();
    await view.getByRole('button', { name: 'Create Snapshot' }).click();
    await expect.poll(asked).toEqual([{ name: 'command', params: { command: 'createSnapshot' } }]);
  });

  test('nothing that an agent named acts', async () => {
    const list: SnapshotPage = {
      ...BRANCHED,
      snapshots: HOSTILE_TEXTS.slice(0, 40).map((text, at) =>
        snapshot(100 - at, { turn: { id: TURN, prompt: text.slice(0, 2000) } }),
      ),
      graph: noGraph,
    };
    const changes = HOSTILE_TEXTS.slice(0, 40).map((text, at) => ({
      ...{ path: `${at}${text.slice(0, 2000)}`, kind: 'added' as const, type: 'file' as const },
    }));
    const view = await open({ list, answers: { changes: () => ({ ...CHANGES, changes }) } });
    await view.locator('.row-title').nth(1).click();
    await expect.poll(() => view.locator('.changes li').count()).toBe(changes.length);
    expect(await view.locator('main img, main a, main script, main iframe').count()).toBe(0);
    expect(await view.locator('main').textContent()).not.toMatch(/[\u202e\u200b]/);
  });
});
