import { chmod, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import type { CodeServer } from '../editor/harness/code-server.ts';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';
import type { User } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });

const NOTEBOOKS = ['evil.ipynb', 'OTHER.IPYNB'];
const TRUSTED = {
  'security.workspace.trust.startupPrompt': 'never',
  'security.workspace.trust.enabled': false,
};

/** A notebook with an output that is a program. */
function notebook(program: string): string {
  const output = {
    output_type: 'display_data',
    data: { 'text/html': [`<p>the output</p><script>${program}</script>`] },
    metadata: {},
  };
  const cell = { cell_type: 'code', execution_count: 1, metadata: {}, outputs: [output], source: ['1'] };
  return JSON.stringify({ cells: [cell], metadata: {}, nbformat: 4, nbformat_minor: 5 });
}

test('a notebook of the agent opens as text, and no program in it runs: in a session, in a snapshot, and beside a trusted local folder', async () => {
  const home = await TestHome.create();
  const heard: string[] = [];
  const server = createServer((request, response) => {
    heard.push(request.url ?? '');
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    const { port } = server.address() as AddressInfo;
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const created = await home.runJson(['session', 'create', 'shell', '--name', 'notes']);
    const { id } = CreatedSchema.parse(created).session;
    const text = notebook(`new Image().src = 'http://127.0.0.1:${port}/ran'`);
    const write = NOTEBOOKS.map((name) => `cat > ${name} <<'END'\n${text}\nEND`);
    await home.runOk(['prompt', id, `cd /workspace\n${write.join('\n')}`]);
    const taken = await home.runJson(['snapshot', 'create', id]);
    const { id: snapshot } = z.object({ id: z.string() }).parse(taken);
    const local = await writeProject(home.projects, { 'readme.txt': 'a local file\n', 'own.ipynb': text });
    const mixed = join(home.projects, 'mixed.code-workspace');
    await writeFile(
      mixed,
      JSON.stringify({
        folders: [
          { name: 'notes', uri: `holdfast://${id}/` },
          { name: 'local', path: local },
        ],
      }),
    );
    const open = { folder: `holdfast://${id}/` };
    await journey('notebooks', { home: home.path, open, settings: TRUSTED }, async (person) => {
      for (const window of [open, { folder: `holdfast-snapshot://${snapshot}/` }, { workspace: mixed }]) {
        if (window !== open)
          await person.open('workspace' in window ? { workspace: person.server.remote(mixed) } : window);
        if ('workspace' in window) await person.expandFolder('notes');
        await person.expandFolder('workspace');
        for (const name of NOTEBOOKS) {
          await person.explorerRow(name).first().dblclick();
          await person.page.locator('.tab.active', { hasText: name }).first().waitFor();
          await person.editorLine('nbformat').first().waitFor();
        }
        await person.screenshot('notebooks');
      }
      expect(heard).toEqual([]);
      // VS Code does run what is in a notebook of a folder that is trusted.
      await person.expandFolder('local');
      await person.explorerRow('own.ipynb').first().dblclick();
      await expect.poll(() => heard, { timeout: 60_000 }).toEqual(['/ran']);
    });
  } finally {
    server.close();
    await home.dispose();
  }
});

test('Emmet: Update Image Size, which would read an image of this machine or fetch it, is not offered for a file of the agent', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const created = await home.runJson(['session', 'create', 'shell', '--name', 'notes']);
    const { id } = CreatedSchema.parse(created).session;
    await home.runOk(['prompt', id, `echo '<img src="/etc/logo.png">' > /workspace/page.html`]);
    const local = await writeProject(home.projects, { 'page.html': '<img src="logo.png">\n' });
    const isOffered = async (person: User): Promise<boolean> => {
      await person.explorerRow('page.html').first().dblclick();
      await person.editorLine('<img').first().click();
      // The other commands of Emmet work.
      expect(await person.isCommandListed('Emmet: Balance (outward)')).toBe(true);
      return await person.isCommandListed('Emmet: Update Image Size');
    };
    const open = { folder: `holdfast://${id}/` };
    await journey('image-size', { home: home.path, open, settings: TRUSTED }, async (person) => {
      await person.expandFolder('workspace');
      expect(await isOffered(person)).toBe(false);
      await person.open({ folder: person.server.remote(local) });
      expect(await isOffered(person)).toBe(true);
    });
  } finally {
    await home.dispose();
  }
});

test('PHP beside a trusted local folder: the php of this machine is asked about a path of this machine, and gets no text of the agent', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const created = await home.runJson(['session', 'create', 'shell', '--name', 'notes']);
    const { id } = CreatedSchema.parse(created).session;
    await home.runOk(['prompt', id, `echo '<?php system("id");' > /workspace/evil.php`]);
    const local = await writeProject(home.projects, { 'own.php': '<?php\n' });
    const mixed = join(home.projects, 'php.code-workspace');
    const folders = [
      { name: 'local', path: local },
      { name: 'notes', uri: `holdfast://${id}/` },
    ];
    const programs = await writeProject(home.projects, {
      php: `#!/bin/sh\ndir=\${0%/*}\nprintf '%s\\n' "$*" >> "$dir/arguments"\ntimeout 1 cat >> "$dir/input"\n`,
    });
    await chmod(join(programs, 'php'), 0o755);
    const settings = { 'php.validate.executablePath': join(programs, 'php') };
    await writeFile(mixed, JSON.stringify({ folders, settings }));
    const said = async (name: string): Promise<string> =>
      await readFile(join(programs, name), 'utf8').catch(() => '');
    const options = {
      home: home.path,
      settings: TRUSTED,
      open: (server: CodeServer) => ({ workspace: server.remote(mixed) }),
    };
    await journey('php', options, async (person) => {
      await person.expandFolder('local');
      await person.explorerRow('own.php').first().dblclick();
      await expect
        .poll(() => said('arguments'), { timeout: 60_000 })
        .toContain(`-f ${join(local, 'own.php')}\n`);
      await person.expandFolder('notes');
      await person.expandFolder('workspace');
      await person.explorerRow('evil.php').first().dblclick();
      const asked = '-l -n -d display_errors=On -d log_errors=Off -f /workspace/evil.php\n';
      await expect.poll(() => said('arguments'), { timeout: 60_000 }).toContain(asked);
      expect(await said('input')).toBe('');
    });
  } finally {
    await home.dispose();
  }
});
