import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension, waitUntil } from './extension.ts';
import { fileSystemErrorCode } from './session.ts';

/** A folder of this machine, in which a program that runs here leaves a file. */
const MARKS = process.env['HOLDFAST_TEST_MARKS'] ?? '';

/** The window's only folder is a snapshot, of a workspace like the one of the suite `host-paths`. */
export function defineSnapshotFolder(): void {
  describe('a window of a snapshot', () => {
    let root: vscode.Uri;

    before(async () => {
      await extension().activate();
      const [folder] = vscode.workspace.workspaceFolders ?? [];
      assert.ok(folder?.uri.scheme === 'holdfast-snapshot');
      root = folder.uri;
      await waitUntil('the settings of Holdfast', () => setting('git.enabled') === false);
    });

    it('has read-only settings that no listing shows', async () => {
      const { fs } = vscode.workspace;
      assert.deepEqual(await fs.readDirectory(root), [['workspace', vscode.FileType.Directory]]);
      const settings = at('/.vscode/settings.json');
      const { size, type } = await fs.stat(settings);
      assert.deepEqual([size, type], [(await fs.readFile(settings)).byteLength, vscode.FileType.File]);
      assert.equal(await fileSystemErrorCode(fs.writeFile(settings, Buffer.from('{}'))), 'NoPermissions');
      assert.equal(await fileSystemErrorCode(fs.delete(settings)), 'NoPermissions');
      assert.equal(await fileSystemErrorCode(fs.readDirectory(at('/.vscode'))), 'FileNotFound');
      for (const other of [at('/.vscode/tasks.json'), settings.with({ authority: 'nobody' })])
        assert.equal(await fileSystemErrorCode(fs.readFile(other)), 'FileNotFound', other.toString());
      assert.equal(
        await fileSystemErrorCode(fs.readFile(at('/workspace/.vscode/settings.json'))),
        'NoPermissions',
        'those of the agent',
      );
      assert.notEqual(setting('editor.tabSize'), 7);
    });

    it('has no tasks, no Run Script, and queries no registry', async () => {
      for (const type of ['npm', 'typescript', 'gulp', 'grunt', 'jake', 'shell'])
        assert.deepEqual(await vscode.tasks.fetchTasks({ type }), [], type);
      const manifest = await vscode.workspace.openTextDocument(at('/workspace/package.json'));
      await vscode.window.showTextDocument(manifest);
      const text = manifest.getText();
      for (const what of ['"evil":', 'names-tell']) {
        const hovers = await vscode.commands.executeCommand<vscode.Hover[]>(
          'vscode.executeHoverProvider',
          manifest.uri,
          manifest.positionAt(text.indexOf(what) + 2),
        );
        assert.doesNotMatch(JSON.stringify(hovers.map(({ contents }) => contents)), /command:npm\./);
      }
      await vscode.commands.executeCommand('workbench.action.closeAllEditors');
      assert.deepEqual(await readdir(MARKS), []);
    });

    it('asks for a session for a new terminal, and opens no shell of this machine', async () => {
      const opened: string[] = [];
      const listener = vscode.window.onDidOpenTerminal(({ name }) => opened.push(name));
      try {
        let isOver = false;
        const made = Promise.resolve(vscode.commands.executeCommand('workbench.action.terminal.new'));
        void made.finally(() => (isOver = true)).catch(() => undefined);
        // The person presses Escape.
        await waitUntil('the end of the question', async () => {
          await vscode.commands.executeCommand('workbench.action.closeQuickOpen');
          return isOver && opened.length > 0 && vscode.window.terminals.length === 0;
        });
        assert.deepEqual(opened, ['Cancelled']);
      } finally {
        listener.dispose();
      }
    });

    function at(path: string): vscode.Uri {
      return root.with({ path });
    }
  });
}

function setting(name: string): unknown {
  return vscode.workspace.getConfiguration().get(name);
}
