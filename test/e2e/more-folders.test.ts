import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';
import type { User } from './harness/user.ts';

/** The status item, which names the session where the window shows one and nothing else of ours. */
const CONNECTED = /Holdfast\s*$|\S\/\S+ · \w+/;

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const TerminalsSchema = z.object({ terminals: z.array(z.object({ status: z.string() })) });

async function made(home: TestHome): Promise<string> {
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  const created = await home.runJson(['session', 'create', 'shell', '--name', 'notes']);
  const { id } = CreatedSchema.parse(created).session;
  await home.runOk(['prompt', id, 'echo "of the session" > /workspace/notes.md']);
  return id;
}

/** Connected; the session's files are there and live; a terminal of it works. */
async function worksIn(person: User, home: TestHome, id: string): Promise<void> {
  await person.waitForStatus(CONNECTED);
  await person.expandFolder('workspace');
  await person.explorerRow('notes.md').first().dblclick();
  await person.editorLine('of the session').first().waitFor();
  await home.runOk(['prompt', id, 'echo more >> /workspace/notes.md; touch /workspace/made-meanwhile']);
  await person.editorLine('more').first().waitFor({ timeout: 15_000 });
  await person.explorerRow('made-meanwhile').first().waitFor({ timeout: 15_000 });
  await person.typeAtTop('of the session', 'typed ');
  await person.save('notes.md');
  await person.typeInTerminal('cat notes.md');
  await person.terminalRow('typed of the session').first().waitFor();
}

/** Running ones: none may be lost on the way, and none left behind. */
async function running(home: TestHome): Promise<number> {
  const { terminals } = TerminalsSchema.parse(await home.runJson(['terminal', 'list']));
  return terminals.filter(({ status }) => status === 'running').length;
}

test('the first folder of an empty window is the session’s; what went on before continues', async () => {
  const home = await TestHome.create();
  try {
    const id = await made(home);
    await journey('first-folder', { home: home.path, open: {} }, async (person) => {
      await person.runCommand('Agent: Open Terminal');
      await person.pickItem('notes');
      await person.terminalRow('$').first().waitFor({ timeout: 60_000 });
      await person.typeInTerminal('kept=yes; echo begun in $PWD');
      await person.terminalRow('begun in /workspace').first().waitFor();

      await person.runCommand('Agent: Add Workspace to This Window');
      await person.pickItem('notes');
      // VS Code starts over with another folder, and with it the extension.
      await person.page.waitForURL(/[?&]folder=/, { timeout: 60_000 });
      await person.explorerRow('workspace').first().waitFor({ timeout: 60_000 });
      await person.waitUntilLoaded();
      expect(await person.page.locator('.statusbar-item', { hasText: 'Restricted Mode' }).count()).toBe(0);
      expect(await running(home)).toBe(1);

      await person.runCommand('Agent: Open Terminal');
      await person.pickItem('shell');
      await person.terminalRow('begun in /workspace').first().waitFor({ timeout: 60_000 });
      await person.typeInTerminal('echo still $kept');
      await person.terminalRow('still yes').first().waitFor();
      await worksIn(person, home, id);
      await person.screenshot('first-folder-dark');
      expect(await running(home)).toBe(1);
    });
  } finally {
    await home.dispose();
  }
});

test('a session beside a local folder: both are there, and VS Code asks before anything of the local one runs', async () => {
  const home = await TestHome.create();
  try {
    const id = await made(home);
    const local = await writeProject(home.projects, { 'readme.txt': 'a local file\n' });
    await journey(
      'beside',
      { home: home.path, open: (server) => ({ folder: server.remote(local) }), colorScheme: 'light' },
      async (person) => {
        await person.explorerRow('readme.txt').first().waitFor();
        await person.runCommand('Agent: Add Workspace to This Window');
        await person.pickItem('notes');
        // VS Code starts over with a file of folders.
        await person.page.waitForURL(/[?&]workspace=/, { timeout: 60_000 });
        await person.waitUntilLoaded();
        // Where VS Code did not find its own new file of folders in time, it shows none until the next reload.
        await person
          .explorerRow('notes')
          .first()
          .waitFor({ timeout: 8_000 })
          .catch(() => person.reload());
        await person.explorerRow('notes').first().waitFor();
        await person.waitUntilLoaded();
        await person.waitForStatus('Restricted Mode');
        await person.waitForStatus(CONNECTED);

        await person.runCommand('Agent: Open Terminal');
        const question = person.page.locator('.monaco-dialog-box', { hasText: 'Do you trust the authors' });
        await question.waitFor({ timeout: 60_000 });
        await question.locator('.monaco-button', { hasText: 'Trust Workspace & Continue' }).click();
        await person.terminalRow('$').first().waitFor({ timeout: 60_000 });
        await person.typeInTerminal('echo begun in $PWD');
        await person.terminalRow('begun in /workspace').first().waitFor();
        await person.expandFolder('notes');
        await worksIn(person, home, id);
        await person.explorerRow('readme.txt').first().dblclick();
        await person.editorLine('a local file').first().waitFor();
        await person.screenshot('beside-light');
        expect(await running(home)).toBe(1);
      },
    );
  } finally {
    await home.dispose();
  }
});
