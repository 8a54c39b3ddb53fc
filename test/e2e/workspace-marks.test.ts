import { expect, test } from 'vitest';
import { z } from 'zod';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';
import { type User, journey } from './harness/user.ts';

const SnapshotSchema = z.object({ id: z.string() });
const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const POLL = { timeout: 60_000 };

const MarksSchema = z.record(z.string(), z.string());
/** Runs in the page. The letters are drawn by style sheets. */
const READ_MARKS = `Object.fromEntries(
  [...document.querySelectorAll('.explorer-folders-view .monaco-list-row .monaco-icon-label')].map((label) => {
    const { content } = getComputedStyle(label, '::after');
    const badge = content.replaceAll('"', '');
    return [label.textContent, /^[A-Z]$/.test(badge) ? badge : content === 'none' ? '' : '•'];
  }),
)`;

/** The letters beside the entries of the Explorer, by name; a dot for what has something marked below it. */
async function marks(person: User): Promise<Record<string, string>> {
  return MarksSchema.parse(await person.page.evaluate(READ_MARKS));
}

test('the Explorer marks what the last turn or an open review changed, and each entry point shows it', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const created = await home.runJson(['session', 'create', 'shell', '--name', 'marks']);
    const { id } = CreatedSchema.parse(created).session;
    const begin = [
      'cd /workspace && mkdir -p closed/deep && touch closed/deep/old',
      'for name in edited same script gone; do echo "$name" > "$name"; done; seq 50 > long',
    ];
    await home.runOk(['exec', id, '--', 'sh', '-c', begin.join('\n')]);
    const before = SnapshotSchema.parse(await home.runJson(['snapshot', 'create', id])).id;
    const work = [
      'cd /workspace && echo more >> edited && chmod +x script && rm gone && mv long moved',
      'echo new > added && echo deep > closed/deep/new && touch same',
    ];
    await home.runOk(['prompt', id, work.join('\n')]);
    const since = { added: 'A', closed: '•', edited: 'M', moved: 'R', same: '', script: 'P' };
    await journey('marks', { home: home.path, open: { folder: `holdfast://${id}/` } }, async (person) => {
      await person.expandFolder('workspace');
      await expect.poll(() => marks(person), POLL).toMatchObject(since);
      await person.reload();
      await person.expandFolder('workspace');
      await expect.poll(() => marks(person), POLL).toMatchObject(since);
      await person.screenshotInBothThemes('workspace-marks', 420);

      await person.chooseFromMenu(person.explorerRow('edited'), 'Compare with Before the Turn');
      await person.tab('edited (before the last turn ↔ now)').first().waitFor();
      await person.editorLine('more').first().waitFor();
      await person.chooseFromMenu(person.explorerRow('added'), 'Compare with Before the Turn');
      await person.toast('added was not there before the last turn').first().waitFor();
      await person.clearToasts();

      // What is rejected is as before.
      await home.runOk(['review', id, '--base', `snapshot:${before}`]);
      await home.runOk(['review', 'reject', id, 'edited']);
      await person.runCommand('Agent: Review Changes');
      await person.tab('(marks: review)').first().waitFor();
      await person.runCommand('View: Show Explorer');
      await expect.poll(() => marks(person), POLL).toMatchObject({ ...since, edited: '' });
      await person.runCommand('Close Review');
      await expect.poll(() => marks(person), POLL).toMatchObject(since);

      await person.runCommand('Agent: Run Turn');
      await person.enterText('cd /workspace && echo again > again && rm added');
      await person.pressToastButton('marks: ', 'See Changes');
      await person.tab('marks: ').first().waitFor();
      await person.editorLine('again').first().waitFor();
      await person.runCommand('View: Show Explorer');
      await expect
        .poll(() => marks(person), POLL)
        .toMatchObject({ again: 'A', closed: '', edited: '', moved: '', script: '' });
      await person.runCommand('View: Close All Editors');
      await person.openSessionsView();
      await person.chooseFromMenu(person.sessionRow('marks').first(), 'See Changes');
      await person.editorLine('again').first().waitFor();
    });
  } finally {
    await home.dispose();
  }
});
