import { join } from 'node:path';
import { expect, test } from 'vitest';
import { editorPaths } from '../editor/harness/editor-paths.ts';
import { TestHome } from '../setup/test-home.ts';
import { journey } from './harness/user.ts';

test('a person makes a session, works, stops it, and finds everything again', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', join(editorPaths().root, 'examples/counter')]);
    await home.runOk(['supervisor', 'stop']);
    await journey('come-back', { home: home.path, open: {} }, async (person) => {
      await person.openSessionsView();
      await person.page.locator('.pane-body', { hasText: 'No sessions yet' }).first().waitFor();
      await person.screenshot('no-sessions-dark');

      await person.runCommand('Agent: New Session');
      await person.pickItem('counter');
      await person.pressToastButton('New session of counter', 'Run Turn');
      await person.enterText('{}');
      await person
        .toast(/"count":1/)
        .first()
        .waitFor();
      await person.clearToasts();

      await person.runCommand('Agent: Stop');
      await person.pickItem('counter');
      await person
        .sessionRow(/counter.*·/)
        .first()
        .waitFor();
      await person.page.locator('.sidebar .monaco-list-row', { hasText: 'Earlier' }).first().waitFor();
      await person.screenshot('sessions-dark');

      const askHow = async (): Promise<void> => {
        await person.runCommand('Agent: Resume Session');
        await person.pickItem('counter');
        await person.quickPick('Clean').first().waitFor();
      };
      await person.screenshotInBothThemes('resume', 200, askHow);
      await askHow();
      await person.pickItem('Same files');

      // The window shows the page and the workspace now, and the file is there.
      await person.tab('counter').first().waitFor();
      await person.expandFolder('workspace');
      await person.explorerRow('count').first().dblclick();
      await person.editorLine('1').first().waitFor();

      // And the work goes on where it was.
      await person.runCommand('Agent: Run Turn');
      await person.enterText('{}');
      await person
        .toast(/"count":2/)
        .first()
        .waitFor();
      await person.editorLine('2').first().waitFor();
      await person.screenshotInBothThemes('workspace', 220);
      await person.clearToasts();

      // What the turn did is compared with what was before it, after the first turn, and taken back.
      await person.runCommand('Agent: Restore Snapshot');
      await person.pickItem(/^After/, 1);
      await person.page.locator('.monaco-dialog-box', { hasText: '1 changed' }).waitFor();
      await person.screenshot('restore-dark');
      await person.page.locator('.monaco-dialog-box .monaco-button', { hasText: 'Compare' }).click();
      await person.page.locator('.multiDiffEntry').first().waitFor();
      await person.screenshot('multi-diff-dark');
      await person.runCommand('View: Close All Editors');
      // A comparison has what was before on the left.
      await person.runCommand('Agent: Compare Snapshots');
      await person.pickItem(/^After/, 1);
      await person.pickItem(/^Now/);
      const side = (name: string) => person.page.locator(`.multiDiffEntry .editor.${name} .view-line`);
      await side('original').filter({ hasText: '1' }).first().waitFor();
      await side('modified').filter({ hasText: '2' }).first().waitFor();
      await person.screenshot('turn-diff-dark');
      await person.runCommand('View: Close All Editors');
      await person.runCommand('Agent: Restore Snapshot');
      await person.pickItem(/^After/, 1);
      await person.page.locator('.monaco-dialog-box .monaco-button', { hasText: 'Restore' }).click();
      await person.toast('was restored').first().waitFor();
      await person.explorerRow('count').first().dblclick();
      await person.editorLine('1').first().waitFor();

      // And that too.
      await person.pressToastButton('was restored', 'Undo');
      await person.pressDialogButton('1 changed', 'Restore');
      await person.editorLine('2').first().waitFor();
    });
    const list = (await home.runJson(['session', 'list'])) as { sessions: { profile: string }[] };
    expect(list.sessions.map(({ profile }) => profile)).toEqual(['counter']);
  } finally {
    await home.dispose();
  }
});
