import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });

/** What VS Code offers for files and folders of the machine that it runs on. */
const OF_THIS_MACHINE =
  /^(Open in (Integrated|External) Terminal|Reveal|Open Containing Folder|Install Extension VSIX)/;

test('the Explorer of a session offers nothing that would take a path of the session for one of this machine', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const { id } = CreatedSchema.parse(await home.runJson(['session', 'create', 'shell'])).session;
    const files = 'cd /workspace; mkdir src; echo text > evil.vsix; echo "echo evil" > run.sh';
    await home.runOk(['exec', id, '--', 'sh', '-c', files]);
    const local = await writeProject(home.projects, { 'mine.vsix': 'text\n', 'src/readme.txt': 'text\n' });
    await journey(
      'host-menus',
      { home: home.path, open: (server) => ({ folder: server.remote(local) }) },
      async (person) => {
        // A local folder has them, once it is trusted.
        await person.explorerRow('src').first().waitFor();
        await person.page.locator('.statusbar-item', { hasText: 'Restricted Mode' }).first().click();
        const trust = person.page.locator('.workspace-trust-editor .monaco-button', { hasText: 'Trust' });
        await trust.first().click();
        await person.page.locator('.workspace-trust-editor', { hasText: 'You trust this folder' }).waitFor();
        await person.page.locator('.monaco-modal-editor-block [aria-label^="Close"]').first().click();
        await person.page.locator('.monaco-modal-editor-block').waitFor({ state: 'hidden' });
        const offered = [
          ...(await person.listMenu(person.explorerRow('src').first())),
          ...(await person.listMenu(person.explorerRow('mine.vsix').first())),
        ];
        expect(offered.filter((one) => OF_THIS_MACHINE.test(one)).length).toBeGreaterThanOrEqual(2);

        await person.open({ folder: `holdfast://${id}/` });
        await person.expandFolder('workspace');
        await person.explorerRow('evil.vsix (agent)').first().waitFor();
        for (const name of ['workspace', 'src', 'run.sh', 'evil.vsix (agent)']) {
          const menu = await person.listMenu(person.explorerRow(name).first());
          expect(menu).toContain('Copy Path');
          expect([name, menu.filter((one) => OF_THIS_MACHINE.test(one))]).toEqual([name, []]);
        }
        await person.explorerRow('run.sh').first().dblclick();
        await person.editorLine('echo evil').first().waitFor();
        await person.runCommand('Terminal: Run Active File In Active Terminal');
        await person.toast('Only files on disk can be run in the terminal').first().waitFor();
      },
    );
  } finally {
    await home.dispose();
  }
});
