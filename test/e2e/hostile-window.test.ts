import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { HOSTILE_TITLE, plantHostileFiles } from '../editor/hostile.ts';
import type { CodeServer } from '../editor/harness/code-server.ts';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';
import type { User } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });

/** The person has agreed once, on this machine, that tasks may start with a folder. */
const SETTINGS = { 'task.allowAutomaticTasks': 'on' };

let home: TestHome;
let id: string;
let marks: string;

beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  id = CreatedSchema.parse(await home.runJson(['session', 'create', 'shell', '--name', 'notes'])).session.id;
});
afterAll(() => home.dispose());
beforeEach(async () => {
  marks = await plantHostileFiles(home, id);
});

/** The window shows the session's root and says why; nothing in it obeys the agent, and nothing has run on this machine. */
async function comesBackSafe(person: User): Promise<void> {
  const { page } = person;
  await page.waitForURL((url) => url.searchParams.get('folder') === `holdfast://${id}/`, { timeout: 60_000 });
  expect(new URL(page.url()).searchParams.get('workspace')).toBeNull();
  await person.waitUntilLoaded();
  await person.toast('Holdfast reopened the window on the session itself').first().waitFor();
  await person.expandFolder('workspace');
  await person.explorerRow('notes.md').first().waitFor();
  await expect.poll(() => page.title(), { timeout: 20_000 }).not.toContain(HOSTILE_TITLE);
  await opensTerminal(person);
  expect(await page.title()).not.toContain(HOSTILE_TITLE);
  expect(await readdir(marks)).toEqual([]);
}

async function opensTerminal(person: User): Promise<void> {
  await person.runCommand('Terminal: Create New Terminal');
  await person.page.locator('.terminal.xterm').first().waitFor();
  await expect
    .poll(
      async () => {
        await person.typeInTerminal('echo a$((1+1))b');
        return person.terminalRow(/^a2b/).count();
      },
      { timeout: 60_000, interval: 1_000 },
    )
    .toBeGreaterThan(0);
}

test('a window on /workspace itself comes back on the root of the session', async () => {
  const open = { folder: `holdfast://${id}/workspace` };
  await journey('hostile-folder', { home: home.path, settings: SETTINGS, open }, comesBackSafe);
});

test.each(['evil.code-workspace', 'team.code-workspace', 'plain.json'])(
  'a window on the workspace file %s of a session comes back on its root',
  async (name) => {
    const open = { workspace: `holdfast://${id}/workspace/${name}` };
    await journey('hostile-workspace-file', { home: home.path, settings: SETTINGS, open }, comesBackSafe);
  },
);

test('a workspace file of the session opens as text that can be edited, and VS Code does not offer to open it as a workspace', async () => {
  const local = await writeProject(home.projects, { 'mine.code-workspace': '{ "folders": [] }\n' });
  const open = (server: CodeServer) => ({ folder: server.remote(local) });
  await journey('hostile-text', { home: home.path, settings: SETTINGS, open }, async (person) => {
    const offer = person.page.locator('.editor-instance').getByText('Open Workspace', { exact: true });
    await person.explorerRow('mine.code-workspace').first().dblclick();
    await offer.first().waitFor();

    await person.open({ folder: `holdfast://${id}/` });
    await person.expandFolder('workspace');
    await person.explorerRow('evil.code-workspace').first().dblclick();
    await person.editorLine('evil').first().waitFor();

    await person.expandFolder('.vscode (agent)');
    await person.explorerRow('extensions.json').first().dblclick();
    await person.typeAtTop('recommendations', ' ');
    await person.save('extensions.json');
    const saved = await home.runOk(['exec', id, '--', 'cat', '/workspace/.vscode/extensions.json']);
    expect(saved).toBe(' {"recommendations":["evil.evil"]}');

    await person.tab('evil.code-workspace (agent)').first().click();
    await person.editorLine('evil').first().waitFor();
    expect(await offer.count()).toBe(0);
    await person.screenshot('hostile-configuration');
    expect(await readdir(marks)).toEqual([]);
  });
});

test('in a workspace file of the person’s, a folder that the agent can write becomes the root of the session', async () => {
  const local = await writeProject(home.projects, { 'readme.txt': 'a local file\n' });
  const file = join(home.projects, 'mixed.code-workspace');
  const folders = [{ path: local }, { uri: `holdfast://${id}/workspace`, name: 'notes' }];
  await writeFile(file, JSON.stringify({ folders }));
  const settings = { ...SETTINGS, 'security.workspace.trust.untrustedFiles': 'open' };
  await journey(
    'hostile-mixed',
    { home: home.path, settings, open: (server) => ({ workspace: server.remote(file) }) },
    async (person) => {
      await person.toast('Holdfast replaced the folder on the session itself').first().waitFor();
      await person.expandFolder('notes');
      await person.expandFolder('workspace');
      await person.explorerRow('notes.md').first().waitFor();
      expect(await person.page.title()).not.toContain(HOSTILE_TITLE);
      expect(await readdir(marks)).toEqual([]);
    },
  );
});
