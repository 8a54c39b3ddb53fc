import assert from 'node:assert/strict';
import { afterEach, before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { commandLine, runHoldfast } from './command-line.ts';
import { extension, waitUntil } from './extension.ts';
import { SESSION, runInSandbox } from './session.ts';
import { openTerminal, readScreen } from './terminal-window.ts';

interface Listed {
  terminalId: string;
  status: string;
  exitCode: number | null;
}

async function listed(id: string): Promise<Listed | undefined> {
  const { terminals } = (await runHoldfast(['terminal', 'list', SESSION])) as { terminals: Listed[] };
  return terminals.find(({ terminalId }) => terminalId === id);
}

export function defineTerminals(): void {
  describe('terminals of a session', function () {
    // The first one brings the sandbox up.
    this.timeout(90_000);
    before(() => extension().activate());
    afterEach(() => {
      for (const terminal of vscode.window.terminals) terminal.dispose();
    });

    it('run in the sandbox, in /workspace', async () => {
      const { shown } = await openTerminal();
      shown.sendText('pwd > seen; echo $HOLDFAST_SESSION >> seen');
      await waitUntil(
        'the file',
        async () => (await runInSandbox('cat /workspace/seen || true')) === `/workspace\n${SESSION}\n`,
        30_000,
      );
    });

    it('show output without escape sequences that reach beyond the terminal', async () => {
      const { shown } = await openTerminal();
      shown.sendText(
        String.raw`printf 'žluť \033]8;;command:workbench.action.files.newUntitledFile\007here\033]8;;\007 \033]52;c;ZXZpbA==\007\033]633;P;Cwd=/etc\007\033]633;A\007\033]633;B\007\033]633;E;rm -rf ~\007\033]633;C\007\033]633;D;0\007shown\n'; touch done-printing`,
      );
      await waitUntil(
        'the end',
        async () => (await runInSandbox('ls /workspace')).includes('done-printing'),
        30_000,
      );
      await new Promise((resolve) => setTimeout(resolve, 1000));
      const text = await waitUntil('its text', async () => {
        const now = await readScreen(shown);
        return now.includes('žluť here shown') ? now : '';
      });
      assert.ok(!text.includes('\u001b'));
      assert.equal(shown.shellIntegration, undefined);
    });

    it('end when they are closed by hand, and keep running when their window closes', async () => {
      const { id, shown } = await openTerminal();
      shown.dispose();
      await new Promise((resolve) => setTimeout(resolve, 1000));
      assert.equal((await listed(id))?.status, 'running');
      const second = await openTerminal();
      second.shown.show();
      await waitUntil('it is active', () => vscode.window.activeTerminal === second.shown);
      await vscode.commands.executeCommand('workbench.action.terminal.kill');
      await waitUntil('the end', async () => (await listed(second.id))?.status === 'ended', 30_000);
      await runHoldfast(['terminal', 'close', id]);
    });

    it('show the reason when their session is stopped, and stay open', async () => {
      const { shown } = await openTerminal();
      shown.sendText('echo beg""un');
      await waitUntil('its shell', async () => (await readScreen(shown)).includes('begun'), 30_000);
      await commandLine(['session', 'stop', SESSION, '--force']);
      const reason = /The terminal was ended: its session was stopped|error (sandbox_lost|not_found): /;
      await waitUntil('the reason', async () => reason.test(await readScreen(shown)), 30_000);
      assert.equal(shown.exitStatus, undefined);
      shown.sendText('');
      await waitUntil('its end', () => shown.exitStatus !== undefined);
    });

    it('show how the shell ended', async () => {
      const { id, shown } = await openTerminal();
      const ended = new Promise<number | undefined>((resolve) => {
        const listener = vscode.window.onDidCloseTerminal((terminal) => {
          if (terminal !== shown) return;
          listener.dispose();
          resolve(terminal.exitStatus?.code);
        });
      });
      shown.sendText('exit 3');
      assert.equal(await ended, 3);
      assert.equal((await listed(id))?.exitCode, 3);
    });
  });
}
