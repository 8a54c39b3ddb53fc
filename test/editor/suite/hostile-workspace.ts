import assert from 'node:assert/strict';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension, until } from './extension.ts';
import { at, textOf } from './session.ts';

/** Where a program of the workspace would leave a file, if this machine ran it. */
const MARKS = process.env['HOLDFAST_TEST_MARKS'] ?? '';

/** The workspace is full of configuration that an agent wrote for the editor (see test/editor/hostile.ts). */
export function defineHostileWorkspace(): void {
  describe('a workspace that wants to configure the editor', () => {
    before(() => extension().activate());

    it('is shown as it is', async () => {
      assert.match(await textOf('/workspace/.vscode/settings.json'), /evil/);
      assert.equal(vscode.workspace.isTrusted, (vscode.workspace.workspaceFolders?.length ?? 0) === 1);
    });

    it('sets nothing', () => {
      const terminal = vscode.workspace.getConfiguration('terminal.integrated', at('/workspace/any.md'));
      const profile = terminal.inspect('defaultProfile.linux');
      assert.deepEqual([profile?.workspaceValue, profile?.workspaceFolderValue], [undefined, undefined]);
      assert.notEqual(terminal.get('defaultProfile.linux'), 'evil');
      assert.notEqual(vscode.workspace.getConfiguration('editor', at('/workspace/any.md')).get('tabSize'), 7);
    });

    it('offers nothing to debug', async () => {
      const launch = vscode.workspace.getConfiguration('launch', at('/workspace/any.md'));
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

      it('still sets nothing, and offers nothing to debug', async () => {
        const terminal = vscode.workspace.getConfiguration('terminal.integrated', at('/workspace/any.md'));
        assert.notEqual(terminal.get('defaultProfile.linux'), 'evil');
        for (const folder of vscode.workspace.workspaceFolders ?? []) {
          const launch = vscode.workspace.getConfiguration('launch', folder.uri);
          assert.deepEqual(launch.get('configurations', []), []);
        }
      });

      it('has no say in a local terminal', async () => {
        const terminal = vscode.window.createTerminal({ name: 'local', cwd: MARKS });
        try {
          terminal.sendText(`touch ${join(MARKS, 'by-the-person')}`);
          await marked('by-the-person');
        } finally {
          terminal.dispose();
        }
      });

      it('has no say in a task of a person’s', async () => {
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

      it('has no say in a debug session of a person’s, and offers none of its own', async () => {
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

/** What a person has started leaves its mark. */
async function marked(name: string): Promise<void> {
  await until(name, async () => (await readdir(MARKS)).includes(name));
}
