import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension, waitUntil } from './extension.ts';
import { sessionUri, runInSandbox, writeText } from './session.ts';

const FOLDER = '/workspace/moved';

/** Opens a file with unsaved text at its beginning. */
async function typedInto(path: string): Promise<void> {
  const editor = await vscode.window.showTextDocument(sessionUri(path), { preview: false });
  await editor.edit((edit) => edit.insert(new vscode.Position(0, 0), 'typed '));
  await waitUntil('the unsaved text', () => editor.document.isDirty);
}

/** As the Explorer does it. */
async function rename(from: string, to: string, overwrite = false): Promise<void> {
  const edit = new vscode.WorkspaceEdit();
  edit.renameFile(sessionUri(from), sessionUri(to), { overwrite });
  assert.equal(await vscode.workspace.applyEdit(edit), true);
}

async function moved(path: string): Promise<vscode.TextDocument> {
  const key = sessionUri(path).toString();
  return waitUntil(`the document ${path}`, () =>
    vscode.workspace.textDocuments.find(({ uri, isDirty }) => uri.toString() === key && isDirty),
  );
}

/** Saves it, which is no conflict, and gives what the session has then. */
async function saved(path: string): Promise<string> {
  const document = await moved(path);
  assert.equal(await document.save(), true, 'it is saved');
  assert.equal(document.isDirty, false);
  return runInSandbox(`head -c 30 ${path.replaceAll(' ', '\\ ')}`);
}

/** Unsaved text that VS Code carries along when its file gets another path. */
export function defineMovedDocuments(): void {
  describe('unsaved documents', () => {
    before(async () => {
      await extension().activate();
      await runInSandbox(`mkdir -p ${FOLDER}/folder/inner ${FOLDER}/other`);
    });
    afterEach(async () => {
      while (vscode.window.activeTextEditor !== undefined) {
        await vscode.commands.executeCommand('workbench.action.revertAndCloseActiveEditor');
      }
    });
    after(() => runInSandbox(`rm -rf ${FOLDER}`));

    it('are saved after a rename, again and again', async () => {
      await writeText(`${FOLDER}/one`, 'first\n');
      await typedInto(`${FOLDER}/one`);
      await rename(`${FOLDER}/one`, `${FOLDER}/two`);
      assert.equal(await saved(`${FOLDER}/two`), 'typed first\n');
      await typedInto(`${FOLDER}/two`);
      await rename(`${FOLDER}/two`, `${FOLDER}/one`);
      assert.equal(await saved(`${FOLDER}/one`), 'typed typed first\n');
    });

    it('are saved after a rename and its reversal without a save in between', async () => {
      await writeText(`${FOLDER}/there`, 'first\n');
      await typedInto(`${FOLDER}/there`);
      await rename(`${FOLDER}/there`, `${FOLDER}/back`);
      await moved(`${FOLDER}/back`);
      await rename(`${FOLDER}/back`, `${FOLDER}/there`);
      assert.equal(await saved(`${FOLDER}/there`), 'typed first\n');
    });

    it('are saved after a rename was undone', async () => {
      await writeText(`${FOLDER}/undone`, 'first\n');
      await typedInto(`${FOLDER}/undone`);
      await rename(`${FOLDER}/undone`, `${FOLDER}/redone`);
      await vscode.window.showTextDocument(await moved(`${FOLDER}/redone`));
      await vscode.commands.executeCommand('undo');
      assert.equal(await saved(`${FOLDER}/undone`), 'typed first\n');
      assert.equal(await runInSandbox(`ls ${FOLDER} | grep done`), 'undone\n');
    });

    it('are saved after a rename of a folder above them and its reversal', async () => {
      await writeText(`${FOLDER}/above/inner/deep`, 'deep\n');
      await typedInto(`${FOLDER}/above/inner/deep`);
      await rename(`${FOLDER}/above`, `${FOLDER}/below`);
      await moved(`${FOLDER}/below/inner/deep`);
      await rename(`${FOLDER}/below`, `${FOLDER}/above`);
      assert.equal(await saved(`${FOLDER}/above/inner/deep`), 'typed deep\n');
    });

    it('are not saved over a write of the agent after a rename was undone', async () => {
      await writeText(`${FOLDER}/kept`, 'first\n');
      await typedInto(`${FOLDER}/kept`);
      await rename(`${FOLDER}/kept`, `${FOLDER}/left`);
      await vscode.window.showTextDocument(await moved(`${FOLDER}/left`));
      await runInSandbox(`echo agent > ${FOLDER}/left`);
      await vscode.commands.executeCommand('undo');
      const document = await moved(`${FOLDER}/kept`);
      assert.equal(await document.save(), false);
      assert.equal(await runInSandbox(`cat ${FOLDER}/kept`), 'agent\n');
    });

    it('are saved after a rename that changes their language', async () => {
      await writeText(`${FOLDER}/notes.txt`, 'first\n');
      await typedInto(`${FOLDER}/notes.txt`);
      await rename(`${FOLDER}/notes.txt`, `${FOLDER}/notes.json`);
      const document = await moved(`${FOLDER}/notes.json`);
      await waitUntil('the language', () => document.languageId === 'json');
      assert.equal(await saved(`${FOLDER}/notes.json`), 'typed first\n');
    });

    it('are saved after a rename that changes only the case', async () => {
      await writeText(`${FOLDER}/case`, 'first\n');
      await typedInto(`${FOLDER}/case`);
      await rename(`${FOLDER}/case`, `${FOLDER}/CASE`);
      assert.equal(await saved(`${FOLDER}/CASE`), 'typed first\n');
    });

    it('are saved after a rename over a file that also has unsaved text', async () => {
      await writeText(`${FOLDER}/from`, 'from\n');
      await writeText(`${FOLDER}/over`, 'over\n');
      await typedInto(`${FOLDER}/over`);
      await typedInto(`${FOLDER}/from`);
      await rename(`${FOLDER}/from`, `${FOLDER}/over`, true);
      await waitUntil('the text', async () => (await moved(`${FOLDER}/over`)).getText() === 'typed from\n');
      assert.equal(await saved(`${FOLDER}/over`), 'typed from\n');
    });

    it('are saved after a rename of a folder above them', async () => {
      await writeText(`${FOLDER}/folder/inner/deep`, 'deep\n');
      await writeText(`${FOLDER}/folder/flat`, 'flat\n');
      await typedInto(`${FOLDER}/folder/inner/deep`);
      await typedInto(`${FOLDER}/folder/flat`);
      await rename(`${FOLDER}/folder`, `${FOLDER}/renamed`);
      assert.equal(await saved(`${FOLDER}/renamed/inner/deep`), 'typed deep\n');
      assert.equal(await saved(`${FOLDER}/renamed/flat`), 'typed flat\n');
    });

    it('are saved after a rename of a large file, which changes its version', async () => {
      await runInSandbox(`head -c 5000000 /dev/zero | tr '\\0' 'x' | fold -w 99 > ${FOLDER}/large`);
      await typedInto(`${FOLDER}/large`);
      await rename(`${FOLDER}/large`, `${FOLDER}/larger`);
      assert.match(await saved(`${FOLDER}/larger`), /^typed x/);
    });

    it('are saved in both places after a copy', async () => {
      await writeText(`${FOLDER}/source`, 'source\n');
      await typedInto(`${FOLDER}/source`);
      await vscode.workspace.fs.copy(sessionUri(`${FOLDER}/source`), sessionUri(`${FOLDER}/target`));
      assert.equal(await saved(`${FOLDER}/source`), 'typed source\n');
      assert.equal(await runInSandbox(`cat ${FOLDER}/target`), 'source\n');
    });

    it('are not saved over a write of the agent after the rename', async () => {
      await writeText(`${FOLDER}/mine`, 'first\n');
      await typedInto(`${FOLDER}/mine`);
      await rename(`${FOLDER}/mine`, `${FOLDER}/ours`);
      const document = await moved(`${FOLDER}/ours`);
      await runInSandbox(`echo agent > ${FOLDER}/ours`);
      assert.equal(await document.save(), false);
      assert.equal(document.isDirty, true);
      assert.equal(await runInSandbox(`cat ${FOLDER}/ours`), 'agent\n');
    });

    it('are not saved over a write of the agent before the rename', async () => {
      await writeText(`${FOLDER}/before`, 'first\n');
      await typedInto(`${FOLDER}/before`);
      await runInSandbox(`echo agent > ${FOLDER}/before`);
      await rename(`${FOLDER}/before`, `${FOLDER}/afterwards`);
      const document = await moved(`${FOLDER}/afterwards`);
      assert.equal(await document.save(), false);
      assert.equal(await runInSandbox(`cat ${FOLDER}/afterwards`), 'agent\n');
    });
  });
}
