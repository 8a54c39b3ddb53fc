import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
/** 100,000 files in 100 folders, and a few with something to find in them. */
const GROW = `
import os
for folder in range(100, 200):
    os.makedirs(f'/workspace/many/{folder}')
    for file in range(1000):
        os.close(os.open(f'/workspace/many/{folder}/{file}.txt', os.O_CREAT))
os.makedirs('/workspace/src/.git')
def write(name, text):
    with open(f'/workspace/src/{name}', 'w') as file: file.write(text)
write('first.ts', 'one\\n  two\\nlet Needle = 1;\\n')
write('second.ts', 'needle(needle);\\nneedles\\n')
write('third.md', 'a needle\\n')
write('.git/config', 'needle\\n')
`;

test(
  'in a window of 100,000 files a person goes to a file, searches and replaces with the usual keys',
  { timeout: 420_000 },
  async () => {
    const home = await TestHome.create();
    try {
      await home.runOk(['deploy', await writeProject(home.projects, shellProject('large'))]);
      const created = await home.runJson(['session', 'create', 'large', '--name', 'large']);
      const { id } = CreatedSchema.parse(created).session;
      await home.runOk(['exec', id, '--', 'python3', '-c', GROW]);
      const text = (name: string) => home.runOk(['workspace', 'cat', id, `/workspace/src/${name}`]);
      await journey(
        'search-and-replace',
        { home: home.path, open: { folder: `holdfast://${id}/` } },
        async (person) => {
          const { page } = person;
          const { keyboard } = page;
          const input = page.locator('.quick-input-widget input:not([type=checkbox])').first();
          const active = page.locator('.quick-input-list .monaco-list-row.focused');
          /** The key is ours once the extension is there. */
          const goToFile = async (): Promise<void> => {
            const isOurs = async (): Promise<boolean> => {
              await keyboard.press('Escape');
              await keyboard.press('Control+P');
              const shown = person.quickInput('Files of').waitFor({ timeout: 2_000 });
              return shown.then(
                () => true,
                () => false,
              );
            };
            await expect.poll(isOurs, { timeout: 30_000 }).toBe(true);
          };
          /** Typed after it is for VS Code's own list. */
          const handOver = async (prefix: string): Promise<void> => {
            await keyboard.type(prefix);
            await person.quickInput('Files of').waitFor({ state: 'hidden' });
            await expect.poll(() => input.inputValue(), { timeout: 10_000 }).toBe(prefix);
          };
          await person.expandFolder('workspace');

          // Enter at once opens what was typed, not what the list showed before; the position is that behind the name.
          await goToFile();
          await active.first().waitFor();
          await keyboard.insertText('src/first.ts:2:3');
          await keyboard.press('Enter');
          await person.waitForStatus('Ln 2, Col 3');
          await goToFile();
          await input.fill('150/777.txt');
          await person.quickPick('777.txt').first().waitFor();
          await keyboard.press('Enter');
          await person.tab('777.txt').first().waitFor();

          // Without letters the files that were open come first, without the one that is shown; the key again goes on in the list.
          await goToFile();
          await person.quickPick('recently opened').first().waitFor();
          await active.filter({ hasText: 'first.ts' }).waitFor();
          await keyboard.press('Control+P');
          await active.filter({ hasNotText: 'first.ts' }).waitFor();
          await keyboard.press('Escape');

          // VS Code's prefixes lead to its own lists.
          await goToFile();
          await handOver('>');
          await keyboard.type('Help: Ab');
          await active.filter({ hasText: 'Help: About' }).waitFor();
          await keyboard.press('Escape');
          await goToFile();
          await handOver('?');
          await person.quickPick('Show and Run Commands').first().waitFor();
          await keyboard.press('Escape');
          await goToFile();
          await keyboard.insertText('src/first.ts');
          await keyboard.press('Enter');
          await person.tab('first.ts').first().waitFor();
          await goToFile();
          await handOver(':');
          await keyboard.type('3');
          await person.quickInput('Go to line 3').first().waitFor();
          await keyboard.press('Enter');
          await person.waitForStatus('Ln 3, Col 1');

          // Searching: not in .git, in the order of the paths, the number of the line first.
          const rows = person.sessionRow(/^\s*\d+: /);
          const found = async (texts: string[]): Promise<void> => {
            const shown = async () => (await rows.allTextContents()).map((one) => one.trim());
            await expect.poll(shown, { timeout: 60_000 }).toEqual(texts);
          };
          await keyboard.press('Control+Shift+F');
          await input.fill('needle');
          await keyboard.press('Enter');
          await found(['3: let Needle = 1;', '1: needle(needle);', '2: needles', '1: a needle']);
          await person.screenshot('search-results');
          await keyboard.press('Control+Shift+F');
          await input.waitFor();
          await keyboard.press('Alt+C');
          await keyboard.press('Alt+W');
          await person.quickInput('match case, whole word').waitFor();
          await person.screenshot('search-input');
          await keyboard.press('Enter');
          await found(['1: needle(needle);', '1: a needle']);
          await keyboard.press('Control+Shift+F');
          await input.waitFor();
          await page.locator('.quick-input-widget [aria-label="Files to Include…"]').click();
          await person.enterText('*.ts');
          await person.quickInput('in *.ts').waitFor();
          await keyboard.press('Alt+R');
          await person.quickInput('regular expression').waitFor();
          await input.fill('n(e+)dle');
          await keyboard.press('Enter');
          await found(['1: needle(needle);']);

          // Nothing is written before the person has seen it.
          await keyboard.press('Control+Shift+H');
          await person.quickInput('Replace').waitFor();
          await person.enterText('m$1dal');
          await person.editorLine('meedal(meedal);').first().waitFor();
          await person.screenshot('replace-preview');
          expect(await text('second.ts')).toBe('needle(needle);\nneedles\n');
          await person.runCommand('Agent: Apply Replacement');
          await found([]);
          await expect.poll(() => text('second.ts'), { timeout: 20_000 }).toBe('meedal(meedal);\nneedles\n');
          expect(await text('first.ts')).toBe('one\n  two\nlet Needle = 1;\n');

          // A file that changes between preview and applying is left alone, and named.
          await keyboard.press('Control+Shift+F');
          await input.fill('me+dal');
          await keyboard.press('Enter');
          await found(['1: meedal(meedal);']);
          await keyboard.press('Control+Shift+H');
          await person.quickInput('Replace').waitFor();
          await person.enterText('medal');
          await person.editorLine('medal(medal);').first().waitFor();
          await home.runOk(['exec', id, '--', 'sh', '-c', 'echo meedal > /workspace/src/second.ts']);
          await person
            .editorLine(/^meedal$/)
            .first()
            .waitFor();
          await person.runCommand('Agent: Apply Replacement');
          await person.toast('Nothing was replaced in 1 file: src/second.ts (changed)').first().waitFor();
          expect(await text('second.ts')).toBe('meedal\n');

          // The keys lead to our lists from a terminal too.
          await person.runCommand('Agent: Open Terminal');
          await person.terminalRow('$').first().waitFor();
          await page.locator('.terminal.xterm').first().click();
          await keyboard.press('Control+P');
          await person.quickInput('Files of').waitFor();
          await keyboard.press('Escape');
        },
      );
    } finally {
      await home.dispose();
    }
  },
);
