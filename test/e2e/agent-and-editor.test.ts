import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { User } from './harness/user.ts';

/** Without anybody who refreshes it would never be shown; on a machine with nothing else to do it takes some 100 ms. */
const LIVE_MS = 10_000;

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const CONFLICT = 'while you were editing it. Your changes are not saved yet';
/** VS Code keeps unsaved text a second after it was typed. */
const KEPT_MS = 2_500;
/** Until a notification has come up, for its picture. */
const TOAST_MS = 500;

let home: TestHome;
let session: string;
let person: User;

/** What the agent does in a turn of its own; gives what it printed. */
function agent(script: string): Promise<string> {
  return home.runOk(['prompt', session, script]);
}

/** Opens a file of the Explorer and begins to type in it. */
async function typeInto(name: string, line: string, text: string): Promise<void> {
  await person.expandFolder('workspace');
  await person.explorerRow(name).first().dblclick();
  await person.typeAtTop(line, text);
  await person.tab(name, 'dirty').waitFor();
}

beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  session = CreatedSchema.parse(await home.runJson(['session', 'create', 'shell', '--name', 'notes'])).session
    .id;
  await agent(
    'cd /workspace && for f in live both mine theirs again; do echo "first of $f" > $f.md; done; seq 5 > lines.md; mkdir docs; echo "first of plan" > docs/plan.md',
  );
  person = await User.launch({ home: home.path, open: { folder: `holdfast://${session}.${home.id}/` } });
});
afterAll(async () => {
  await person.close();
  await home.dispose();
});

function told(story: () => Promise<void>, name: string): Promise<void> {
  return person.screenshotOnFailure(name, story);
}

test('what a person saves the agent reads, and what the agent writes the person sees', () =>
  told(async () => {
    await typeInto('live.md', 'first of live', 'typed by a person, ');
    await person.save('live.md');
    expect(await agent('cat /workspace/live.md')).toContain('typed by a person, first of live');

    await agent(
      'echo "and the agent" >> /workspace/live.md; mkdir /workspace/made; touch /workspace/made/by-the-agent',
    );
    await person.editorLine('and the agent').first().waitFor({ timeout: LIVE_MS });
    await person.explorerRow('made').first().waitFor({ timeout: LIVE_MS });
    await agent('rm -r /workspace/made');
    await person.explorerRow('made').first().waitFor({ state: 'detached', timeout: LIVE_MS });
  }, 'live'));

test('who changes the same file as the agent is asked once, and loses nothing', () =>
  told(async () => {
    const change = async (name: string, theirs: string): Promise<void> => {
      await typeInto(`${name}.md`, `first of ${name}`, 'MY ');
      // As many bytes as before: times and sizes do not tell the two apart.
      await agent(`echo "${theirs}" > /workspace/${name}.md`);
      await person.page.keyboard.press('Control+S');
      await person.toast(CONFLICT).first().waitFor();
      expect(await person.page.locator('.notification-toast').count()).toBe(1);
    };

    await change('both', 'agent wrote it');
    await sleep(TOAST_MS);
    await person.screenshot('conflict-dark');
    await person.pressToastButton(CONFLICT, 'Compare');
    await person.page.locator('.monaco-diff-editor .view-line', { hasText: 'agent wrote it' }).waitFor();
    await person.clearToasts();
    await person.screenshot('compare-dark');
    expect(await agent('cat /workspace/both.md')).toContain('agent wrote it');
    // Merging is editing the right side.
    await person.page.locator('.modified-in-monaco-diff-editor .view-line').first().click();
    await person.page.keyboard.press('Control+End');
    await person.page.keyboard.type('agent wrote it');
    await person.page.keyboard.press('Control+S');
    await person.tab('both.md').first().waitFor();
    expect(await agent('cat /workspace/both.md')).toMatch(/MY first of both\nagent wrote it/);
    await person.runCommand('View: Close All Editors');

    await change('mine', 'agent wrote it');
    await person.pressToastButton(CONFLICT, 'Overwrite');
    await person.tab('mine.md').waitFor();
    expect(await agent('cat /workspace/mine.md')).toContain('MY first of mine');

    await change('theirs', 'agent wrote that');
    await person.pressToastButton(CONFLICT, "Use Session's Version");
    await person.tab('theirs.md').waitFor();
    await person.editorLine('agent wrote that').first().waitFor();
    expect(await agent('cat /workspace/theirs.md')).toContain('agent wrote that');
    await person.clearToasts();
  }, 'conflict'));

test('unsaved text stays with its file when a rename of the folder above it is undone in the Explorer', () =>
  told(async () => {
    await person.expandFolder('workspace');
    await person.expandFolder('docs');
    await typeInto('plan.md', 'first of plan', 'typed in ');
    await person.pressKeyOn(person.explorerRow('docs').first(), 'F2');
    await person.page.locator('.explorer-item-edited input').fill('papers');
    await person.page.keyboard.press('Enter');
    await person.explorerRow('papers').first().waitFor();
    await person.pressKeyOn(person.explorerRow('papers').first(), 'Control+Z');
    await person.explorerRow('docs').first().waitFor();
    await person.tab('plan.md', 'dirty').waitFor();
    await person.editorLine('typed in first of plan').first().click();
    await person.save('plan.md');
    expect(await agent('cat /workspace/docs/plan.md')).toContain('typed in first of plan');
  }, 'undone-rename'));

test('a reload in the middle of a turn keeps unsaved text, and what it began from', () =>
  told(async () => {
    await typeInto('lines.md', '1', 'TYPED ');
    await typeInto('again.md', 'first of again', 'UNSAVED ');
    const turn = agent(
      'cd /workspace; echo "agent in between" > again.md; echo 6 >> lines.md; sleep 6; echo done > late.md',
    );
    await sleep(KEPT_MS);
    await person.reload();
    await person.tab('again.md', 'dirty').waitFor();
    await person.tab('again.md', 'dirty').click();
    await person.editorLine('UNSAVED first of again').first().waitFor();
    await person.editorLine('UNSAVED first of again').first().click();
    await person.page.keyboard.press('Control+S');
    await person.toast(CONFLICT).first().waitFor();
    expect(await home.runOk(['exec', session, '--', 'cat', '/workspace/again.md'])).toContain(
      'agent in between',
    );
    await person.pressToastButton(CONFLICT, 'Overwrite');
    await person.tab('again.md').waitFor();
    expect(await home.runOk(['exec', session, '--', 'cat', '/workspace/again.md'])).toContain('UNSAVED');
    // Other lines than the agent's are merged, as they would have been without a reload.
    await person.tab('lines.md', 'dirty').click();
    await person.editorLine('TYPED 1').first().click();
    await person.save('lines.md');
    expect(await home.runOk(['exec', session, '--', 'cat', '/workspace/lines.md'])).toBe(
      'TYPED 1\n2\n3\n4\n5\n6\n',
    );
    await turn;
    await person.expandFolder('workspace');
    await person.explorerRow('late.md').first().waitFor({ timeout: LIVE_MS });
  }, 'reload'));
