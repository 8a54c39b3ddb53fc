import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { commandLine, holdfast } from './command-line.ts';
import { extension, until } from './extension.ts';
import { SESSION, at, inSandbox, write } from './session.ts';
import { holdingBack } from './wire-tap.ts';

interface Shown {
  readonly session: { readonly id: string; readonly profile: string };
}

async function open(path: string): Promise<vscode.TextEditor> {
  const document = await vscode.workspace.openTextDocument(at(path));
  return vscode.window.showTextDocument(document, { preview: false });
}

function insert(editor: vscode.TextEditor, text: string): Thenable<boolean> {
  return editor.edit((edit) => edit.insert(new vscode.Position(0, 0), text));
}

function isReadonly(path: string): Promise<boolean> {
  return Promise.resolve(vscode.workspace.fs.stat(at(path))).then(
    ({ permissions }) => permissions === vscode.FilePermission.Readonly,
  );
}

/** What a person sees and keeps while an agent works on the same files. */
export function defineDocuments(): void {
  describe('documents of a session', () => {
    before(async () => {
      await extension().activate();
      await inSandbox('mkdir -p /workspace/docs');
    });
    afterEach(async () => {
      await vscode.commands.executeCommand('notifications.clearAll');
      await vscode.commands.executeCommand('workbench.action.revertAndCloseActiveEditor');
      await vscode.commands.executeCommand('workbench.action.closeAllEditors');
    });
    after(() => inSandbox('rm -rf /workspace/docs'));

    it('are saved into the workspace, again and again', async () => {
      await write('/workspace/docs/saved', 'first\n');
      const editor = await open('/workspace/docs/saved');
      for (const line of ['one', 'two', 'three']) {
        await insert(editor, `${line}\n`);
        assert.equal(await editor.document.save(), true);
      }
      assert.equal(editor.document.isDirty, false);
      assert.equal(await inSandbox('cat /workspace/docs/saved'), 'three\ntwo\none\nfirst\n');
    });

    it('show what the agent writes without anybody asking', async () => {
      await write('/workspace/docs/live', 'before\n');
      const { document } = await open('/workspace/docs/live');
      await inSandbox('echo after > /workspace/docs/live');
      await until('the new text', () => document.getText() === 'after\n');
      assert.equal(document.isDirty, false);
      // An edit of what is shown now is no conflict.
      await insert(await vscode.window.showTextDocument(document), 'mine and ');
      assert.equal(await document.save(), true);
      assert.equal(await inSandbox('cat /workspace/docs/live'), 'mine and after\n');
    });

    it('show what the agent wrote after they were read and before their watch was open', async () => {
      // Of a session that is no folder of this window: VS Code watches its documents when it shows them.
      const { session: here } = (await holdfast(['session', 'show', SESSION])) as Shown;
      const { session: other } = (await holdfast(['session', 'create', here.profile])) as Shown;
      const does = (script: string) => commandLine(['exec', other.id, '--', 'sh', '-c', script]);
      await does('echo early > /workspace/late');
      const { document } = await holdingBack('files/watch', async (held) => {
        const uri = at('/workspace/late').with({ authority: other.id });
        const editor = await vscode.window.showTextDocument(uri, { preview: false });
        await until('the request for a watch', held);
        await does('echo late > /workspace/late');
        assert.equal(editor.document.getText(), 'early\n');
        return editor;
      });
      await until('the new text', () => document.getText() === 'late\n');
    });

    it('are not saved over what the agent wrote meanwhile, though it has the same size', async () => {
      await write('/workspace/docs/both', 'aaaa\n');
      const editor = await open('/workspace/docs/both');
      await insert(editor, 'mine ');
      await inSandbox('echo bbbb > /workspace/docs/both');
      // Others read too: that is no look of the person's.
      await vscode.workspace.fs.readFile(at('/workspace/docs/both'));
      assert.equal(await editor.document.save(), false);
      await vscode.commands.executeCommand('holdfast.compareConflict', editor.document.uri);
      assert.equal(await inSandbox('cat /workspace/docs/both'), 'bbbb\n');
      assert.equal(editor.document.getText(), 'mine aaaa\n');
      assert.equal(editor.document.isDirty, true);
      // Merging is editing the right side: what is saved from the comparison takes the place of what was shown in it.
      assert.equal(await editor.document.save(), true);
      assert.equal(await inSandbox('cat /workspace/docs/both'), 'mine aaaa\n');
    });

    it('show the end of a file that is too large to be opened, read-only, and go on with it', async () => {
      const path = '/workspace/docs/large.log';
      await inSandbox(`(head -c 60000000 /dev/zero | tr '\\0' x | fold -w 99; echo; echo the end) > ${path}`);
      await vscode.commands.executeCommand('vscode.open', at(path), { preview: false });
      const document = await until('the end', () =>
        vscode.window.visibleTextEditors
          .map(({ document }) => document)
          .find(({ uri }) => uri.scheme === 'holdfast-tail'),
      );
      assert.match(
        document.lineAt(0).text,
        /the last 4\.0 MB of \/workspace\/docs\/large\.log, which has 57\.\d MB/,
      );
      assert.match(document.getText(), /x\nthe end\n$/);
      await inSandbox(`echo and more >> ${path}`);
      await until('what was added', () => document.getText().endsWith('the end\nand more\n'));
      const tabs = vscode.window.tabGroups.all.flatMap(({ tabs }) => tabs);
      assert.deepEqual(
        tabs.map(({ label }) => label),
        ['large.log'],
      );
      // Nobody takes a part of a file for the file.
      await assert.rejects(Promise.resolve(vscode.workspace.fs.readFile(at(path))));
      await assert.rejects(Promise.resolve(vscode.workspace.fs.writeFile(document.uri, Buffer.from('x'))));
      await inSandbox(`rm ${path}`);
    });

    it('are read-only while nobody answers; what is being typed goes on and is saved afterwards', async () => {
      await write('/workspace/docs/lost', 'kept\n');
      await write('/workspace/docs/clean', 'clean\n');
      await open('/workspace/docs/clean');
      const editor = await open('/workspace/docs/lost');
      await insert(editor, 'typed ');
      await commandLine(['supervisor', 'stop']);
      await until('read-only', () => isReadonly('/workspace/docs/lost'));
      assert.equal(await insert(editor, 'and '), true);
      assert.equal(await Promise.resolve(editor.document.save()).catch(() => false), false);
      assert.equal(editor.document.isDirty, true);
      await vscode.commands.executeCommand('holdfast.connect');
      await until('writable', async () => !(await isReadonly('/workspace/docs/lost')));
      assert.equal(await editor.document.save(), true);
      assert.equal(await inSandbox('cat /workspace/docs/lost'), 'and typed kept\n');
    });
  });
}
