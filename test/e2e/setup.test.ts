// The setup of a profile, seen from the editor: it fails, its log says why, it is mended and run again.
import { rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';

const SessionsSchema = z.object({ sessions: z.array(z.object({ id: z.string() })).length(1) });

const profileWith = (run: string): string =>
  `name: prepared\nagent: { protocol: command, command: [sh] }\npersistence: persistent\nsetup: { run: '${run}' }\n`;

test('a setup that fails leads to its log; mended, it can be run again', async () => {
  const home = await TestHome.create();
  const folder = await writeProject(home.projects, {
    'holdfast.yaml': profileWith('echo BEFORE; cat nothing'),
  });
  const name = basename(folder);
  try {
    await journey(
      'setup',
      { home: home.path, open: (server) => ({ folder: server.remote(folder) }), colorScheme: 'light' },
      async (person) => {
        const { page } = person;
        await person.runCommand('Workspaces: Manage Workspace Trust');
        await page.locator('.workspace-trust-editor .monaco-button', { hasText: 'Trust' }).first().click();
        await page.locator('.statusbar-item', { hasText: 'Restricted Mode' }).waitFor({ state: 'detached' });
        await person.runCommand('View: Close All Editors');

        await person.runCommand('Agent: New Session');
        await person.pickItem(new RegExp(`${name}.*deploy this folder`));
        await person.pressToastButton('The setup failed at run', 'Show Setup Log');
        await person.tab('prepared setup.log').first().waitFor();
        await page.locator('.view-lines', { hasText: 'BEFORE' }).waitFor();
        await page.locator('.view-lines', { hasText: /\[failed:\sThe\ssetup\sfailed\sat\srun/ }).waitFor();
        await person.screenshot('setup-log-light');

        await writeFile(join(folder, 'holdfast.yaml'), profileWith('echo AFTER; touch made'));
        await person.runCommand('Agent: New Session');
        await person.pickItem(new RegExp(`${name}.*deploy this folder`));
        await person.toast('New session of').first().waitFor({ timeout: 60_000 });
        await person.clearToasts();
        const { sessions } = SessionsSchema.parse(await home.runJson(['session', 'list']));
        expect(await home.runOk(['workspace', 'ls', sessions[0]?.id ?? ''])).toContain('made');

        await person.runCommand('Agent: Run Setup Again');
        await person.pickItem('prepared');
        await page.locator('.view-lines', { hasText: 'AFTER' }).waitFor({ timeout: 60_000 });
        await person.toast('New sandboxes of prepared start from the new image').first().waitFor({
          timeout: 60_000,
        });
      },
    );
  } finally {
    await home.dispose();
    await rm(folder, { recursive: true, force: true });
  }
});
