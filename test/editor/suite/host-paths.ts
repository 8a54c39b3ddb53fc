import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension, waitUntil } from './extension.ts';
import { sessionUri, runInSandbox, writeText } from './session.ts';

/** A folder of this machine, in which a program that runs here leaves a file. */
const MARKS = process.env['HOLDFAST_TEST_MARKS'] ?? '';

const PACKAGE = `{
  "name": "evil",
  "scripts": {
    "evil": "touch ${join(MARKS, 'script')}"
  },
  "dependencies": {
    "names-tell-something": "*"
  }
}
`;

/** Features of VS Code that take the path of a folder or file for one of this machine, see the table in docs/editor.md. */
export function defineHostPaths(): void {
  describe('features of VS Code that use paths of this machine', () => {
    let manifest: vscode.TextDocument;

    before(async () => {
      await extension().activate();
      await writeText('/workspace/package.json', PACKAGE);
      await runInSandbox(
        [
          'cd /workspace',
          `echo '{ "compilerOptions": { "plugins": [{ "name": "evil" }] } }' > tsconfig.json`,
          'for file in gulpfile.js Gruntfile.js Jakefile.js; do echo "task()" > $file; done',
        ].join('\n'),
      );
      manifest = await vscode.workspace.openTextDocument(sessionUri('/workspace/package.json'));
      await vscode.window.showTextDocument(manifest);
      await waitUntil('the settings of the session', () => setting('git.enabled') === false);
    });

    for (const type of ['npm', 'typescript', 'gulp', 'grunt', 'jake', 'shell', 'process']) {
      it(`tasks of type ${type}: none`, async () => {
        const tasks = await vscode.tasks.fetchTasks({ type });
        assert.deepEqual(
          tasks.map(({ name }) => name),
          [],
        );
      });
    }

    it('Run Script and Debug in a package.json: off', async () => {
      const script = manifest.positionAt(PACKAGE.indexOf('"evil":') + 2);
      const hovers = await vscode.commands.executeCommand<vscode.Hover[]>(
        'vscode.executeHoverProvider',
        manifest.uri,
        script,
      );
      const texts = JSON.stringify(hovers.map(({ contents }) => contents));
      assert.ok(!texts.includes('command:npm.'), texts);
      const lenses = await vscode.commands.executeCommand<vscode.CodeLens[]>(
        'vscode.executeCodeLensProvider',
        manifest.uri,
        100,
      );
      assert.deepEqual(
        lenses.map(({ command }) => command?.command),
        [],
      );
    });

    it('package information: does not ask the npm of this machine', async () => {
      const dependency = manifest.positionAt(PACKAGE.indexOf('names-tell') + 2);
      for (const provider of ['vscode.executeHoverProvider', 'vscode.executeCompletionItemProvider'])
        await vscode.commands.executeCommand(provider, manifest.uri, dependency);
      assert.deepEqual(await readdir(MARKS), []);
    });

    it('debugging: finds no configuration, and starts nothing', async () => {
      const folder = vscode.workspace.workspaceFolders?.[0];
      const program = {
        type: 'node',
        request: 'launch',
        name: 'evil',
        program: '${workspaceFolder}/evil.js',
      };
      for (const what of ['evil', program]) {
        const started = Promise.resolve(vscode.debug.startDebugging(folder, what));
        assert.equal(await started.catch(() => false), false);
      }
    });

    it('type definitions: fetched for no name that the agent chose', () => {
      assert.equal(setting('typescript.disableAutomaticTypeAcquisition'), true);
      assert.equal(setting('js/ts.tsserver.automaticTypeAcquisition.enabled'), false);
    });

    it('Copy Path: the path in the sandbox', async () => {
      await vscode.env.clipboard.writeText('');
      await vscode.commands.executeCommand('copyFilePath', sessionUri('/workspace/evil.ts'));
      assert.equal(await vscode.env.clipboard.readText(), '/workspace/evil.ts');
    });
  });
}

function setting(name: string): unknown {
  return vscode.workspace.getConfiguration().get(name);
}
