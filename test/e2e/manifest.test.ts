import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const EnvelopeSchema = z.looseObject({ payload: z.string() });

test('a person saves the manifest from the page, verifies it, and sees it fail after it was changed', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const created = await home.runJson(['session', 'create', 'shell', '--name', 'notes']);
    const { id } = CreatedSchema.parse(created).session;
    await home.runOk(['prompt', id, 'echo one > /workspace/word']);
    const file = join(home.projects, 'notes.manifest.json');
    await journey('manifest', { home: home.path, open: { folder: `holdfast://${id}/` } }, async (person) => {
      await person.runCommand('Agent: Open Session Page');
      const page = person.page.frameLocator('iframe.webview.ready').frameLocator('iframe');
      await page.getByRole('tab', { name: 'Manifest' }).click();
      await page.getByText('Signed with the key of this home').waitFor();
      await page.getByRole('row', { name: /^history \d+ events? the session is deleted/ }).waitFor();
      await page.getByRole('button', { name: 'Save Manifest…' }).click();
      await person.chooseFile(file);
      await person.toast('The manifest is saved').first().waitFor();
      await person.clearToasts();

      const verify = async (): Promise<void> => {
        await person.runCommand('Agent: Verify Manifest…');
        await person.chooseFile(file);
        await person.pickItem('The Key of this machine');
      };
      await verify();
      await person.editorLine('Valid: signed with the key').first().waitFor();
      const envelope = EnvelopeSchema.parse(JSON.parse(await readFile(file, 'utf8')));
      const statement = Buffer.from(envelope.payload, 'base64').toString('utf8');
      expect(statement).toContain('"notes"');
      const payload = Buffer.from(statement.replace('"notes"', '"other"')).toString('base64');
      await writeFile(file, JSON.stringify({ ...envelope, payload }));
      await verify();
      await person.editorLine('NOT VALID for the key of this machine').first().waitFor();
      await person.screenshot('manifest-changed-dark');
    });
  } finally {
    await home.dispose();
  }
});
