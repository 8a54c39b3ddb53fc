import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { z } from 'zod';
import { commandLine, runHoldfast } from './command-line.ts';
import { CONTROLLER, RUN_GROUP, observedTests, outcomes } from './check-tests.ts';
import { extension, waitUntil } from './extension.ts';
import { SESSION, readText, sessionUri, writeText } from './session.ts';

/** In the sandbox of the session, which is on the other machine. */
function farShell(script: string): Promise<string> {
  return commandLine(['exec', SESSION, '--host', 'far', '--', 'sh', '-c', script]);
}

function isReadonly(path: string): Promise<boolean> {
  return Promise.resolve(vscode.workspace.fs.stat(sessionUri(path))).then(
    ({ permissions }) => permissions === vscode.FilePermission.Readonly,
  );
}

/** Kills the ssh of the connection, as a network that is gone ends it. */
function cutConnection(): void {
  const config = process.env['HOLDFAST_TEST_SSH'] ?? '';
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    let command: string;
    try {
      command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
    } catch {
      continue; // it has ended
    }
    if (command.includes(`${config} -T`)) process.kill(Number(pid), 'SIGKILL');
  }
}

/** Of a window whose session is on the host `far`. */
export function defineHosts(): void {
  describe('a session on another machine', () => {
    before(() => extension().activate());
    after(() => vscode.commands.executeCommand('workbench.action.closeAllEditors'));

    it('is shown by an extension that runs in the server of a remote window, as with Remote-SSH', function () {
      // A VS Code for the desktop has no server here.
      if (vscode.env.uiKind !== vscode.UIKind.Web) this.skip();
      assert.equal(extension().extensionKind, vscode.ExtensionKind.Workspace);
      assert.notEqual(vscode.env.remoteName, undefined);
    });

    it('has files that are read and saved there', async () => {
      await writeText('/workspace/notes.md', 'written here\n');
      assert.equal(await farShell('cat /workspace/notes.md'), 'written here\n');
      await farShell('echo written there > /workspace/notes.md');
      assert.equal(await readText('/workspace/notes.md'), 'written there\n');
    });

    it('runs turns there', async () => {
      const turn = await vscode.commands.executeCommand(
        'holdfast.runTurn',
        SESSION,
        'echo from a turn > turn',
      );
      assert.equal((turn as { status: string }).status, 'succeeded');
      assert.equal(await readText('/workspace/turn'), 'from a turn\n');
      assert.deepEqual(((await runHoldfast(['session', 'list'])) as { sessions: unknown[] }).sessions, []);
    });

    it('is searched there', async () => {
      await writeText('/workspace/searched.md', 'one\ntwo needles\n');
      assert.deepEqual(await vscode.commands.executeCommand('holdfast.searchText', SESSION, 'needle'), {
        matches: 1,
        files: 1,
        stopped: null,
        skipped: 0,
      });
    });

    it('is checked there, by the command and in the Testing view', async () => {
      await writeText('/workspace/findings', 'searched.md:2:1: error: too many\n');
      assert.deepEqual(await vscode.commands.executeCommand('holdfast.runChecks', SESSION), [
        { name: 'compile', exitCode: 1, problems: 1 },
      ]);
      const [problem] = vscode.languages.getDiagnostics(sessionUri('/workspace/searched.md'));
      assert.equal(problem?.range.start.line, 1);
      await writeText('/workspace/findings', '');
      void vscode.commands.executeCommand('vscode.runTestsById', RUN_GROUP, `${CONTROLLER}\0${SESSION}`);
      const ended = await waitUntil('the run ends', () => observedTests().testResults[0], 60_000);
      assert.deepEqual(outcomes(ended.results), ['compile: passed']);
    });

    it('has snapshots there', async () => {
      const snapshot = await vscode.commands.executeCommand(
        'holdfast.createSnapshot',
        SESSION,
        'of the test',
      );
      const { snapshots } = (await runHoldfast(['snapshot', 'list', SESSION, '--host', 'far'])) as {
        snapshots: { id: string }[];
      };
      assert.ok(snapshots.some(({ id }) => id === snapshot));
    });

    it('has artifacts there, which are opened, verified and written here', async () => {
      await farShell('echo kept > /workspace/result');
      const made = await vscode.commands.executeCommand('holdfast.keepArtifact', SESSION, {
        paths: ['result'],
      });
      const { id } = z.object({ id: z.string() }).parse(made);
      await vscode.commands.executeCommand('holdfast.openArtifact', id, '/workspace/result');
      const { document } = vscode.window.activeTextEditor ?? {};
      assert.deepEqual([document?.uri.scheme, document?.getText()], ['holdfast-artifact', 'kept\n']);
      assert.equal(await vscode.commands.executeCommand('holdfast.verifyArtifact', id), true);
      const folder = join(await mkdtemp(join(tmpdir(), 'holdfast-far-')), 'new');
      await vscode.commands.executeCommand('holdfast.exportArtifact', id, folder);
      assert.equal(readFileSync(join(folder, 'result'), 'utf8'), 'kept\n');
      await rm(dirname(folder), { recursive: true });
      assert.equal(await vscode.commands.executeCommand('holdfast.deleteArtifact', id, true), true);
    });

    it('keeps unsaved text while the connection is cut, and saves it after reconnecting', async () => {
      await writeText('/workspace/kept', 'kept\n');
      const document = await vscode.workspace.openTextDocument(sessionUri('/workspace/kept'));
      const editor = await vscode.window.showTextDocument(document, { preview: false });
      await editor.edit((edit) => edit.insert(new vscode.Position(0, 0), 'typed '));
      cutConnection();
      await waitUntil('the text is saved', () => Promise.resolve(document.save()).catch(() => false));
      assert.equal(await farShell('cat /workspace/kept'), 'typed kept\n');
    });

    it('is shown as read-only after its host was disconnected, until a person connects again', async () => {
      assert.equal(await vscode.commands.executeCommand('holdfast.disconnectHost', 'far'), 'far');
      await waitUntil('read-only', () => isReadonly('/workspace/kept'));
      assert.equal(await vscode.commands.executeCommand('holdfast.connectHost', 'far'), 'far');
      await waitUntil('writable', async () => !(await isReadonly('/workspace/kept')));
    });

    it('moves here and back, and continues at each place', async () => {
      const made = z
        .object({ session: z.object({ id: z.string() }) })
        .parse(await runHoldfast(['session', 'create', 'shell', '--name', 'moving', '--host', 'far']));
      const there = made.session.id;
      await commandLine(['exec', there, '--host', 'far', '--', 'sh', '-c', 'echo far > from']);
      const moveTo = async (session: string, host: string): Promise<string> => {
        let moved: unknown;
        // The list of sessions learns of it a moment later.
        await waitUntil(`it moves to ${host}`, async () => {
          moved = await vscode.commands.executeCommand('holdfast.moveSession', session, host);
          return typeof moved === 'string';
        });
        return String(moved);
      };
      const here = await moveTo(there, 'local');
      assert.equal(
        await commandLine(['exec', here, '--', 'sh', '-c', 'cat from; echo near >> from']),
        'far\n',
      );
      const list = await runHoldfast(['session', 'list', '--host', 'far']);
      assert.ok(!JSON.stringify(list).includes('"moving"'));
      const back = await moveTo(here, 'far');
      assert.equal(
        await commandLine(['exec', back, '--host', 'far', '--', 'cat', '/workspace/from']),
        'far\nnear\n',
      );
      await runHoldfast(['session', 'delete', back, '--force', '--host', 'far']);
    });

    it('continues while the host is updated', async () => {
      const version = await vscode.commands.executeCommand('holdfast.updateHost', 'far');
      assert.equal(version, (extension().packageJSON as { version: string }).version);
      await writeText('/workspace/updated', 'yes\n');
      assert.equal(await farShell('cat /workspace/updated'), 'yes\n');
    });
  });
}
