import type { Locator } from 'playwright-core';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';
import { type User, journey } from './harness/user.ts';

const SnapshotSchema = z.object({ id: z.string() });
const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const STORY = Array.from({ length: 16 }, (_, at) => `line ${at + 1}\n`).join('');
const POLL = { timeout: 30_000 };
const LOOK_MS = 1_000;

const DiffSchema = z.object({
  files: z.array(z.object({ file: z.object({ path: z.string(), state: z.string() }) })),
});

/** Of `review diff`, which compares nothing again. */
function statesOf(diff: unknown): Record<string, string> {
  const { files } = DiffSchema.parse(diff);
  return Object.fromEntries(files.map(({ file }) => [file.path.slice('/workspace/'.length), file.state]));
}

function edit(line: number, text: string): string {
  return `sed -i -e 's/^line ${line}$/${text}/' /workspace/story.txt`;
}

function marks(person: User): Locator {
  return person.page.locator('.editor-instance .margin-view-overlays .dirty-diff-glyph');
}

function row(person: User, name: string): Locator {
  return person.page.locator('.scm-view .monaco-list-row', { hasText: name });
}

/** An entry of the tree of changes. */
function entry(person: User, name: string): Locator {
  return person.page.locator('.customview-tree .monaco-list-row', { hasText: name }).first();
}

/** A change right below the folder that its path names. */
function entryAt(person: User, path: 'src/a' | 'src/b'): Locator {
  return person.page
    .locator(`.customview-tree .monaco-list-row[aria-level="3"]`)
    .nth(path === 'src/a' ? 0 : 1);
}

function checkbox(person: User, name: string): Locator {
  return entry(person, name).locator('.custom-view-tree-node-item-checkbox');
}

async function waitUntilChecked(person: User, name: string, checked: boolean): Promise<void> {
  await expect.poll(() => checkbox(person, name).getAttribute('aria-checked'), POLL).toBe(String(checked));
}

/**
 * VS Code draws the mark before the supervisor has answered, and the extension the tally after it. Then VS Code asks for the entries
 * below once more, and takes no click on them: a person who looks at the tally gives it that time.
 */
async function waitForTally(person: User, name: string, tally: string): Promise<void> {
  await entry(person, name).getByText(tally, { exact: true }).waitFor({ timeout: POLL.timeout });
  await person.page.waitForTimeout(LOOK_MS);
}

/**
 * Accepts a folder of two changes by its checkbox and by its keys, and withdraws that in between. What may run on the machine is
 * left to review.
 */
async function acceptInTree(
  person: User,
  states: () => Promise<Readonly<Record<string, string>>>,
): Promise<void> {
  const expectSource = async (state: string): Promise<void> => {
    await waitForTally(person, 'src', state === 'accepted' ? '2 of 2 accepted' : '0 of 2 accepted');
    await waitUntilChecked(person, 'src', state === 'accepted');
    expect(await states()).toMatchObject({ 'src/a': state, 'src/b': state, 'run.sh': 'to-review' });
  };
  const list = person.page.locator('.scm-viewlet .pane-header', { hasText: 'Changes' }).first();
  await list.click();
  await waitForTally(person, 'src', '0 of 2 accepted');
  await checkbox(person, 'src').click();
  await expectSource('accepted');
  await checkbox(person, 'src').click();
  await expectSource('to-review');
  await person.pressKeyOn(entry(person, 'src'), 'Alt+a');
  await expectSource('accepted');
  await person.page.keyboard.press('Alt+u');
  await expectSource('to-review');
  await clickQuickly(person, expectSource);
  await decideSelected(person, states);
  await checkbox(person, 'src').click();
  await expectSource('accepted');
  // Whoever does not want that has not done it: the checkbox shows what is true.
  await checkbox(person, 'Look Closely').click();
  await person.pressDialogButton('Accept 1 change', 'Cancel');
  await waitUntilChecked(person, 'Look Closely', false);
  await expectSource('accepted');
  await entry(person, 'Will Not Travel').click();
  await entry(person, 'ignored by git').waitFor();
  expect(await checkbox(person, 'ignored by git').count()).toBe(0);
  await person.screenshotInBothThemes('review-tree', 420);
  await list.click();
}

/** Somebody who knows what they want does not wait until one decision is drawn before they make the next. */
async function clickQuickly(person: User, expectSource: (state: string) => Promise<void>): Promise<void> {
  const [a, b] = [entryAt(person, 'src/a'), entryAt(person, 'src/b')];
  for (let round = 0; round < 3; round += 1) {
    for (const state of ['accepted', 'to-review']) {
      await a.locator('.custom-view-tree-node-item-checkbox').click();
      await person.page.waitForTimeout(round * 100);
      await b.locator('.custom-view-tree-node-item-checkbox').click();
      await expectSource(state);
    }
  }
}

/** A key is about all that is selected only while the focus is on one of them: arrow keys move it away. */
async function decideSelected(
  person: User,
  states: () => Promise<Readonly<Record<string, string>>>,
): Promise<void> {
  const { keyboard } = person.page;
  const selectBoth = async (): Promise<void> => {
    await person.pressKeyOn(entry(person, 'src'), 'ArrowDown');
    await keyboard.press('Shift+ArrowDown');
    await expect
      .poll(() => person.page.locator('.customview-tree .monaco-list-row.selected').count())
      .toBe(2);
  };
  await selectBoth();
  await keyboard.press('ArrowDown');
  await keyboard.press('Alt+a');
  await waitForTally(person, 'Changes', '1 of 3 accepted');
  expect(await states()).toMatchObject({
    'src/a': 'to-review',
    'src/b': 'to-review',
    'story.txt': 'accepted',
  });
  await keyboard.press('Alt+u');
  await waitForTally(person, 'Changes', '0 of 3 accepted');
  await selectBoth();
  await keyboard.press('Alt+a');
  await waitForTally(person, 'Changes', '2 of 3 accepted');
  expect(await states()).toMatchObject({
    'src/a': 'accepted',
    'src/b': 'accepted',
    'story.txt': 'to-review',
  });
  await keyboard.press('Alt+u');
  await waitForTally(person, 'Changes', '0 of 3 accepted');
}

function peek(person: User): Locator {
  return person.page.locator('.peekview-widget');
}

/** Shows the first change below the top of the editor, and presses a button above it. */
async function decideFirst(person: User, button: string): Promise<void> {
  await person.page.locator('.editor-instance .view-line', { hasText: 'line 1' }).first().click();
  await person.page.keyboard.press('Control+Home');
  await person.runCommand('Show Next Change');
  await peek(person).first().waitFor();
  await person.screenshot('review-gutter-dark');
  await peek(person).locator(`[aria-label^="${button}"]`).first().click();
}

test('a person accepts and rejects what the agent changed in the tree of changes and in the gutter of a file', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const created = await home.runJson(['session', 'create', 'shell', '--name', 'story']);
    const { id } = CreatedSchema.parse(created).session;
    const begin = 'cd /workspace && seq -f "line %g" 16 > story.txt && echo dist > .gitignore';
    await home.runOk(['exec', id, '--', 'sh', '-c', begin]);
    const base = SnapshotSchema.parse(await home.runJson(['snapshot', 'create', id])).id;
    const more =
      'cd /workspace && mkdir dist src && echo out > dist/out.js && echo a > src/a && echo b > src/b && echo : > run.sh && chmod +x run.sh';
    const edits = [edit(3, 'three'), edit(7, 'seven'), edit(11, 'eleven')];
    await home.runOk(['prompt', id, [...edits, more].join(' && ')]);
    await home.runOk(['review', id, '--base', `snapshot:${base}`]);
    const story = (): Promise<string> => home.runOk(['workspace', 'cat', id, 'story.txt']);
    const decided = async (): Promise<number> =>
      (await home.runOk(['session', 'events', id, '--type', 'review.decided', '--json'])).split('\n').length -
      1;
    await journey(
      'review-gutter',
      { home: home.path, open: { folder: `holdfast://${id}/` } },
      async (person) => {
        await person.runCommand('Agent: Review Changes');
        await person.tab('run.sh').first().waitFor();
        // What would run on the machine, and what git ignores, is listed twice: it is decided in its other group.
        await row(person, 'Will Not Travel').first().waitFor();
        await expect.poll(() => row(person, 'run.sh').count(), POLL).toBe(2);
        await expect.poll(() => row(person, 'out.js').count(), POLL).toBe(2);
        await person.screenshot('review-will-not-travel-dark');
        const staying = row(person, 'run.sh').last();
        await staying.hover();
        expect(await staying.locator('.actions .action-label').count()).toBe(0);
        await acceptInTree(person, async () => statesOf(await home.runJson(['review', 'diff', id])));
        const before = await decided();
        await home.runOk(['review', 'reject', id, 'run.sh']);
        await home.runOk(['review', 'accept', id, 'dist/out.js']);
        await expect.poll(() => row(person, 'run.sh').count(), POLL).toBe(1);
        expect(await row(person, 'out.js').count()).toBe(2);
        await person.runCommand('View: Close All Editors');
        await person.runCommand('View: Show Explorer');
        await person.expandFolder('workspace');
        await person.explorerRow('story.txt').first().dblclick();
        await person.editorLine('seven').first().waitFor();
        await expect.poll(() => marks(person).count(), POLL).toBe(3);

        await decideFirst(person, 'Accept This Hunk');
        await expect.poll(() => marks(person).count(), POLL).toBe(2);
        await person.waitForStatus('Ln 7, Col 1');
        expect(await decided()).toBe(before + 3);
        await decideFirst(person, 'Reject This Hunk');
        await expect.poll(() => marks(person).count(), POLL).toBe(1);
        await person.waitForStatus('Ln 11, Col 1');
        expect((await story()).split('\n').slice(0, 12)).toEqual(
          STORY.replace('line 3\n', 'three\n').replace('line 11\n', 'eleven\n').split('\n').slice(0, 12),
        );

        // What the agent did since then is marked at once, and decided once it was compared.
        await home.runOk(['prompt', id, edit(5, 'five')]);
        await expect.poll(() => marks(person).count(), POLL).toBe(2);
        await decideFirst(person, 'Accept This Hunk');
        await person.toast('story.txt is not as the review has it').first().waitFor();
        expect(await decided()).toBe(before + 4);
        await person.page.keyboard.press('Escape');
        await person.clearToasts();
        await person.page
          .locator('.statusbar-item', { hasText: 'story: 1 to review, outdated' })
          .first()
          .click();
        await person.page
          .locator('.statusbar-item', { hasText: /story: 1 to review$/ })
          .first()
          .waitFor();
        // The review goes on to its first change.
        await person.tab('story.txt (story: review)').first().waitFor();
        await person.runCommand('View: Close All Editors');
        await person.runCommand('View: Show Explorer');
        await person.explorerRow('story.txt').first().dblclick();
        await expect.poll(() => marks(person).count(), POLL).toBe(2);
        await decideFirst(person, 'Accept This Hunk');
        await expect.poll(() => marks(person).count(), POLL).toBe(1);
        await decideFirst(person, 'Accept This Hunk');
        await expect.poll(() => marks(person).count(), POLL).toBe(0);
        await person.page.locator('.statusbar-item', { hasText: 'story: all decided' }).first().waitFor();
        await person.runCommand('Agent: Undo Last Decision');
        await expect.poll(() => marks(person).count(), POLL).toBe(1);
      },
    );
  } finally {
    await home.dispose();
  }
});
