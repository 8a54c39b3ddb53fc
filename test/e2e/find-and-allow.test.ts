import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const PROFILE = 'persistence: persistent\negress: [{ host: allowed.example }]\n';

test('a person finds files and text, sees what a turn changed, and lets a session out when it asks', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('reader', PROFILE))]);
    const created = await home.runJson(['session', 'create', 'reader', '--name', 'reader']);
    const { id } = CreatedSchema.parse(created).session;
    await home.runOk([
      'prompt',
      id,
      'mkdir -p /workspace/src && cd /workspace/src && echo old > untouched.md && printf "one\\ntwo needle\\n" > haystack.md',
    ]);
    await journey(
      'find-and-allow',
      { home: home.path, open: { folder: `holdfast://${id}/` } },
      async (person) => {
        await person.expandFolder('workspace');
        await person.expandFolder('src');
        await sleep(1_100);
        await home.runOk(['prompt', id, 'echo more >> /workspace/src/haystack.md']);
        // VS Code draws the badge by style, so its class is all that there is to see.
        const marked = (name: string) =>
          person.explorerRow(name).locator('[class*="monaco-decoration-itemColor"]').first();
        await marked('untouched.md').waitFor({ state: 'detached' });
        await marked('haystack.md').waitFor();
        await person.screenshot('changed-dark');

        await person.runCommand('Agent: Find File in Workspace');
        await person.page.keyboard.type('hayst');
        await person.pickItem('haystack.md');
        await person.editorLine('two needle').first().waitFor();

        await person.runCommand('Agent: Search in Workspace');
        await person.enterText('needle');
        await person.sessionRow('two needle').first().click();
        await person.page.locator('.statusbar-item', { hasText: 'Ln 2, Col 11' }).waitFor();
        await person.screenshotInBothThemes('search', 570);

        // The notification leads to the page, and its mark to the question.
        await home.runOk(['prompt', id, 'curl -s -m 5 http://news.example/ || true']);
        await person.pressToastButton('was denied access to news.example:80', 'Open Session Page');
        const page = person.page.frameLocator('iframe.webview.ready').frameLocator('iframe');
        const denied = page.locator('.mark', { hasText: 'Denied: news.example:80' });
        await denied.waitFor();
        await person.clearToasts();
        const ask = async (): Promise<void> => {
          await denied.getByRole('button', { name: 'Allow news.example…' }).click();
          await person.quickPick('For This Session').first().waitFor();
        };
        await person.screenshotInBothThemes('allow-host', 560, ask);
        await ask();
        await person.pickItem('For This Session');
        await page.locator('.mark', { hasText: 'Allowed news.example' }).waitFor();
        await person.waitForStatus('may reach news.example');
        const policy = await home.runJson(['policy', 'show', id]);
        expect(JSON.stringify(policy)).toContain('"host":"news.example","effect":"allow","from":"session"');
      },
    );
  } finally {
    await home.dispose();
  }
});
