import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/person.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });

async function createSession(home: TestHome, name: string): Promise<string> {
  await home.succeed(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  return CreatedSchema.parse(await home.json(['session', 'create', 'shell', '--name', name])).session.id;
}

test("the Git of VS Code, which would act on this machine's root directory, is off in a session window and on in others", async () => {
  const home = await TestHome.create();
  try {
    const id = await createSession(home, 'no-git');
    const local = await writeProject(home.projects, { 'readme.txt': 'a local file\n' });
    await journey(
      'git-off',
      { home: home.path, open: (server) => ({ folder: server.remote(local) }) },
      async (person) => {
        const sourceControl = person.page.locator('.activitybar [aria-label^="Source Control"]').first();
        const offersRepository = person.page.locator('.scm-viewlet .monaco-button', {
          hasText: 'Initialize Repository',
        });
        await person.page.locator('.statusbar-item', { hasText: 'Restricted Mode' }).first().click();
        await person.page
          .locator('.workspace-trust-editor .monaco-button', { hasText: 'Trust' })
          .first()
          .click();
        await person.page.locator('.workspace-trust-editor', { hasText: 'You trust this folder' }).waitFor();
        await person.page.locator('.monaco-modal-editor-block [aria-label^="Close"]').first().click();
        await person.page.locator('.monaco-modal-editor-block').waitFor({ state: 'hidden' });
        await sourceControl.click();
        await offersRepository.first().waitFor({ timeout: 60_000 });
        expect(await person.isOffered('Git: Initialize Repository')).toBe(true);

        await person.goTo({ folder: `holdfast://${id}/` });
        await person.file('workspace').first().waitFor({ timeout: 60_000 });
        await sourceControl.click();
        await person.page
          .locator('.scm-viewlet', { hasText: 'enable Git' })
          .first()
          .waitFor({ timeout: 60_000 });
        expect(await offersRepository.count()).toBe(0);
        for (const command of ['Git: Initialize Repository', 'Git: Clone', 'Git: Open Repository']) {
          expect([command, await person.isOffered(command)]).toEqual([command, false]);
        }
        await person.shot('git-off');
      },
    );
  } finally {
    await home.end();
  }
});
