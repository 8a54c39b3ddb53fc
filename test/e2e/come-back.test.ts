import { join } from 'node:path';
import { expect, test } from 'vitest';
import { editorPlaces } from '../editor/harness/places.ts';
import { TestHome } from '../setup/home.ts';
import { journey } from './harness/person.ts';

test('a person makes a session, works, stops it, and finds everything again', async () => {
  const home = await TestHome.create();
  try {
    await home.succeed(['deploy', join(editorPlaces().root, 'examples/counter')]);
    await home.succeed(['supervisor', 'stop']);
    await journey('come-back', { home: home.path, open: {} }, async (person) => {
      await person.sessions();
      await person.page.locator('.pane-body', { hasText: 'No sessions yet' }).first().waitFor();
      await person.shot('no-sessions-dark');

      await person.command('Agent: New Session');
      await person.pick('counter');
      await person.press('New session of counter', 'Run Turn');
      await person.answer('{}');
      await person
        .toast(/"count":1/)
        .first()
        .waitFor();
      await person.clearToasts();

      await person.command('Agent: Stop');
      await person.pick('counter');
      await person
        .session(/counter.*·/)
        .first()
        .waitFor();
      await person.page.locator('.sidebar .monaco-list-row', { hasText: 'Earlier' }).first().waitFor();
      await person.shot('sessions-dark');

      await person.command('Agent: Resume Session');
      await person.pick('counter');
      await person.quickPick('Clean').first().waitFor();
      await person.shot('resume-dark');
      await person.pick('Same files');

      // The window shows the workspace now, and the file is there.
      await person.unfold('workspace');
      await person.file('count').first().dblclick();
      await person.line('1').first().waitFor();

      // And the work goes on where it was.
      await person.command('Agent: Run Turn');
      await person.answer('{}');
      await person
        .toast(/"count":2/)
        .first()
        .waitFor();
      await person.line('2').first().waitFor();
      await person.shot('workspace-dark');
      await person.clearToasts();

      // What the turn did is compared with what was before it, and taken back.
      await person.command('Agent: Restore Snapshot');
      await person.pick(/^Before/);
      await person.page.locator('.monaco-dialog-box', { hasText: '1 changed' }).waitFor();
      await person.shot('restore-dark');
      await person.page.locator('.monaco-dialog-box .monaco-button', { hasText: 'Compare' }).click();
      await person.page.locator('.multiDiffEntry').first().waitFor();
      await person.shot('multi-diff-dark');
      await person.command('View: Close All Editors');
      // A comparison has what was before on the left.
      await person.command('Agent: Compare Snapshots');
      await person.pick(/^Before/);
      await person.pick(/^Now/);
      const side = (name: string) => person.page.locator(`.multiDiffEntry .editor.${name} .view-line`);
      await side('original').filter({ hasText: '1' }).first().waitFor();
      await side('modified').filter({ hasText: '2' }).first().waitFor();
      await person.shot('turn-diff-dark');
      await person.command('View: Close All Editors');
      await person.command('Agent: Restore Snapshot');
      await person.pick(/^Before/);
      await person.page.locator('.monaco-dialog-box .monaco-button', { hasText: 'Restore' }).click();
      await person.toast('is restored').first().waitFor();
      await person.file('count').first().dblclick();
      await person.line('1').first().waitFor();

      // And that too.
      await person.press('is restored', 'Undo');
      await person.decide('1 changed', 'Restore');
      await person.line('2').first().waitFor();
    });
    const list = (await home.json(['session', 'list'])) as { sessions: { profile: string }[] };
    expect(list.sessions.map(({ profile }) => profile)).toEqual(['counter']);
  } finally {
    await home.end();
  }
});
