import { afterAll, beforeAll, expect, test } from 'vitest';
import type { FrameLocator } from 'playwright-core';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { User } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const ListedSchema = z.object({ snapshots: z.array(z.object({ id: z.string() })) });
const SEEN = { timeout: 30_000 };

let home: TestHome;
let session: string;
let person: User;

beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  const created = await home.runJson(['session', 'create', 'shell', '--name', 'notes']);
  session = CreatedSchema.parse(created).session.id;
  for (const word of ['one', 'two', 'three'])
    await home.runOk(['prompt', session, `echo ${word} > /workspace/word; echo ${word} >> /workspace/all`]);
  await home.runOk(['snapshot', 'create', session, '--label', 'three words']);
  person = await User.launch({ home: home.path, open: { folder: `holdfast://${session}.${home.id}/` } });
});
afterAll(async () => {
  await person.close();
  await home.dispose();
});

const word = async (): Promise<string> =>
  (await home.runOk(['workspace', 'cat', session, '/workspace/word'])).trim();

test('a person compares two snapshots on the page, restores one, and forks another', () =>
  person.screenshotOnFailure('session-page-snapshots', async () => {
    await person.runCommand('Agent: Open Session Page');
    const page = person.webview;
    await page.getByRole('button', { name: 'Find', exact: true }).click();
    await page.getByRole('searchbox', { name: 'Find in the conversation' }).fill('three');
    await page.locator('.row.found', { hasText: 'three' }).waitFor();
    await page.getByRole('tab', { name: 'Snapshots' }).click();
    const title = (text: string) => page.getByRole('button', { name: text, expanded: false }).first();
    await title('echo one').click();
    // After the first turn: what it wrote.
    const changes = page.getByRole('list', { name: 'Files that differ' });
    await changes.getByRole('button', { name: 'word', exact: true }).waitFor();
    await page
      .getByRole('combobox', { name: 'Compared with' })
      .selectOption({ label: await labelOf(page, 'three words') });
    await changes.getByText('word', { exact: true }).first().waitFor();
    await person.screenshot('session-page-graph-dark');
    await page.getByRole('button', { name: 'Open All Differences' }).click();
    await person.tab('notes:').first().waitFor();
    await person.page.locator('.tab', { hasText: /^notes$/ }).click();

    // The part and the snapshot are still shown.
    await page.getByRole('button', { name: 'echo one', expanded: true }).waitFor();
    await changes.getByRole('button', { name: 'Open word as it was' }).click();
    await person.page.locator('.view-line', { hasText: /^one$/ }).first().waitFor();
    await person.page.locator('.tab', { hasText: /^notes$/ }).click();
    await home.runOk(['exec', session, '--', 'sh', '-c', 'echo four > /workspace/word']);
    await page.getByRole('button', { name: 'Restore…' }).click();
    const preview = page.getByRole('region', { name: 'Preview of the restore' });
    await preview.getByText('2 changed').waitFor();
    await person.screenshot('session-page-restore-preview-dark');
    await preview.getByRole('button', { name: 'Restore', exact: true }).click();
    await expect.poll(word, SEEN).toBe('one');
    await page.getByText('Goes on from “echo one').waitFor();
    await page.getByRole('button', { name: 'Before a restore' }).waitFor();
    await person.clearToasts();
    await person.screenshotInBothThemes('session-page-restored', 640);

    await title('three words').click();
    await page.getByRole('button', { name: 'Pin', exact: true }).click();
    await page.getByRole('button', { name: 'Unpin' }).waitFor();
    await page.getByRole('button', { name: 'Fork…' }).click();
    await person.enterText('another way');
    await expect
      .poll(async () => JSON.stringify(await home.runJson(['session', 'list'])), SEEN)
      .toContain('another way');
    expect((await home.runOk(['workspace', 'cat', 'another way', '/workspace/word'])).trim()).toBe('three');
    expect(await word()).toBe('one');

    // The graph has the fork while the window still asks where to open it.
    const forked = page.getByRole('button', { name: 'another way' });
    await person.quickInput('Open Workspace').waitFor();
    await forked.waitFor();
    await person.page.keyboard.press('Escape');
    await person.quickInput('Open Workspace').waitFor({ state: 'hidden' });

    // The page of the fork has what happened before it, and leads back.
    await forked.click();
    await page.getByRole('heading', { name: 'another way' }).waitFor();
    await page.getByText('Forked from another session. What is above happened there.').waitFor();
    await page.getByText('echo three >').first().waitFor();
    await person.screenshot('session-page-fork-dark');
    await page.getByRole('tab', { name: 'Snapshots' }).click();
    await page.getByText('This session was forked from a snapshot of it').waitFor();
    await page.getByRole('button', { name: 'notes', exact: true }).click();
    await page.getByRole('heading', { name: 'notes' }).waitFor();

    // A fork that somebody makes elsewhere appears by itself.
    await page.getByRole('tab', { name: 'Snapshots' }).click();
    await forked.waitFor();
    const { snapshots } = ListedSchema.parse(await home.runJson(['snapshot', 'list', session]));
    await home.runOk(['snapshot', 'fork', snapshots[0]?.id ?? '', '--name', 'from elsewhere']);
    await page.getByRole('button', { name: 'from elsewhere' }).waitFor();
  }));

/** The text of an entry of the list, which begins with a time. */
async function labelOf(page: FrameLocator, text: string): Promise<string> {
  const options = await page.locator('.compare option').allTextContents();
  return options.find((option) => option.includes(text)) ?? text;
}
