import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/person.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });

/** What VS Code offers for files and folders of the machine that it runs on. */
const OF_THIS_MACHINE =
  /^(Open in (Integrated|External) Terminal|Reveal|Open Containing Folder|Install Extension VSIX)/;

test('the Explorer of a session offers nothing that would take a path of the session for one of this machine', async () => {
  const home = await TestHome.create();
  try {
    await home.succeed(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const { id } = CreatedSchema.parse(await home.json(['session', 'create', 'shell'])).session;
    const files = 'cd /workspace; mkdir src; echo text > evil.vsix; echo "echo evil" > run.sh';
    await home.succeed(['exec', id, '--', 'sh', '-c', files]);
    const local = await writeProject(home.projects, { 'mine.vsix': 'text\n', 'src/readme.txt': 'text\n' });
    await journey(
      'host-menus',
      { home: home.path, open: (server) => ({ folder: server.remote(local) }) },
      async (person) => {
        // A local folder has them, once it is trusted.
        await person.file('src').first().waitFor();
        await person.page.locator('.statusbar-item', { hasText: 'Restricted Mode' }).first().click();
        const trust = person.page.locator('.workspace-trust-editor .monaco-button', { hasText: 'Trust' });
        await trust.first().click();
        await person.page.locator('.workspace-trust-editor', { hasText: 'You trust this folder' }).waitFor();
        await person.page.locator('.monaco-modal-editor-block [aria-label^="Close"]').first().click();
        await person.page.locator('.monaco-modal-editor-block').waitFor({ state: 'hidden' });
        const offered = [
          ...(await person.menu(person.file('src').first())),
          ...(await person.menu(person.file('mine.vsix').first())),
        ];
        expect(offered.filter((one) => OF_THIS_MACHINE.test(one)).length).toBeGreaterThanOrEqual(2);

        await person.goTo({ folder: `holdfast://${id}/` });
        await person.unfold('workspace');
        await person.file('evil.vsix (agent)').first().waitFor();
        for (const name of ['workspace', 'src', 'run.sh', 'evil.vsix (agent)']) {
          const menu = await person.menu(person.file(name).first());
          expect(menu).toContain('Copy Path');
          expect([name, menu.filter((one) => OF_THIS_MACHINE.test(one))]).toEqual([name, []]);
        }
        await person.file('run.sh').first().dblclick();
        await person.line('echo evil').first().waitFor();
        await person.command('Terminal: Run Active File In Active Terminal');
        await person.toast('Only files on disk can be run in the terminal').first().waitFor();
      },
    );
  } finally {
    await home.end();
  }
});
