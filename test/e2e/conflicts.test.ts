import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const SEVERAL = 'The session changed several files while you were editing them';
const ONE = 'while you were editing it. Your changes are not saved yet';
const NAMES = ['one', 'two', 'three', 'four', 'five'].map((name) => `${name}.md`);

test('files that the agent rewrites under autosave: one question for all, nothing lost, nothing closed unasked', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const created = await home.runJson(['session', 'create', 'shell', '--name', 'notes']);
    const { id } = CreatedSchema.parse(created).session;
    const agent = (script: string): Promise<string> => home.runOk(['prompt', id, script]);
    const inFiles = (script: string): string =>
      `cd /workspace && for f in ${NAMES.join(' ')}; do ${script}; done`;
    await agent(inFiles('echo "first of $f" > $f'));
    await journey('conflicts', { home: home.path, open: { folder: `holdfast://${id}/` } }, async (person) => {
      await person.expandFolder('workspace');
      for (const name of NAMES) {
        await person.explorerRow(name).first().dblclick();
        await person.typeAtTop(`first of ${name}`, 'MY ');
        await person.tab(name, 'dirty').waitFor();
      }
      await agent(inFiles('echo "agent wrote it" > $f'));
      await person.runCommand('File: Toggle Auto Save');
      await person.toast(SEVERAL).first().waitFor();
      expect(await person.page.locator('.notification-toast').count()).toBe(1);
      await person.waitForStatus('5 conflicts');
      for (const name of NAMES) await person.tab(name, 'dirty').waitFor();
      await person.screenshot('conflicts-dark');
      expect(await agent(inFiles('cat $f'))).not.toContain('MY');

      // As usual, VS Code asks what is to become of unsaved files.
      await person.runCommand('View: Close All Editors');
      await person.pressDialogButton(/save the changes/, 'Cancel');
      for (const name of NAMES) await person.tab(name, 'dirty').waitFor();

      await person.runCommand('Agent: Review Conflicts…');
      await person.pickItem('one.md');
      await person.page.locator('.monaco-diff-editor .view-line', { hasText: 'agent wrote it' }).waitFor();
      await person.screenshot('conflict-compared-dark');
      await person.page.locator('.editor-actions').getByText("Use Session's Version").click();
      await person.tab('one.md').first().waitFor();
      await person.page.locator('.monaco-diff-editor').waitFor({ state: 'detached' });
      await person.waitForStatus('4 conflicts');
      // The tabs move when that of the comparison goes.
      await person.tab('in the session').waitFor({ state: 'detached' });

      // Saving by hand asks again, about that file.
      await person.tab('two.md', 'dirty').click();
      await person.editorLine('MY first of two.md').first().click();
      await person.page.keyboard.press('Control+S');
      await person.pressToastButton(ONE, 'Overwrite');
      await person.tab('two.md').first().waitFor();

      await person.runCommand('Agent: Review Conflicts…');
      await person.pickItem('Overwrite All');
      for (const name of NAMES) await person.tab(name).first().waitFor();
      await person.page.locator('.statusbar-item', { hasText: 'conflict' }).waitFor({ state: 'hidden' });
      const said = await agent(inFiles('echo "$f: $(cat $f)"'));
      expect(said).toContain('one.md: agent wrote it');
      for (const name of NAMES.slice(1)) expect(said).toContain(`${name}: MY first of ${name}`);
    });
  } finally {
    await home.dispose();
  }
});
