import assert from 'node:assert/strict';
import { afterEach, before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension, waitUntil } from './extension.ts';
import { SESSION, fileSystemErrorCode, readText, sessionUri, writeText } from './session.ts';

const { fs } = vscode.workspace;

function tabs(): string[] {
  return vscode.window.tabGroups.all
    .flatMap((group) => group.tabs)
    .flatMap(({ input }) => (input instanceof vscode.TabInputText ? [input.uri.toString()] : []));
}

/** Of a window whose folder is `holdfast://<session>.<home id>/`. */
export function defineLinks(): void {
  describe('links to files of a session', () => {
    before(() => extension().activate());
    afterEach(() => vscode.commands.executeCommand('workbench.action.closeAllEditors'));

    it('lead to the same file with and without the id of the home', async () => {
      await writeText('/workspace/linked-twice', 'one\n');
      const short = sessionUri('/workspace/linked-twice').with({ authority: SESSION });
      assert.notEqual(short.toString(), sessionUri('/workspace/linked-twice').toString());
      assert.equal(Buffer.from(await fs.readFile(short)).toString(), 'one\n');
      await fs.writeFile(short, Buffer.from('two\n'));
      assert.equal(await readText('/workspace/linked-twice'), 'two\n');
    });

    it('open under the URI of the window’s folder, also without the id of the home', async () => {
      await writeText('/workspace/linked', '1\n2\n3\n');
      const long = sessionUri('/workspace/linked');
      const selection = new vscode.Selection(2, 0, 2, 1);
      await vscode.commands.executeCommand('vscode.open', long.with({ authority: SESSION }), { selection });
      await waitUntil('the tab', () => tabs().join(' ') === long.toString());
      await waitUntil(
        'the place',
        () => vscode.window.activeTextEditor?.selection.isEqual(selection) === true,
      );
    });

    it('of another home say so, and give and change nothing', async () => {
      const authority = `${SESSION}.${'a'.repeat(26)}`;
      const elsewhere = sessionUri('/workspace/notes.md').with({ authority });
      const snapshot = elsewhere.with({
        scheme: 'holdfast-snapshot',
        authority: authority.replace('ses-', 'snp-'),
      });
      for (const uri of [elsewhere, snapshot, elsewhere.with({ path: '/' }), snapshot.with({ path: '/' })]) {
        await assert.rejects(
          Promise.resolve(fs.stat(uri)),
          /belongs to another machine's Holdfast \(home a{26}\)/,
          uri.toString(),
        );
        assert.equal(await fileSystemErrorCode(fs.readFile(uri)), 'Unavailable');
        assert.equal(await fileSystemErrorCode(fs.readDirectory(uri)), 'Unavailable');
      }
      assert.equal(await fileSystemErrorCode(fs.writeFile(elsewhere, Buffer.from('x'))), 'Unavailable');
      assert.equal(await fileSystemErrorCode(fs.delete(elsewhere)), 'Unavailable');
    });

    it('with an id that no home can have lead nowhere', async () => {
      for (const home of ['', '1'.repeat(26), 'a'.repeat(25), `${'a'.repeat(26)}.b`]) {
        const uri = sessionUri('/workspace/notes.md').with({ authority: `${SESSION}.${home}` });
        assert.equal(await fileSystemErrorCode(fs.stat(uri)), 'FileNotFound', home);
      }
    });
  });
}
