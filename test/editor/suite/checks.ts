import assert from 'node:assert/strict';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension } from './extension.ts';
import { SESSION, sessionUri, runInSandbox } from './session.ts';

interface Result {
  name: string;
  exitCode: number;
  problems: number;
}

function run(name?: string): Thenable<Result[]> {
  return vscode.commands.executeCommand<Result[]>('holdfast.runChecks', SESSION, name);
}

function found(path: string): string[] {
  return vscode.languages
    .getDiagnostics(sessionUri(path))
    .map(
      ({ range, severity, message, source }) =>
        `${range.start.line}:${range.start.character} ${severity} ${source ?? ''} ${message}`,
    );
}

/** Needs a session whose profile has the checks `compile` (prints what is in /workspace/findings and fails where there is something) and `test` (passes, and takes long where there is /workspace/wait). */
export function defineChecks(): void {
  describe('checks', () => {
    before(async () => {
      await extension().activate();
      await runInSandbox('mkdir -p /workspace/src && printf "1\\n2\\n3\\n" > /workspace/src/a.ts');
    });

    it('show problems beside the lines of the session’s files, and only there', async () => {
      await runInSandbox(
        String.raw`printf 'src/a.ts(2,1): error TS1: [no](command:x)\n/etc/passwd:1:1: error: not here\n../../etc/passwd:1:1: error: nor here\nnone.ts:1:1: error: nor here\n' > /workspace/findings`,
      );
      assert.deepEqual(await run(), [
        { name: 'compile', exitCode: 1, problems: 1 },
        { name: 'test', exitCode: 0, problems: 0 },
      ]);
      assert.deepEqual(found('/workspace/src/a.ts'), ['1:0 0 compile error TS1: [no] (command:x)']);
      assert.deepEqual(
        vscode.languages.getDiagnostics().filter(([uri, all]) => uri.scheme === 'file' && all.length > 0),
        [],
      );
    });

    it('remove problems that are fixed', async () => {
      await runInSandbox(': > /workspace/findings');
      assert.deepEqual(await run('compile'), [{ name: 'compile', exitCode: 0, problems: 0 }]);
      assert.deepEqual(found('/workspace/src/a.ts'), []);
    });
  });
}
