import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
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

    it('offers no task, and none has run by itself', async function () {
      // With a local folder beside it VS Code asks for trust first; in the window of the session alone this runs.
      if (!vscode.workspace.isTrusted) this.skip();
      const tasks = await vscode.tasks.fetchTasks();
      assert.deepEqual(
        tasks.filter(({ name }) => name.includes('evil')),
        [],
      );
    });

    it('offers nothing to debug', async () => {
      const launch = vscode.workspace.getConfiguration('launch', at('/workspace/any.md'));
      assert.deepEqual(launch.get('configurations', []), []);
    });

    it('has no say in a local terminal', async function () {
      // As above: in the window of the session alone it runs.
      if (!vscode.workspace.isTrusted) this.skip();
      const terminal = vscode.window.createTerminal({ name: 'local', cwd: MARKS });
      try {
        terminal.sendText(`touch ${join(MARKS, 'by-the-person')}`);
        await until('a local shell', async () => (await readdir(MARKS)).includes('by-the-person'), 15_000);
      } finally {
        terminal.dispose();
      }
      assert.deepEqual(await readdir(MARKS), ['by-the-person']);
    });
  });
}
