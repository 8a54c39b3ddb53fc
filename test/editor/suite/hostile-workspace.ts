import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension, waitUntil } from './extension.ts';
import {
  AUTHORITY,
  SESSION,
  sessionUri,
  fileSystemErrorCode,
  runInSandbox,
  readText,
  writeText,
} from './session.ts';

/** Where a program of the workspace would leave a file, if this machine ran it. */
const MARKS = process.env['HOLDFAST_TEST_MARKS'] ?? '';

/** The terminal profile of the extension. */
const SANDBOX = 'Agent (sandbox)';

/** Where VS Code, what comes with it, or an agent inside it looks for configuration (see test/editor/hostile.ts). */
const CONFIGURATION = [
  '.vscode',
  '.vscode/settings.json',
  '.vscode/tasks.json',
  '.vscode/launch.json',
  '.vscode/mcp.json',
  '.vscode/extensions.json',
  '.vscode/evil.code-snippets',
  '.mcp.json',
  '.cursor/mcp.json',
  '.claude/settings.json',
  '.claude/settings.local.json',
  '.claude/agents/evil.md',
  '.github/agents/evil.agent.md',
  '.github/copilot/settings.json',
  '.devcontainer/devcontainer.json',
  'evil.code-workspace',
  'team.code-workspace',
];

/** The workspace is full of configuration that an agent wrote for the editor (see test/editor/hostile.ts). */
export function defineHostileWorkspace(): void {
  describe('a workspace that tries to configure the editor', () => {
    before(() => extension().activate());

    it('shows the session and no folder below it', async () => {
      // A window may have been opened on something else, which is replaced.
      await waitUntil('the safe root', () => unsafeFolders().length === 0);
      const roots = (vscode.workspace.workspaceFolders ?? []).map(({ uri }) => uri.toString());
      assert.ok(roots.includes(`holdfast://${AUTHORITY}/`), roots.join(' '));
      await waitUntil('its files', () => readText('/workspace/notes.md').catch(() => undefined));
    });

    it('has no configuration where VS Code looks for it', async () => {
      const { fs } = vscode.workspace;
      for (const path of CONFIGURATION) {
        const uri = sessionUri(`/workspace/${path}`);
        const outcomes = await Promise.all([
          fileSystemErrorCode(fs.stat(uri)),
          fileSystemErrorCode(fs.readFile(uri)),
          fileSystemErrorCode(fs.readDirectory(uri)),
          fileSystemErrorCode(fs.createDirectory(uri)),
          fileSystemErrorCode(fs.delete(uri)),
          fileSystemErrorCode(fs.rename(uri, sessionUri('/workspace/moved'))),
          fileSystemErrorCode(fs.copy(uri, sessionUri('/workspace/copied'))),
          fileSystemErrorCode(fs.rename(sessionUri('/workspace/notes.md'), uri)),
        ]);
        assert.deepEqual(new Set(outcomes), new Set(['NoPermissions']), `${path}: ${outcomes.join(' ')}`);
        const written = await fileSystemErrorCode(fs.writeFile(uri, Buffer.from('{}')));
        assert.ok(['NoPermissions', 'FileExists'].includes(written), `${path}: ${written}`);
      }
      assert.equal(await runInSandbox('ls /workspace/moved /workspace/copied 2>/dev/null || true'), '');
      assert.match(await runInSandbox('cat /workspace/.mcp.json'), /evil/);
    });

    it('has none behind a link, under another spelling of the URI, or in a snapshot', async () => {
      await runInSandbox(
        'cd /workspace && mkdir -p linked other && ln -sfn ../.vscode linked/.vscode && ln -sfn ../evil.code-workspace linked/x.code-workspace && ln -sfn .. linked/up',
      );
      const snapshot = await vscode.commands.executeCommand('holdfast.createSnapshot', SESSION, 'hostile');
      const { fs } = vscode.workspace;
      for (const path of [
        '/workspace/linked/.vscode/settings.json',
        '/workspace/linked/x.code-workspace',
        '/workspace/linked/up/.vscode/settings.json',
        '/workspace/.vscode/',
        '/workspace//.vscode/settings.json',
        '/workspace/./.vscode/settings.json',
        '/workspace/linked/../.vscode/settings.json',
      ]) {
        assert.equal(await fileSystemErrorCode(fs.stat(sessionUri(path))), 'NoPermissions', path);
        assert.equal(
          await fileSystemErrorCode(fs.readFile(sessionUri(path).with({ query: 'x' }))),
          'NoPermissions',
          path,
        );
        const then = sessionUri(path).with({ scheme: 'holdfast-snapshot', authority: String(snapshot) });
        assert.equal(await fileSystemErrorCode(fs.stat(then)), 'NoPermissions', path);
        assert.equal(await fileSystemErrorCode(fs.readFile(then)), 'NoPermissions', path);
      }
      const otherCase = sessionUri('/workspace/.VSCode/settings.json');
      assert.equal(await fileSystemErrorCode(fs.stat(otherCase)), 'FileNotFound');
      assert.equal(await fileSystemErrorCode(fs.readFile(otherCase)), 'NoPermissions');
      // What a link of another name leads to is a file like any other: VS Code looks for nothing there.
      assert.match(await readText('/workspace/linked/up/.vscode (agent)/settings.json'), /evil/);
      const shown = sessionUri('/workspace/.vscode (agent)/settings.json');
      const before = shown.with({ scheme: 'holdfast-snapshot', authority: String(snapshot) });
      assert.match(Buffer.from(await fs.readFile(before)).toString('utf8'), /evil/);
      await vscode.commands.executeCommand('vscode.diff', before, shown);
      await waitUntil('both sides', () =>
        [before, shown].every((uri) =>
          vscode.workspace.textDocuments.some((one) => one.uri.toString() === uri.toString()),
        ),
      );
      await vscode.commands.executeCommand('workbench.action.closeAllEditors');
      await runInSandbox('rm -r /workspace/linked /workspace/other');
    });

    it('lists, opens and saves configuration files under marked names', async () => {
      const names = (await vscode.workspace.fs.readDirectory(sessionUri('/workspace'))).map(([name]) => name);
      for (const name of [
        '.vscode (agent)',
        '.mcp.json (agent)',
        '.github (agent)',
        '.claude (agent)',
        'evil.code-workspace (agent)',
      ])
        assert.ok(names.includes(name), `${name} in ${names.join(' ')}`);
      assert.ok(!names.some((name) => CONFIGURATION.includes(name)));

      const uri = sessionUri('/workspace/.vscode (agent)/extensions.json');
      const original = await readText(uri.path);
      const document = await vscode.workspace.openTextDocument(uri);
      const editor = await vscode.window.showTextDocument(document);
      await runInSandbox("echo '{}' > /workspace/.vscode/extensions.json");
      await waitUntil('the change of the session', () => document.getText() === '{}\n');
      await editor.edit((edit) => edit.insert(new vscode.Position(0, 0), ' '));
      assert.equal(await document.save(), true);
      assert.equal(await runInSandbox('cat /workspace/.vscode/extensions.json'), ' {}\n');
      await vscode.commands.executeCommand('workbench.action.closeAllEditors');
      await writeText(uri.path, original);

      // A file of the workspace that is called like a marked one is another file.
      await runInSandbox('echo other > "/workspace/.mcp.json (agent)"');
      assert.match(await readText('/workspace/.mcp.json (agent)'), /evil/);
      assert.equal(await readText('/workspace/.mcp.json (agent) (agent)'), 'other\n');
      await vscode.workspace.fs.delete(sessionUri('/workspace/.mcp.json (agent) (agent)'));
      assert.equal(await runInSandbox('cd /workspace && ls -d .mcp.json*'), '.mcp.json\n');
    });

    it('accepts files that a person copies from this machine under real names, and VS Code reads none of them', async () => {
      const { fs } = vscode.workspace;
      const local = await mkdtemp(join(tmpdir(), 'holdfast-import-'));
      try {
        await mkdir(join(local, '.github/workflows'), { recursive: true });
        await mkdir(join(local, '.vscode'));
        const names = ['.github/workflows/ci.yml', '.mcp.json', '.vscode/settings.json', 'a.ts'];
        for (const name of names) await writeFile(join(local, name), `mine: ${name}\n`);
        const mine = (name: string): vscode.Uri => vscode.Uri.file(join(local, name));

        await fs.copy(mine(''), sessionUri('/workspace/imported'));
        // One by one, as a browser does with what is dropped on the Explorer.
        await fs.createDirectory(sessionUri('/workspace/dropped/.github/workflows'));
        await fs.writeFile(sessionUri('/workspace/dropped/.github/workflows/ci.yml'), Buffer.from('mine\n'));
        await fs.copy(mine('.vscode'), sessionUri('/workspace/dropped/.vscode'));
        await fs.copy(mine('.mcp.json'), sessionUri('/workspace/dropped/.mcp.json'));
        const found =
          'cd /workspace && find imported dropped -type f | LC_ALL=C sort && cat imported/.mcp.json';
        assert.deepEqual((await runInSandbox(found)).split('\n'), [
          'dropped/.github/workflows/ci.yml',
          'dropped/.mcp.json',
          'dropped/.vscode/settings.json',
          ...names.map((name) => `imported/${name}`),
          'mine: .mcp.json',
          '',
        ]);
        const listed = (await fs.readDirectory(sessionUri('/workspace/imported'))).map(([name]) => name);
        assert.deepEqual(listed.sort(), ['.github (agent)', '.mcp.json (agent)', '.vscode (agent)', 'a.ts']);

        // The agent has its say about them from now on.
        await runInSandbox(
          'cd /workspace && echo evil | tee imported/.mcp.json > imported/.vscode/settings.json',
        );
        for (const name of ['.mcp.json', '.vscode/settings.json', '.github/workflows/ci.yml'])
          assert.equal(
            await fileSystemErrorCode(fs.readFile(sessionUri(`/workspace/imported/${name}`))),
            'NoPermissions',
            name,
          );
        for (const name of ['.vscode', '.github', '.github/workflows'])
          assert.equal(
            await fileSystemErrorCode(fs.readDirectory(sessionUri(`/workspace/imported/${name}`))),
            'NoPermissions',
            name,
          );
        // What VS Code cannot see it cannot ask about.
        for (const name of ['.mcp.json', '.vscode', '.github'])
          assert.equal(
            await fileSystemErrorCode(fs.copy(mine(name), sessionUri(`/workspace/${name}`))),
            'FileExists',
            name,
          );
        assert.match(await runInSandbox('cat /workspace/.mcp.json'), /evil/);
        await runInSandbox('rm -r /workspace/imported /workspace/dropped');
      } finally {
        await rm(local, { recursive: true });
      }
    });

    it('is trusted only if it is the only folder', () => {
      assert.equal(vscode.workspace.isTrusted, (vscode.workspace.workspaceFolders?.length ?? 0) === 1);
    });

    it('changes no setting', async () => {
      const terminal = (): vscode.WorkspaceConfiguration =>
        vscode.workspace.getConfiguration('terminal.integrated', sessionUri('/workspace/any.md'));
      // In a window of its own the session's folder has Holdfast's settings; other windows take none of this kind from a folder.
      const isAlone =
        vscode.workspace.workspaceFolders?.length === 1 && vscode.workspace.workspaceFile === undefined;
      if (isAlone)
        await waitUntil('the settings of Holdfast', () => terminal().get('defaultProfile.linux') === SANDBOX);
      const profile = terminal().inspect('defaultProfile.linux');
      const expected = isAlone ? SANDBOX : undefined;
      assert.deepEqual([profile?.workspaceValue, profile?.workspaceFolderValue], [expected, expected]);
      assert.notEqual(terminal().get('defaultProfile.linux'), 'evil');
      assert.doesNotMatch(JSON.stringify(terminal().get('profiles.linux')), /evil/);
      assert.notEqual(
        vscode.workspace.getConfiguration('editor', sessionUri('/workspace/any.md')).get('tabSize'),
        7,
      );
    });

    it('offers no snippets', async () => {
      const document = await vscode.workspace.openTextDocument(sessionUri('/workspace/notes.md'));
      await vscode.window.showTextDocument(document);
      const offered = await vscode.commands.executeCommand<vscode.CompletionList>(
        'vscode.executeCompletionItemProvider',
        document.uri,
        new vscode.Position(0, 0),
      );
      const labels = offered.items.map(({ label }) => (typeof label === 'string' ? label : label.label));
      assert.ok(!labels.includes('evilsnippet'), labels.join(' '));
      await vscode.commands.executeCommand('workbench.action.closeAllEditors');
    });

    it('offers no debug configuration', async () => {
      const launch = vscode.workspace.getConfiguration('launch', sessionUri('/workspace/any.md'));
      assert.deepEqual(launch.get('configurations', []), []);
    });

    it('leaves it to the person to trust a local folder beside it', async function () {
      if (vscode.workspace.isTrusted) return;
      // Somebody at the window has to answer (the run's `trust`).
      if (process.env['HOLDFAST_TEST_TRUST'] === undefined) this.skip();
      const granted = new Promise<void>((resolve) => {
        const listener = vscode.workspace.onDidGrantWorkspaceTrust(() => {
          listener.dispose();
          resolve();
        });
      });
      await vscode.commands.executeCommand('workbench.trust.manage');
      await granted;
      await vscode.commands.executeCommand('workbench.action.closeAllEditors');
    });

    describe('in a window that is trusted', () => {
      before(function () {
        if (!vscode.workspace.isTrusted) this.skip();
      });

      it('offers no task, and none has run by itself', async () => {
        const tasks = await vscode.tasks.fetchTasks();
        assert.deepEqual(
          tasks.filter(({ name }) => name.includes('evil')),
          [],
        );
      });

      it('still changes no setting and offers no debug configuration', async () => {
        const terminal = vscode.workspace.getConfiguration(
          'terminal.integrated',
          sessionUri('/workspace/any.md'),
        );
        assert.notEqual(terminal.get('defaultProfile.linux'), 'evil');
        for (const folder of vscode.workspace.workspaceFolders ?? []) {
          const launch = vscode.workspace.getConfiguration('launch', folder.uri);
          assert.deepEqual(launch.get('configurations', []), []);
        }
      });

      it('changes, offers and runs nothing as a folder that is added later', async function () {
        const folders = vscode.workspace.workspaceFolders ?? [];
        // A window of one folder would start over, and this run with it.
        if (folders.length < 2) this.skip();
        vscode.workspace.updateWorkspaceFolders(folders.length, 0, { uri: sessionUri('/workspace') });
        await waitUntil('the folder is there', () => unsafeFolders().length === 1);
        await waitUntil('it is gone again', () => unsafeFolders().length === 0);
        assert.equal(vscode.workspace.workspaceFolders?.length, folders.length);
        const tasks = await vscode.tasks.fetchTasks();
        assert.deepEqual(
          tasks.filter(({ name }) => name.includes('evil')),
          [],
        );
        assert.deepEqual(await readdir(MARKS), []);
      });

      it('has no effect on a local terminal', async () => {
        const terminal = vscode.window.createTerminal({ name: 'local', cwd: MARKS });
        try {
          terminal.sendText(`touch ${join(MARKS, 'by-the-person')}`);
          await marked('by-the-person');
        } finally {
          terminal.dispose();
        }
      });

      it('has no effect on a person’s task', async () => {
        const task = new vscode.Task(
          { type: 'shell' },
          vscode.TaskScope.Workspace,
          'mine',
          'person',
          new vscode.ShellExecution(`touch ${join(MARKS, 'by-a-task')}`, { cwd: MARKS }),
        );
        await vscode.tasks.executeTask(task);
        await marked('by-a-task');
      });

      it('has no effect on a person’s debug session, and offers none of its own', async () => {
        for (const folder of vscode.workspace.workspaceFolders ?? []) {
          const started = Promise.resolve(vscode.debug.startDebugging(folder, 'evil'));
          assert.equal(await started.catch(() => false), false);
        }
        // Not every VS Code brings a debugger.
        if (vscode.extensions.getExtension('ms-vscode.js-debug') === undefined) return;
        const program = join(MARKS, 'mine.cjs');
        const mark = JSON.stringify(join(MARKS, 'by-debugging'));
        await writeFile(program, `require('node:fs').writeFileSync(${mark}, '')`);
        const mine = { type: 'node', request: 'launch', name: 'mine', program, cwd: MARKS };
        assert.equal(await vscode.debug.startDebugging(undefined, mine), true);
        await marked('by-debugging');
      });

      it('has run nothing on this machine', async () => {
        const mine = ['by-a-task', 'by-debugging', 'by-the-person', 'mine.cjs'];
        assert.deepEqual(
          (await readdir(MARKS)).filter((name) => !mine.includes(name)),
          [],
        );
      });
    });
  });
}

/** Folders of the window that an agent can write. */
function unsafeFolders(): readonly vscode.WorkspaceFolder[] {
  return (vscode.workspace.workspaceFolders ?? []).filter(
    ({ uri }) => uri.scheme.startsWith('holdfast') && uri.path !== '/',
  );
}

/** What a person has started leaves its mark. */
async function marked(name: string): Promise<void> {
  await waitUntil(name, async () => (await readdir(MARKS)).includes(name));
}
