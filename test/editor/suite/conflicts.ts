import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension, waitUntil } from './extension.ts';
import { SESSION, sessionUri, runInSandbox, writeText } from './session.ts';

const FOLDER = '/workspace/conflicts';

async function open(name: string): Promise<vscode.TextEditor> {
  return vscode.window.showTextDocument(sessionUri(`${FOLDER}/${name}`), { preview: false });
}

function insert(editor: vscode.TextEditor, line: number, text: string): Thenable<boolean> {
  return editor.edit((edit) => edit.insert(new vscode.Position(line, 0), text));
}

function content(name: string): Promise<string> {
  return runInSandbox(`cat ${FOLDER}/${name}`);
}

/** A document whose file the agent has changed since, as the first save of it has found. */
async function conflicting(name: string): Promise<vscode.TextEditor> {
  await writeText(`${FOLDER}/${name}`, 'first\n');
  const editor = await open(name);
  await insert(editor, 0, 'mine ');
  await runInSandbox(`echo agent > ${FOLDER}/${name}`);
  assert.equal(await editor.document.save(), false);
  return editor;
}

/** A late merge is saved a moment after the save that it belongs to. */
async function saved(document: vscode.TextDocument): Promise<void> {
  await document.save();
  await waitUntil('saved', () => !document.isDirty);
}

/** The path of the file on this machine. */
function onMachine(name: string): string {
  return join(process.env['HOLDFAST_HOME'] ?? '', 'workspaces', SESSION, 'conflicts', name);
}

function autosave(value: 'off' | 'afterDelay'): Thenable<void> {
  const settings = vscode.workspace.getConfiguration('files');
  return settings.update('autoSave', value, vscode.ConfigurationTarget.Global);
}

function diffTabs(): vscode.Tab[] {
  return vscode.window.tabGroups.all
    .flatMap(({ tabs }) => tabs)
    .filter(({ input }) => input instanceof vscode.TabInputTextDiff);
}

/** Saves whose file is another one by then. */
export function defineConflicts(): void {
  describe('a save of a file that the session has changed', () => {
    before(async () => {
      await extension().activate();
      await runInSandbox(`mkdir -p ${FOLDER}`);
    });
    afterEach(async () => {
      await autosave('off');
      await vscode.commands.executeCommand('notifications.clearAll');
      for (const document of vscode.workspace.textDocuments.filter(({ isDirty }) => isDirty)) {
        await vscode.window.showTextDocument(document);
        await vscode.commands.executeCommand('workbench.action.files.revert');
      }
      await vscode.commands.executeCommand('workbench.action.closeAllEditors');
    });
    after(() => runInSandbox(`rm -rf ${FOLDER}`));

    it('fails at once and leaves the document unsaved', async () => {
      const begun = Date.now();
      const { document } = await conflicting('at-once');
      assert.ok(Date.now() - begun < 20_000);
      assert.equal(document.isDirty, true);
      assert.equal(document.getText(), 'mine first\n');
      assert.equal(await content('at-once'), 'agent\n');
      // It is asked about again whenever a person saves, and nothing is written before they have decided.
      assert.equal(await document.save(), false);
      assert.equal(document.isDirty, true);
      assert.equal(await content('at-once'), 'agent\n');
    });

    it('leaves documents unsaved under autosave too', async () => {
      const names = ['a', 'b', 'c', 'd', 'e'];
      for (const name of names) await writeText(`${FOLDER}/auto-${name}`, 'first\n');
      await autosave('afterDelay');
      const editors: vscode.TextEditor[] = [];
      for (const name of names) {
        const editor = await open(`auto-${name}`);
        await runInSandbox(`sleep 0.2; true`);
        editors.push(editor);
      }
      await autosave('off');
      for (const { document } of editors) {
        const editor = await vscode.window.showTextDocument(document, { preview: false });
        await insert(editor, 0, 'mine ');
      }
      await runInSandbox(`for f in ${names.join(' ')}; do echo agent > ${FOLDER}/auto-$f; done`);
      await autosave('afterDelay');
      await new Promise((resolve) => setTimeout(resolve, 4_000));
      for (const name of names) assert.equal(await content(`auto-${name}`), 'agent\n');
      for (const { document } of editors) assert.equal(document.isDirty, true);
    });

    it('overwrites the file if the person says so', async () => {
      const { document } = await conflicting('overwrite');
      await vscode.commands.executeCommand('holdfast.overwriteConflict', document.uri);
      assert.equal(document.isDirty, false);
      assert.equal(await content('overwrite'), 'mine first\n');
    });

    it('gives way to the session’s version if the person says so', async () => {
      const { document } = await conflicting('theirs');
      await vscode.commands.executeCommand('holdfast.useSessionVersion', document.uri);
      assert.equal(document.isDirty, false);
      assert.equal(document.getText(), 'agent\n');
      assert.equal(await content('theirs'), 'agent\n');
    });

    it('can be decided in the comparison, which then closes', async () => {
      const { document } = await conflicting('compared');
      await vscode.commands.executeCommand('holdfast.compareConflict', document.uri);
      const [tab] = diffTabs();
      assert.ok(tab?.input instanceof vscode.TabInputTextDiff);
      assert.equal(tab.input.modified.toString(), document.uri.toString());
      const left = await vscode.workspace.openTextDocument(tab.input.original);
      assert.equal(left.getText(), 'agent\n');
      await vscode.commands.executeCommand('holdfast.overwriteConflict', document.uri);
      assert.equal(await content('compared'), 'mine first\n');
      assert.deepEqual(diffTabs(), []);
    });

    it('does not overwrite the file from a comparison that is outdated', async () => {
      const { document } = await conflicting('outdated');
      await vscode.commands.executeCommand('holdfast.compareConflict', document.uri);
      await runInSandbox(`echo later > ${FOLDER}/outdated`);
      await vscode.commands.executeCommand('holdfast.overwriteConflict', document.uri);
      assert.equal(document.isDirty, true);
      assert.equal(await content('outdated'), 'later\n');
    });

    it('succeeds after the merge was saved in the comparison', async () => {
      const { document } = await conflicting('merged');
      await vscode.commands.executeCommand('holdfast.compareConflict', document.uri);
      const editor = await vscode.window.showTextDocument(document);
      for (const word of ['once ', 'twice ']) {
        await insert(editor, 0, word);
        assert.equal(await document.save(), true);
        assert.equal(await content('merged'), document.getText());
      }
      assert.match(document.getText(), /^twice once mine/);
    });

    it('asks again if the comparison is closed without a decision', async () => {
      const { document } = await conflicting('closed');
      await vscode.commands.executeCommand('holdfast.compareConflict', document.uri);
      await vscode.window.showTextDocument(document, { preview: false });
      await vscode.window.tabGroups.close(diffTabs());
      assert.equal(await document.save(), false);
      assert.equal(await content('closed'), 'agent\n');
    });

    it('does not recreate a deleted file without asking', async () => {
      await writeText(`${FOLDER}/gone`, 'here\n');
      const editor = await open('gone');
      await insert(editor, 0, 'still ');
      await runInSandbox(`rm ${FOLDER}/gone`);
      assert.equal(await editor.document.save(), false);
      assert.equal(editor.document.isDirty, true);
      assert.equal(await runInSandbox(`ls ${FOLDER} | grep gone || true`), '');
      await vscode.commands.executeCommand('holdfast.overwriteConflict', editor.document.uri);
      assert.equal(await content('gone'), 'still here\n');
      assert.equal(editor.document.isDirty, false);
    });

    it('closes the document of a deleted file if the person discards it', async () => {
      await writeText(`${FOLDER}/given-up`, 'here\n');
      const editor = await open('given-up');
      await insert(editor, 0, 'still ');
      await runInSandbox(`rm ${FOLDER}/given-up`);
      assert.equal(await editor.document.save(), false);
      await vscode.commands.executeCommand('holdfast.useSessionVersion', editor.document.uri);
      await waitUntil('closed', () => editor.document.isClosed || !editor.document.isDirty);
      assert.equal(await runInSandbox(`ls ${FOLDER} | grep given-up || true`), '');
    });

    it('merges changes of the session on other lines, as an edit that can be undone', async () => {
      await writeText(`${FOLDER}/other-lines`, 'one\ntwo\nthree\nfour\nfive\n');
      const editor = await open('other-lines');
      await insert(editor, 0, 'MINE ');
      await runInSandbox(`printf 'one\\ntwo\\nthree\\nfour\\nFIVE\\nsix\\n' > ${FOLDER}/other-lines`);
      await saved(editor.document);
      assert.equal(await content('other-lines'), 'MINE one\ntwo\nthree\nfour\nFIVE\nsix\n');
      assert.equal(editor.document.getText(), 'MINE one\ntwo\nthree\nfour\nFIVE\nsix\n');
      await vscode.commands.executeCommand('undo');
      assert.equal(editor.document.getText(), 'MINE one\ntwo\nthree\nfour\nfive\n');
      // The next change of theirs is merged with what was written last.
      await vscode.commands.executeCommand('redo');
      await insert(editor, 1, 'MORE ');
      await runInSandbox(`sed -i s/six/SIX/ ${FOLDER}/other-lines`);
      await saved(editor.document);
      assert.equal(await content('other-lines'), 'MINE one\nMORE two\nthree\nfour\nFIVE\nSIX\n');
    });

    it('merges changes on other lines that come too late for an edit before the save', async () => {
      await writeText(`${FOLDER}/late`, 'one\ntwo\nthree\n');
      const editor = await open('late');
      await insert(editor, 0, 'MINE ');
      // VS Code asks the extension first, as it was there first: by then nothing has changed.
      const late = vscode.workspace.onWillSaveTextDocument(({ document }) => {
        late.dispose();
        assert.equal(document.uri.toString(), editor.document.uri.toString());
        writeFileSync(onMachine('late'), 'one\ntwo\nthree\nfour\n');
      });
      await saved(editor.document);
      assert.equal(await content('late'), 'MINE one\ntwo\nthree\nfour\n');
      assert.equal(editor.document.getText(), 'MINE one\ntwo\nthree\nfour\n');
      await vscode.commands.executeCommand('undo');
      assert.equal(editor.document.getText(), 'MINE one\ntwo\nthree\n');
    });
  });
}
