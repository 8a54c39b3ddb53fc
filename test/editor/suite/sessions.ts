import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { commandLine, runHoldfast } from './command-line.ts';
import { extension, waitUntil } from './extension.ts';
import { AUTHORITY, SESSION, fileSystemErrorCode, runInSandbox } from './session.ts';

interface Shown {
  name: string;
  profile: string;
  status: string;
  pinned: boolean;
  archived: boolean;
  lastSeq: number;
}

async function shown(): Promise<Shown> {
  return ((await runHoldfast(['session', 'show', SESSION])) as { session: Shown }).session;
}

function run(command: string, ...args: readonly unknown[]): Thenable<unknown> {
  return vscode.commands.executeCommand(`holdfast.${command}`, SESSION, ...args);
}

/** Commands as the tree and programs give them: with the session that they are for. */
export function defineSessions(): void {
  describe('the commands of a session', () => {
    before(() => extension().activate());

    it('apply to the session that the window shows and names', async () => {
      const { name, profile } = await shown();
      const title = (): string | undefined =>
        vscode.workspace.getConfiguration('window').inspect<string>('title')?.workspaceValue;
      await waitUntil('its name', () => title()?.includes(name === SESSION ? profile : `${profile}/${name}`));
      await runHoldfast(['session', 'update', SESSION, '--name', 'costs $ {appName}']);
      await vscode.commands.executeCommand('holdfast.refreshSessions');
      await waitUntil('its new name', () => title()?.includes(`${profile}/costs  {appName}`));
      await runHoldfast(['session', 'update', SESSION, '--name', name === SESSION ? 'again' : name]);
      // Nothing else of VS Code's is there, and nothing can be put there.
      const settings = vscode.Uri.from({
        scheme: 'holdfast',
        authority: AUTHORITY,
        path: '/.vscode/settings.json',
      });
      assert.equal(
        await fileSystemErrorCode(vscode.workspace.fs.writeFile(settings, Buffer.from('{}'))),
        'NoPermissions',
      );
      assert.equal(await fileSystemErrorCode(vscode.workspace.fs.delete(settings)), 'NoPermissions');
      const tasks = settings.with({ path: '/.vscode/tasks.json' });
      assert.equal(await fileSystemErrorCode(vscode.workspace.fs.stat(tasks)), 'FileNotFound');
    });

    it('save it in a file, and make another session of the file', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'holdfast-bundle-'));
      const path = join(folder, 'session.tar.zst');
      await runInSandbox('echo exported > /workspace/exported');
      assert.equal(await run('exportSession', path), path);
      const { profile } = await shown();
      const made = await vscode.commands.executeCommand('holdfast.importSession', path, profile, 'imported');
      assert.match(String(made), /^ses-/);
      assert.equal(
        await commandLine(['workspace', 'cat', String(made), '/workspace/exported']),
        'exported\n',
      );
      // No file is overwritten without a question, and none is left half-written.
      await writeFile(join(folder, 'other'), 'not a session');
      assert.equal(
        await vscode.commands.executeCommand('holdfast.importSession', join(folder, 'other'), profile),
        undefined,
      );
      assert.deepEqual((await readdir(folder)).sort(), ['other', 'session.tar.zst']);
      await runHoldfast(['session', 'delete', String(made), '--force']);
      await rm(folder, { recursive: true });
      await runInSandbox('rm /workspace/exported');
    });

    it('run a turn and return how it ended', async () => {
      const turn = (await run('runTurn', 'echo "from a turn" > /workspace/turned; echo said')) as {
        status: string;
      };
      assert.equal(turn.status, 'succeeded');
      assert.equal(await runInSandbox('cat /workspace/turned'), 'from a turn\n');
    });

    it('pause, stop and resume, and report how', async () => {
      await run('pauseSession');
      assert.equal((await shown()).status, 'paused');
      assert.equal(await run('resumeSession', 'files'), 'unpause');
      await run('stopSession');
      assert.equal((await shown()).status, 'resumable');
      assert.equal(await run('resumeSession', 'files'), 'reattach');
      assert.equal(await runInSandbox('cat /workspace/turned'), 'from a turn\n');
    });

    it('empty the workspace for a clean resume', async () => {
      await run('resumeSession', 'clean');
      assert.equal(await runInSandbox('ls -A /workspace'), '');
    });

    it('search its files and allow a host', async () => {
      await runInSandbox('printf "one\\ntwo needle\\n" > /workspace/hay');
      const summary = (await run('searchText', 'needle')) as { matches: number; files: number };
      assert.deepEqual([summary.matches, summary.files], [1, 1]);
      assert.equal(await run('allowHost', 'api.example.com', 'session'), 'api.example.com');
      assert.match(JSON.stringify(await runHoldfast(['policy', 'show', SESSION])), /api\.example\.com/);
    });

    it('create snapshots, show their files, and compare them with the current files', async () => {
      await runInSandbox(
        'mkdir -p /workspace/kept && echo old > /workspace/kept/file && touch /workspace/kept/gone',
      );
      const snapshot = (await run('createSnapshot', 'before')) as string;
      assert.match(snapshot, /^snp-/);
      await runInSandbox('cd /workspace/kept && echo new > file && rm gone && touch made');
      const then = (path: string) =>
        vscode.Uri.from({ scheme: 'holdfast-snapshot', authority: snapshot, path });
      const { fs } = vscode.workspace;
      assert.equal(Buffer.from(await fs.readFile(then('/workspace/kept/file'))).toString(), 'old\n');
      const names = (await fs.readDirectory(then('/workspace/kept'))).map(([name]) => name);
      assert.deepEqual(names, ['file', 'gone']);
      assert.equal(await fileSystemErrorCode(fs.stat(then('/workspace/kept/made'))), 'FileNotFound');
      assert.equal(
        await fileSystemErrorCode(fs.writeFile(then('/workspace/kept/file'), Buffer.from('x'))),
        'NoPermissions',
      );
      assert.equal(await fileSystemErrorCode(fs.stat(then('/.vscode/tasks.json'))), 'FileNotFound');

      const totals = (await run('compareSnapshots', snapshot, 'now')) as Record<string, number>;
      assert.deepEqual([totals['added'], totals['modified'], totals['deleted']], [1, 1, 1]);
      const label = (): string => vscode.window.tabGroups.activeTabGroup.activeTab?.label ?? '';
      await waitUntil('the comparison', () =>
        /before · \d\d:\d\d → now \(1 added, 1 changed, 1 deleted\)/.test(label()),
      );

      const forked = (await run('forkSession', snapshot, 'fork-of-it')) as string;
      const list = await commandLine(['workspace', 'cat', forked, '/workspace/kept/file']);
      assert.equal(list, 'old\n');
    });

    it('cancel the running turn', async () => {
      const ended = run('runTurn', 'sleep 60') as Thenable<{ status: string }>;
      let isOver = false;
      void ended.then(() => (isOver = true));
      await waitUntil('the end of the turn', async () => {
        await run('cancelTurn');
        return isOver;
      });
      assert.equal((await ended).status, 'cancelled');
    });

    it('pin, archive, and undo both', async () => {
      await run('pinSession');
      await run('archiveSession');
      let { pinned, archived } = await shown();
      assert.deepEqual([pinned, archived], [true, true]);
      await run('unpinSession');
      await run('unarchiveSession');
      ({ pinned, archived } = await shown());
      assert.deepEqual([pinned, archived], [false, false]);
    });

    it('show the history, which grows by itself and stays sanitized', async () => {
      await run('showHistory');
      const histories = (): string =>
        vscode.workspace.textDocuments
          .filter(({ uri }) => uri.scheme === 'holdfast-history')
          .map((document) => document.getText())
          .join('');
      await waitUntil('its past', () => /turn\.queued .*command/.test(histories()));
      assert.match(histories(), /session\.created/);
      // What an agent prints stays text: no escape sequence, nothing that reorders.
      await commandLine(['prompt', SESSION, "printf '\\033]8;;command:x\\007evil\\342\\200\\256'"]);
      const printed = '│ \\u{1b}]8;;command:x\\u{7}evil\\u{202e}';
      await waitUntil('what was just printed', () => histories().includes(printed));
      assert.doesNotMatch(histories(), /[^\P{C}\n]/u);
    });
  });
}
