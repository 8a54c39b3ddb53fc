import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });

async function createSession(home: TestHome, name: string): Promise<string> {
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  return CreatedSchema.parse(await home.runJson(['session', 'create', 'shell', '--name', name])).session.id;
}

test("the Git of VS Code, which would act on this machine's root directory, is off in the window of a session or a snapshot and on in others", async () => {
  const home = await TestHome.create();
  try {
    const id = await createSession(home, 'no-git');
    const taken = await home.runJson(['snapshot', 'create', id]);
    const { id: snapshot } = z.object({ id: z.string() }).parse(taken);
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
        expect(await person.isCommandListed('Git: Initialize Repository')).toBe(true);

        for (const folder of [`holdfast://${id}/`, `holdfast-snapshot://${snapshot}/`]) {
          await person.open({ folder });
          await person.explorerRow('workspace').first().waitFor({ timeout: 60_000 });
          await sourceControl.click();
          await person.page
            .locator('.scm-viewlet', { hasText: 'enable Git' })
            .first()
            .waitFor({ timeout: 60_000 });
          expect(await offersRepository.count()).toBe(0);
          for (const command of ['Git: Initialize Repository', 'Git: Clone', 'Git: Open Repository']) {
            expect([folder, command, await person.isCommandListed(command)]).toEqual([
              folder,
              command,
              false,
            ]);
          }
        }
        await person.screenshot('git-off');
      },
    );
  } finally {
    await home.dispose();
  }
});

const TerminalsSchema = z.object({
  terminals: z.array(z.object({ sessionId: z.string(), status: z.string() })),
});

test('in a session window +, New Terminal and Split open terminals of the sandbox; one of this machine says so in its name', async () => {
  const home = await TestHome.create();
  try {
    const id = await createSession(home, 'fix-parser');
    const running = async (): Promise<number> => {
      const { terminals } = TerminalsSchema.parse(await home.runJson(['terminal', 'list']));
      return terminals.filter(({ sessionId, status }) => sessionId === id && status === 'running').length;
    };
    await journey(
      'new-terminals',
      { home: home.path, open: { folder: `holdfast://${id}/` } },
      async (person) => {
        const { page } = person;
        await person.explorerRow('workspace').first().waitFor({ timeout: 60_000 });
        // VS Code has applied the settings of the folder: its title names the session.
        await expect.poll(() => page.title(), { timeout: 60_000 }).toContain('fix-parser');

        const seen = new Set<string>();
        /** The terminal that has the focus writes its name into a file of the session, again until it is another one than before. */
        const isAnotherOfTheSandbox = async (): Promise<void> => {
          await page.locator('.terminal.xterm.focus').first().waitFor({ timeout: 60_000 });
          await expect
            .poll(
              async () => {
                await page.keyboard.type('tty > /workspace/tty');
                await page.keyboard.press('Enter');
                const tty = await home.runOk(['workspace', 'cat', id, 'tty']).catch(() => '');
                if (!/^\/dev\/pts\/\d+\n$/.test(tty) || seen.has(tty)) return false;
                seen.add(tty);
                return true;
              },
              { timeout: 60_000, interval: 1_000 },
            )
            .toBe(true);
        };
        await person.runCommand('Terminal: Create New Terminal');
        await expect.poll(running, { timeout: 60_000 }).toBe(1);
        await isAnotherOfTheSandbox();

        await page.locator('.panel .action-label.codicon-plus').first().click();
        await expect.poll(running, { timeout: 60_000 }).toBe(2);
        await isAnotherOfTheSandbox();

        await person.runCommand('Terminal: Split Terminal');
        await expect.poll(running, { timeout: 60_000 }).toBe(3);
        await isAnotherOfTheSandbox();
        await person.screenshot('new-terminals');

        await person.runCommand('Agent: New Terminal on This Machine');
        const tabs = page.locator('.terminal-tabs-entry');
        await tabs
          .filter({ hasText: /host: / })
          .first()
          .waitFor({ timeout: 60_000 });
        expect(await tabs.filter({ hasText: 'fix-parser' }).count()).toBe(3);
        const mark = join(home.projects, 'on-this-machine');
        await expect
          .poll(
            async () => {
              await page.keyboard.type(`touch ${mark}`);
              await page.keyboard.press('Enter');
              return existsSync(mark);
            },
            { timeout: 30_000, interval: 1_000 },
          )
          .toBe(true);
        await person.screenshot('host-terminal');
        expect(await running()).toBe(3);
      },
    );
  } finally {
    await home.dispose();
  }
});

test('where no sandbox can be had a new terminal says why instead of opening a shell of this machine', async () => {
  const home = await TestHome.create();
  try {
    const id = await createSession(home, 'no-docker');
    const env = { DOCKER_HOST: `unix://${join(home.projects, 'no-docker.sock')}` };
    await home.runOk(['supervisor', 'stop']);
    await journey(
      'no-sandbox',
      { home: home.path, open: { folder: `holdfast://${id}/` }, env },
      async (person) => {
        await person.waitForStatus('Docker is not running');
        await person.runCommand('Terminal: Create New Terminal');
        await person
          .terminalRow(/Docker|engine/i)
          .first()
          .waitFor({ timeout: 60_000 });
        await person.terminalRow('Press Enter to try again').first().waitFor();
        await person.screenshot('no-sandbox');
      },
    );
  } finally {
    // The one that the window started knows no engine to clean up with.
    await home.runOk(['supervisor', 'stop']);
    await home.dispose();
  }
});

test('beside a local folder the first button of the terminals opens one of the sandbox', async () => {
  const home = await TestHome.create();
  try {
    const id = await createSession(home, 'mixed');
    const local = await writeProject(home.projects, { 'readme.txt': 'a local file\n' });
    const file = join(home.projects, 'mixed.code-workspace');
    await writeFile(
      file,
      JSON.stringify({ folders: [{ path: local }, { uri: `holdfast://${id}/`, name: 'the session' }] }),
    );
    await journey(
      'mixed-terminals',
      { home: home.path, open: (server) => ({ workspace: server.remote(file) }) },
      async (person) => {
        await person.explorerRow('the session').first().waitFor({ timeout: 60_000 });
        await person.runCommand('Terminal: Focus on Terminal View');
        const question = person.dialog('Do you trust the authors');
        await question.waitFor({ timeout: 60_000 });
        await question.locator('.monaco-button', { hasText: 'Trust Workspace & Continue' }).click();
        const ours = person.page.locator('.panel .action-label[aria-label*="Open Terminal"]').first();
        const plus = person.page.locator('.panel .action-label.codicon-plus').first();
        await ours.waitFor({ timeout: 60_000 });
        await plus.waitFor();
        // Trusting the window starts more extensions, and the buttons are drawn again meanwhile.
        await expect
          .poll(
            async () => {
              const [left, right] = [await ours.boundingBox(), await plus.boundingBox()];
              return left !== null && right !== null && left.x < right.x;
            },
            { timeout: 60_000 },
          )
          .toBe(true);
        await ours.click();
        await expect
          .poll(async () => JSON.stringify(await home.runJson(['terminal', 'list'])), { timeout: 60_000 })
          .toContain(id);
        await person.screenshot('mixed-terminals');
      },
    );
  } finally {
    await home.dispose();
  }
});

test('the Explorer and the status bar name the session whose files they show, and what it was asked last', async () => {
  const home = await TestHome.create();
  try {
    const id = await createSession(home, 'parser');
    await home.runOk(['prompt', id, 'echo fix the parser']);
    await journey('named', { home: home.path, open: { folder: `holdfast://${id}/` } }, async (person) => {
      const { page } = person;
      const heading = page.locator('.sidebar .pane-header', { hasText: 'shell/parser' }).first();
      await heading.waitFor({ timeout: 60_000 });
      await page.locator('.statusbar-item', { hasText: 'shell/parser · idle' }).first().waitFor();
      if ((await heading.getAttribute('aria-expanded')) !== 'true') await heading.click();
      await page.locator('.sidebar .monaco-list-row', { hasText: 'echo fix the parser' }).first().click();
      await person.tab('parser transcript.txt').first().waitFor();
      await person.screenshot('named-dark');

      // Nobody is asked which session is meant.
      await person.runCommand('Agent: Run Turn');
      await person.enterText('echo and the tests');
      await person.toast('The turn succeeded').first().waitFor({ timeout: 60_000 });
      await page.locator('.sidebar .monaco-list-row', { hasText: 'echo and the tests' }).first().waitFor();
    });
  } finally {
    await home.dispose();
  }
});
