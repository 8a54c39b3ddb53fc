import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/person.ts';
import type { Person } from './harness/person.ts';

/** The status item, which names the session where the window shows one and nothing else of ours. */
const CONNECTED = /Holdfast\s*$|\S\/\S+ · \w+/;

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const TerminalsSchema = z.object({ terminals: z.array(z.object({ status: z.string() })) });

async function made(home: TestHome): Promise<string> {
  await home.succeed(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  const created = await home.json(['session', 'create', 'shell', '--name', 'notes']);
  const { id } = CreatedSchema.parse(created).session;
  await home.succeed(['prompt', id, 'echo "of the session" > /workspace/notes.md']);
  return id;
}

/** Connected; the session's files are there and live; a terminal of it works. */
async function worksIn(person: Person, home: TestHome, id: string): Promise<void> {
  await person.status(CONNECTED);
  await person.unfold('workspace');
  await person.file('notes.md').first().dblclick();
  await person.line('of the session').first().waitFor();
  await home.succeed(['prompt', id, 'echo more >> /workspace/notes.md; touch /workspace/made-meanwhile']);
  await person.line('more').first().waitFor({ timeout: 15_000 });
  await person.file('made-meanwhile').first().waitFor({ timeout: 15_000 });
  await person.typeAtTop('of the session', 'typed ');
  await person.save('notes.md');
  await person.typeInTerminal('cat notes.md');
  await person.terminalRow('typed of the session').first().waitFor();
}

/** Running ones: none may be lost on the way, and none left behind. */
async function running(home: TestHome): Promise<number> {
  const { terminals } = TerminalsSchema.parse(await home.json(['terminal', 'list']));
  return terminals.filter(({ status }) => status === 'running').length;
}

test('the first folder of an empty window is the session’s; what went on before goes on', async () => {
  const home = await TestHome.create();
  try {
    const id = await made(home);
    await journey('first-folder', { home: home.path, open: {} }, async (person) => {
      await person.command('Agent: Open Terminal');
      await person.pick('notes');
      await person.terminalRow('$').first().waitFor({ timeout: 60_000 });
      await person.typeInTerminal('kept=yes; echo begun in $PWD');
      await person.terminalRow('begun in /workspace').first().waitFor();

      await person.command('Agent: Add Workspace to This Window');
      await person.pick('notes');
      // VS Code begins anew with another folder, and with it the extension.
      await person.page.waitForURL(/[?&]folder=/, { timeout: 60_000 });
      await person.file('workspace').first().waitFor({ timeout: 60_000 });
      await person.isThere();
      expect(await person.page.locator('.statusbar-item', { hasText: 'Restricted Mode' }).count()).toBe(0);
      expect(await running(home)).toBe(1);

      await person.command('Agent: Open Terminal');
      await person.pick('shell');
      await person.terminalRow('begun in /workspace').first().waitFor({ timeout: 60_000 });
      await person.typeInTerminal('echo still $kept');
      await person.terminalRow('still yes').first().waitFor();
      await worksIn(person, home, id);
      await person.shot('first-folder-dark');
      expect(await running(home)).toBe(1);
    });
  } finally {
    await home.end();
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
        await person.file('readme.txt').first().waitFor();
        await person.command('Agent: Add Workspace to This Window');
        await person.pick('notes');
        // VS Code begins anew with a file of folders.
        await person.page.waitForURL(/[?&]workspace=/, { timeout: 60_000 });
        await person.isThere();
        // Where VS Code did not find its own new file of folders in time, it shows none until the next reload.
        await person
          .file('notes')
          .first()
          .waitFor({ timeout: 8_000 })
          .catch(() => person.reload());
        await person.file('notes').first().waitFor();
        await person.isThere();
        await person.status('Restricted Mode');
        await person.status(CONNECTED);

        await person.command('Agent: Open Terminal');
        const question = person.page.locator('.monaco-dialog-box', { hasText: 'Do you trust the authors' });
        await question.waitFor({ timeout: 60_000 });
        await question.locator('.monaco-button', { hasText: 'Trust Workspace & Continue' }).click();
        await person.terminalRow('$').first().waitFor({ timeout: 60_000 });
        await person.typeInTerminal('echo begun in $PWD');
        await person.terminalRow('begun in /workspace').first().waitFor();
        await person.unfold('notes');
        await worksIn(person, home, id);
        await person.file('readme.txt').first().dblclick();
        await person.line('a local file').first().waitFor();
        await person.shot('beside-light');
        expect(await running(home)).toBe(1);
      },
    );
  } finally {
    await home.end();
  }
});
