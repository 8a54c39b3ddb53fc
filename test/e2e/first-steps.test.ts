import { mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { expect, test } from 'vitest';
import { TestHome } from '../setup/test-home.ts';
import { writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';
import type { User } from './harness/user.ts';

const STEPS = [
  'Start a session',
  'Work in its workspace',
  'Come back to it',
  'See what a turn changed, and undo it',
  'Search files and text',
  'Decide what a session may reach',
];

/** What the view says where it has no entries. */
function welcome(person: User, text: string) {
  return person.page.locator('.sidebar .welcome-view-content', { hasText: text });
}

test('a view without sessions says why, and its buttons are the way on', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-no-engine-'));
  const socket = join(folder, 'docker.sock');
  const env = { DOCKER_HOST: `unix://${socket}` };
  const home = await TestHome.create(env);
  try {
    await journey('welcome', { home: home.path, open: {}, env, colorScheme: 'light' }, async (person) => {
      const { page } = person;
      await person.openSessionsView();
      const down = welcome(person, 'Docker is not running');
      await down.waitFor({ timeout: 60_000 });
      await person.waitForStatus('Docker is not running');
      await person.screenshot('docker-down-light');
      await person.runCommand('Agent: New Session');
      await person.toast('Docker is not running').first().waitFor();
      await person.clearToasts();

      await symlink('/var/run/docker.sock', socket);
      await down.locator('.monaco-button', { hasText: 'Check Again' }).click();
      const none = welcome(person, 'No sessions yet');
      await none.waitFor({ timeout: 30_000 });
      await none.locator('.monaco-button', { hasText: 'New Session' }).click();
      await person.quickPick('Open Folder…').first().waitFor();
      await person.screenshot('new-session-light');
      await person.pickItem('Try the Example');
      await person.pressToastButton('New session of counter', 'Run Turn');
      await person.enterText('{}');
      await person.pressToastButton('The turn succeeded', 'Show Output');
      await page
        .locator('.view-lines', { hasText: /"count":\s1/ })
        .first()
        .waitFor();
      await person.clearToasts();
      await home.runOk(['undeploy', 'counter', '--force']);
      await none.waitFor({ timeout: 30_000 });

      await home.runOk(['supervisor', 'stop']);
      const gone = welcome(person, 'supervisor does not answer');
      await gone.waitFor({ timeout: 30_000 });
      await person.waitForStatus('no supervisor');
      await person.screenshot('no-supervisor-light');
      await gone.locator('.monaco-button', { hasText: 'Show Log' }).click();
      // VS Code may show the lines of an output only when the next one comes.
      const channel = person.page.locator('.part.panel select', { hasText: 'Holdfast' });
      const shown = (): Promise<string | undefined> =>
        channel
          .first()
          .evaluate((one: { selectedOptions: ArrayLike<{ text: string }> }) => one.selectedOptions[0]?.text);
      await expect.poll(shown, { timeout: 10_000 }).toBe('Holdfast');
      await gone.locator('.monaco-button', { hasText: 'Connect' }).click();
      await none.waitFor({ timeout: 30_000 });
    });
  } finally {
    await symlink('/var/run/docker.sock', socket).catch(() => undefined);
    await home.dispose();
    await rm(folder, { recursive: true });
  }
});

test('the walkthrough, and a session of the folder that is open, with its first holdfast.yaml', async () => {
  const home = await TestHome.create();
  try {
    const folder = await writeProject(home.projects, { 'readme.txt': 'from the folder\n' });
    const name = basename(folder);
    await journey(
      'first-steps',
      { home: home.path, open: (server) => ({ folder: server.remote(folder) }), colorScheme: 'contrast' },
      async (person) => {
        const { page } = person;
        await person.runCommand('Welcome: Open Walkthrough...');
        await person.pickItem('Get started with Holdfast');
        for (const title of STEPS) {
          const step = page.locator('.getting-started-step', { hasText: title }).first();
          await step.waitFor();
          if (!((await step.getAttribute('class')) ?? '').includes('expanded')) await step.click();
          const picture = page.locator('.getting-started-media img').first();
          await picture.waitFor();
          const width = (): Promise<number> =>
            picture.evaluate((one: { naturalWidth: number }) => one.naturalWidth);
          await expect.poll(width, { timeout: 10_000 }).toBeGreaterThan(100);
          expect(await picture.getAttribute('alt')).not.toBe('');
        }
        await person.screenshot('walkthrough-contrast');
        await page
          .locator('.getting-started-step', { hasText: STEPS[0] ?? '' })
          .first()
          .click();
        await page
          .locator('.getting-started-step .monaco-button', { hasText: 'New Session' })
          .first()
          .click();

        // Nothing of a folder that is not trusted is deployed.
        await person.pickItem(name);
        await person.pressToastButton('this window does not trust the folder', 'Manage Trust');
        await page.locator('.workspace-trust-editor .monaco-button', { hasText: 'Trust' }).first().click();
        await page.locator('.statusbar-item', { hasText: 'Restricted Mode' }).waitFor({ state: 'detached' });
        await person.runCommand('View: Close All Editors');

        await person.runCommand('Agent: New Session');
        await person.pickItem(name);
        await person.pickItem('OpenCode');
        await person.dialog('npm, for the agent: opencode-ai').waitFor();
        await person.screenshot('first-profile-contrast');
        await person.pressDialogButton('Create holdfast.yaml in', 'Cancel');
        await expect(readFile(join(folder, 'holdfast.yaml'))).rejects.toThrow('ENOENT');

        await person.runCommand('Agent: New Session');
        await person.pickItem(name);
        await person.pickItem('Another Program');
        await person.pressDialogButton('Create holdfast.yaml in', 'Create holdfast.yaml');
        await person.tab('holdfast.yaml').first().waitFor();
        await person.pressToastButton('New session of', 'Run Turn');
        await person.enterText('cat readme.txt');
        await person.toast('The turn succeeded').first().waitFor({ timeout: 60_000 });
        await person.clearToasts();
        await person.screenshot('new-session-contrast');
        expect(await readFile(join(folder, 'holdfast.yaml'), 'utf8')).toMatch(
          /^name: project-[a-z0-9-]+\n#.*\nagent: \{ protocol: command, command: \[sh\] \}\n/,
        );
        const { sessions } = (await home.runJson(['session', 'list'])) as {
          sessions: { id: string; profile: string }[];
        };
        expect(sessions.map(({ profile }) => profile)).toEqual([name.toLowerCase()]);
        expect(await home.runOk(['session', 'events', sessions[0]?.id ?? ''])).toContain('from the folder');

        // The next one of the folder needs no questions.
        await person.runCommand('Agent: New Session');
        await person.pickItem(new RegExp(`${name}.*deploy this folder`));
        await person.toast('New session of').first().waitFor({ timeout: 30_000 });
        expect(await person.page.locator('.monaco-dialog-box').count()).toBe(0);
      },
    );
  } finally {
    await home.dispose();
  }
});
