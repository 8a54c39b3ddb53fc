import assert from 'node:assert/strict';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension, waitUntil } from './extension.ts';
import { sessionUri, runInSandbox, writeText } from './session.ts';

/** A folder of this machine, in which a program that runs here leaves a file. */
const MARKS = process.env['HOLDFAST_TEST_MARKS'] ?? '';
/** A folder of this machine outside of it. */
const OUTSIDE = join(MARKS, '..');

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

    it('PHP validation: does not run the php of this machine', async () => {
      await writeText('/workspace/evil.php', '<?php\n');
      const document = await vscode.workspace.openTextDocument(sessionUri('/workspace/evil.php'));
      const editor = await vscode.window.showTextDocument(document);
      await editor.edit((edit) => edit.insert(new vscode.Position(1, 0), 'echo 1;\n'));
      assert.equal(await document.save(), true);
      // VS Code turns off what validates: it supports no folders that are not on a disk.
      assert.equal(vscode.extensions.getExtension('vscode.php-language-features'), undefined);
    });

    it('Go to Definition: stays in the session, but for an absolute path, which is opened on this machine', async () => {
      const path = join(OUTSIDE, 'of-this-machine.ts');
      await writeFile(path, 'export const ofThisMachine = 1;\n');
      const text = `import { own } from './own';\nimport { ofThisMachine } from '${path}';\n`;
      await writeText('/workspace/own.ts', 'export const own = 1;\n');
      await writeText('/workspace/uses.ts', text);
      const document = await vscode.workspace.openTextDocument(sessionUri('/workspace/uses.ts'));
      await vscode.window.showTextDocument(document);
      const definitionsOf = async (part: string): Promise<vscode.Uri[]> => {
        const found = await vscode.commands.executeCommand<(vscode.Location | vscode.LocationLink)[]>(
          'vscode.executeDefinitionProvider',
          document.uri,
          document.positionAt(text.indexOf(part) + 1),
        );
        return found.map((one) => ('uri' in one ? one.uri : one.targetUri));
      };
      const [own] = await waitUntil('a definition', async () => {
        const found = await definitionsOf('./own');
        return found.length > 0 ? found : undefined;
      });
      assert.equal(own?.scheme, 'holdfast');
      const [other] = await definitionsOf(path);
      assert.equal(other?.toString(), vscode.Uri.file(path).toString());
    });

    it('completion of paths in TypeScript and JavaScript: lists no folder of this machine', async () => {
      await writeFile(join(OUTSIDE, 'only-of-this-machine.ts'), 'export {};\n');
      for (const name of ['completes.ts', 'completes.js']) {
        const text = `import '${OUTSIDE}/';\nimport './';\n/// <reference path="${OUTSIDE}/" />\n`;
        await writeText(`/workspace/${name}`, text);
        const document = await vscode.workspace.openTextDocument(sessionUri(`/workspace/${name}`));
        await vscode.window.showTextDocument(document);
        for (const at of [`${OUTSIDE}/`, './']) {
          const end = document.positionAt(text.indexOf(at) + at.length);
          const found = await vscode.commands.executeCommand<vscode.CompletionList>(
            'vscode.executeCompletionItemProvider',
            document.uri,
            end,
            '/',
          );
          const labels = found.items.map(({ label }) => (typeof label === 'string' ? label : label.label));
          assert.ok(!labels.some((label) => label.includes('only-of-this-machine')), labels.join(' '));
        }
      }
    });

    it('the schema that a JSON file names: a file of this machine is read, and only what is wrong with the JSON file is shown', async () => {
      const schema = '{ "type": "array", "description": "words of this machine" }';
      await writeFile(join(OUTSIDE, 'schema.json'), schema);
      const uri = sessionUri('/workspace/names-a-schema.json');
      const named = vscode.Uri.file(join(OUTSIDE, 'schema.json')).toString();
      const text = `{ "$schema": "${named}", "a": 1 }\n`;
      await writeText('/workspace/names-a-schema.json', text);
      const document = await vscode.workspace.openTextDocument(uri);
      await vscode.window.showTextDocument(document);
      const problems = await waitUntil('what is wrong with the file', () => {
        const found = vscode.languages.getDiagnostics(uri).map(({ message }) => message);
        return found.length > 0 ? found : undefined;
      });
      assert.deepEqual(problems, ['Incorrect type. Expected "array".']);
      assert.equal(document.getText(), text);
      assert.equal(document.isDirty, false);
    });

    it('Emmet, Update Image Size: takes the size, and nothing else, of an image of this machine', async () => {
      const path = join(OUTSIDE, 'of-this-machine.png');
      // The header of a PNG of 7 by 5, and what an image may say besides.
      const header = Buffer.from('89504e470d0a1a0a0000000d494844520000000700000005', 'hex');
      await writeFile(path, Buffer.concat([header, Buffer.from('a comment')]));
      await writeText('/workspace/image.html', `<img src="${path}">\n`);
      const document = await vscode.workspace.openTextDocument(sessionUri('/workspace/image.html'));
      const editor = await vscode.window.showTextDocument(document);
      editor.selection = new vscode.Selection(0, 3, 0, 3);
      await vscode.commands.executeCommand('editor.emmet.action.updateImageSize');
      assert.equal(document.getText(), `<img src="${path}" width="7" height="5">\n`);
    });

    it('notebooks, whose outputs VS Code runs: open as text, beside each other too', async () => {
      const notebook = '{ "cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5 }\n';
      const uris = ['one.ipynb', 'two.IPYNB'].map((name) => sessionUri(`/workspace/${name}`));
      const activeInput = (): unknown => vscode.window.tabGroups.activeTabGroup.activeTab?.input;
      for (const uri of uris) {
        await vscode.workspace.fs.writeFile(uri, Buffer.from(notebook));
        await vscode.commands.executeCommand('vscode.open', uri);
        await waitUntil('the notebook as text', () => {
          const input = activeInput();
          return input instanceof vscode.TabInputText && input.uri.toString() === uri.toString();
        });
      }
      await vscode.commands.executeCommand('vscode.diff', ...uris);
      await waitUntil('the comparison as text', () => activeInput() instanceof vscode.TabInputTextDiff);
      assert.deepEqual(vscode.workspace.notebookDocuments, []);
    });

    it('Copy Path: the path in the sandbox', async () => {
      await vscode.env.clipboard.writeText('');
      await vscode.commands.executeCommand('copyFilePath', sessionUri('/workspace/evil.ts'));
      assert.equal(await vscode.env.clipboard.readText(), '/workspace/evil.ts');
    });

    it('nothing of the above has run a program of this machine', async () => {
      assert.deepEqual(await readdir(MARKS), []);
    });
  });
}

function setting(name: string): unknown {
  return vscode.workspace.getConfiguration().get(name);
}
