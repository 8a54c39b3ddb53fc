import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Locator } from 'playwright-core';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';
import { type User, journey } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const ListSchema = z.object({ artifacts: z.array(z.object({ name: z.string(), files: z.number() })) });

/** Opens the list of artifacts, and presses a button of an entry. */
async function pressInList(person: User, name: string, button: string): Promise<void> {
  await person.runCommand('Agent: Artifacts…');
  await pressButton(person.quickPick(name).first(), button);
}

async function pressButton(row: Locator, button: string): Promise<void> {
  await row.hover();
  await row.locator(`.action-label[aria-label="${button}"]`).click();
}

test('a person keeps one file, and verifies, exports and deletes it with the buttons of the list', async () => {
  const home = await TestHome.create();
  const local = await mkdtemp(join(tmpdir(), 'holdfast-artifacts-'));
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const { id } = CreatedSchema.parse(await home.runJson(['session', 'create', 'shell'])).session;
    await home.runOk(['exec', id, '--', 'sh', '-c', 'cd /workspace && echo one > "a*b" && echo two > axb']);
    const kept = async (): Promise<z.infer<typeof ListSchema>['artifacts']> =>
      ListSchema.parse(await home.runJson(['artifact', 'list'])).artifacts;
    const open = { folder: `holdfast://${id}/` };
    await journey('artifacts', { home: home.path, open }, async (person) => {
      await person.expandFolder('workspace');
      // The name is not taken for a pattern.
      await person.explorerRow('a*b').waitFor();
      await person.chooseFromMenu(person.explorerRow('a*b'), 'Keep as Artifact…');
      await person.quickInput('Keep as artifact').waitFor();
      await person.enterText('only one');
      await person.toast('Kept “only one”: 1 file').first().waitFor();
      await person.clearToasts();

      await pressInList(person, 'only one', 'Verify');
      await person.editorLine('Each file is what was kept.').first().waitFor();

      const folder = join(local, 'exported');
      await pressInList(person, 'only one', 'Export…');
      await person.chooseFile(folder);
      await expect.poll(() => readdir(folder).catch(() => []), { timeout: 30_000 }).toEqual(['a*b']);
      expect(await readFile(join(folder, 'a*b'), 'utf8')).toBe('one\n');
      await person.clearToasts();

      await pressInList(person, 'only one', 'Delete…');
      await person.pressDialogButton('Delete the artifact “only one”?', 'Cancel');
      // The list comes back: what was not deleted is still there.
      await person.quickPick('only one').first().waitFor();
      expect(await kept()).toMatchObject([{ name: 'only one', files: 1 }]);
      await person.screenshotInBothThemes('artifacts', 300, async () => {
        await person.runCommand('Agent: Artifacts…');
        await person.quickPick('only one').first().hover();
      });
      await pressInList(person, 'only one', 'Delete…');
      await person.pressDialogButton('Delete the artifact “only one”?', 'Delete');
      await person.quickPick('Keep as Artifact…').first().waitFor();
      expect(await person.quickPick('only one').count()).toBe(0);
      expect(await kept()).toEqual([]);
    });
  } finally {
    await rm(local, { recursive: true, force: true });
    await home.dispose();
  }
});
