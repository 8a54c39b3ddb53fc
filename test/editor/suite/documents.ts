import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { commandLine, runHoldfast } from './command-line.ts';
import { extension, waitUntil } from './extension.ts';
import { SESSION, homeId, sessionUri, runInSandbox, writeText } from './session.ts';
import { withRequestsDelayed } from './request-tap.ts';

interface Shown {
  readonly session: { readonly id: string; readonly profile: string };
}

async function open(path: string): Promise<vscode.TextEditor> {
  const document = await vscode.workspace.openTextDocument(sessionUri(path));
  return vscode.window.showTextDocument(document, { preview: false });
}

function insert(editor: vscode.TextEditor, text: string): Thenable<boolean> {
  return editor.edit((edit) => edit.insert(new vscode.Position(0, 0), text));
}

function isReadonly(path: string): Promise<boolean> {
  return Promise.resolve(vscode.workspace.fs.stat(sessionUri(path))).then(
    ({ permissions }) => permissions === vscode.FilePermission.Readonly,
  );
}

/** What a person sees and keeps while an agent works on the same files. */
export function defineDocuments(): void {
  describe('documents of a session', () => {
    before(async () => {
      await extension().activate();
      await runInSandbox('mkdir -p /workspace/docs');
    });
    afterEach(async () => {
      await vscode.commands.executeCommand('notifications.clearAll');
      await vscode.commands.executeCommand('workbench.action.revertAndCloseActiveEditor');
      await vscode.commands.executeCommand('workbench.action.closeAllEditors');
    });
    after(() => runInSandbox('rm -rf /workspace/docs'));

    it('are saved into the workspace, again and again', async () => {
      await writeText('/workspace/docs/saved', 'first\n');
      const editor = await open('/workspace/docs/saved');
      for (const line of ['one', 'two', 'three']) {
        await insert(editor, `${line}\n`);
        assert.equal(await editor.document.save(), true);
      }
      assert.equal(editor.document.isDirty, false);
      assert.equal(await runInSandbox('cat /workspace/docs/saved'), 'three\ntwo\none\nfirst\n');
    });

    it('show the agent’s writes without a refresh', async () => {
      await writeText('/workspace/docs/live', 'before\n');
      const { document } = await open('/workspace/docs/live');
      await runInSandbox('echo after > /workspace/docs/live');
      await waitUntil('the new text', () => document.getText() === 'after\n');
      assert.equal(document.isDirty, false);
      // An edit of what is shown now is no conflict.
      await insert(await vscode.window.showTextDocument(document), 'mine and ');
      assert.equal(await document.save(), true);
      assert.equal(await runInSandbox('cat /workspace/docs/live'), 'mine and after\n');
    });

    it('show writes of the agent between the first read and the opening of the watch', async () => {
      // Of a session that is no folder of this window: VS Code watches its documents when it shows them.
      const { session: here } = (await runHoldfast(['session', 'show', SESSION])) as Shown;
      const { session: other } = (await runHoldfast(['session', 'create', here.profile])) as Shown;
      const does = (script: string) => commandLine(['exec', other.id, '--', 'sh', '-c', script]);
      await does('echo early > /workspace/late');
      const { document } = await withRequestsDelayed('files/watch', async (held) => {
        const uri = sessionUri('/workspace/late').with({ authority: `${other.id}.${homeId()}` });
        const editor = await vscode.window.showTextDocument(uri, { preview: false });
        await waitUntil('the request for a watch', held);
        await does('echo late > /workspace/late');
        assert.equal(editor.document.getText(), 'early\n');
        return editor;
      });
      await waitUntil('the new text', () => document.getText() === 'late\n');
    });

    it('are not saved over a write of the agent, even if it has the same size', async () => {
      await writeText('/workspace/docs/both', 'aaaa\n');
      const editor = await open('/workspace/docs/both');
      await insert(editor, 'mine ');
      await runInSandbox('echo bbbb > /workspace/docs/both');
      // Others read too: that is no look of the person's.
      await vscode.workspace.fs.readFile(sessionUri('/workspace/docs/both'));
      assert.equal(await editor.document.save(), false);
      await vscode.commands.executeCommand('holdfast.compareConflict', editor.document.uri);
      assert.equal(await runInSandbox('cat /workspace/docs/both'), 'bbbb\n');
      assert.equal(editor.document.getText(), 'mine aaaa\n');
      assert.equal(editor.document.isDirty, true);
      // Merging is editing the right side: what is saved from the comparison takes the place of what was shown in it.
      assert.equal(await editor.document.save(), true);
      assert.equal(await runInSandbox('cat /workspace/docs/both'), 'mine aaaa\n');
    });

    it('show the end of a file that is too large to open, read-only, and follow it', async () => {
      const path = '/workspace/docs/large.log';
      await runInSandbox(
        `(head -c 60000000 /dev/zero | tr '\\0' x | fold -w 99; echo; echo the end) > ${path}`,
      );
      await vscode.commands.executeCommand('vscode.open', sessionUri(path), { preview: false });
      const document = await waitUntil('the end', () =>
        vscode.window.visibleTextEditors
          .map(({ document }) => document)
          .find(({ uri }) => uri.scheme === 'holdfast-tail'),
      );
      assert.match(
        document.lineAt(0).text,
        /the last 4\.0 MB of \/workspace\/docs\/large\.log, which has 57\.\d MB/,
      );
      assert.match(document.getText(), /x\nthe end\n$/);
      await runInSandbox(`echo and more >> ${path}`);
      await waitUntil('what was added', () => document.getText().endsWith('the end\nand more\n'));
      const tabs = vscode.window.tabGroups.all.flatMap(({ tabs }) => tabs);
      assert.deepEqual(
        tabs.map(({ label }) => label),
        ['large.log'],
      );
      // Nobody takes a part of a file for the file.
      await assert.rejects(Promise.resolve(vscode.workspace.fs.readFile(sessionUri(path))));
      await assert.rejects(Promise.resolve(vscode.workspace.fs.writeFile(document.uri, Buffer.from('x'))));
      await runInSandbox(`rm ${path}`);
    });

    it('are read-only while the supervisor does not answer; unsaved text is saved afterwards', async () => {
      await writeText('/workspace/docs/lost', 'kept\n');
      await writeText('/workspace/docs/clean', 'clean\n');
      await open('/workspace/docs/clean');
      const editor = await open('/workspace/docs/lost');
      await insert(editor, 'typed ');
      await commandLine(['supervisor', 'stop']);
      await waitUntil('read-only', () => isReadonly('/workspace/docs/lost'));
      assert.equal(await insert(editor, 'and '), true);
      assert.equal(await Promise.resolve(editor.document.save()).catch(() => false), false);
      assert.equal(editor.document.isDirty, true);
      await vscode.commands.executeCommand('holdfast.connect');
      await waitUntil('writable', async () => !(await isReadonly('/workspace/docs/lost')));
      assert.equal(await editor.document.save(), true);
      assert.equal(await runInSandbox('cat /workspace/docs/lost'), 'and typed kept\n');
    });
  });
}
