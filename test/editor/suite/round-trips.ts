import assert from 'node:assert/strict';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension, waitUntil } from './extension.ts';
import { sessionUri, runInSandbox } from './session.ts';
import { captureRequests } from './request-tap.ts';
import type { SentRequest } from './request-tap.ts';

const LARGE = '/workspace/large.txt';
const BYTES = 50_000;
/** VS Code looks at a document before and after what it does, and again when it is told of the change. */
const MOST_STATS = 5;

/** How often the supervisor is asked decides how fast the editor is on a machine of any speed; how fast, bench/editor.ts measures. */
export function defineRoundTrips(): void {
  describe('the requests to the supervisor', () => {
    before(async () => {
      await extension().activate();
      await runInSandbox(`head -c ${BYTES} /dev/zero | tr '\\0' x > ${LARGE}`);
      await vscode.commands.executeCommand('revealInExplorer', sessionUri(LARGE));
      await quiet();
    });

    it('are one listing per opened folder of 100,000 files', async () => {
      const sent = await captureRequests(async () => {
        await vscode.commands.executeCommand('revealInExplorer', sessionUri('/workspace/many/150/7.txt'));
        await quiet();
      });
      const files = sent.filter(({ method }) => method.startsWith('files/'));
      assert.deepEqual(
        files.map(({ method, path }) => `${method} ${path}`).filter((one) => one !== 'files/list /workspace'),
        ['files/list /workspace/many', 'files/list /workspace/many/150'],
      );
      // It was open before, and is looked at again when something changes in it.
      assert.ok(files.length <= 4, `${files.length} requests`);
    });

    it('are one read for an opened document, and one more when the agent writes it', async () => {
      const opening = await captureRequests(async () => {
        const document = await vscode.workspace.openTextDocument(sessionUri(LARGE));
        assert.equal(document.getText().length, BYTES);
        await vscode.window.showTextDocument(document);
        await quiet();
      });
      assert.deepEqual(besidesStats(opening), ['files/read']);
      const changing = await captureRequests(async () => {
        await runInSandbox(`echo short > ${LARGE}`);
        await waitUntil('the change', () => vscode.window.activeTextEditor?.document.getText() === 'short\n');
        await quiet();
      });
      assert.deepEqual(besidesStats(changing), ['files/read']);
    });

    it('are one write for a saved document', async () => {
      const editor = await vscode.window.showTextDocument(sessionUri(LARGE));
      await editor.edit((edit) => edit.insert(new vscode.Position(0, 0), 'mine '));
      const saving = await captureRequests(async () => {
        assert.equal(await editor.document.save(), true);
        await quiet();
      });
      assert.deepEqual(besidesStats(saving), ['files/write']);
    });

    it('of a save are one round trip: the write, from which VS Code’s look after it is answered', async () => {
      const editor = await vscode.window.showTextDocument(sessionUri(LARGE));
      // VS Code looks at the document after the change of the last save.
      await quiet();
      await editor.edit((edit) => edit.insert(new vscode.Position(0, 0), 'mine again '));
      const saving = await captureRequests(async () => {
        assert.equal(await editor.document.save(), true);
      });
      const methods = saving.filter(({ path }) => path === LARGE).map(({ method }) => method);
      // What comes after the write is VS Code's answer to the notification of the change.
      assert.equal(methods[0], 'files/write');
      assert.equal(editor.document.isDirty, false);
      await quiet();
      assert.equal(
        (await vscode.workspace.fs.stat(sessionUri(LARGE))).size,
        editor.document.getText().length,
      );
    });
  });
}

/** Whatever VS Code asks for after what was awaited. */
function quiet(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 500));
}

/** What was asked about the document, apart from looks at it, which must be few. */
function besidesStats(sent: readonly SentRequest[]): string[] {
  const methods = sent.filter(({ path }) => path === LARGE).map(({ method }) => method);
  const stats = methods.filter((method) => method === 'files/stat');
  assert.ok(stats.length <= MOST_STATS, `${stats.length} stats`);
  return methods.filter((method) => method !== 'files/stat');
}
