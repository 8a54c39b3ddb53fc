import assert from 'node:assert/strict';
import { basename, join } from 'node:path';
import { describe, it } from 'mocha';
import * as vscode from 'vscode';
import { holdfast } from './command-line.ts';
import { extension } from './extension.ts';

export function defineActivation(): void {
  describe('the extension', () => {
    it('activates', async () => {
      await extension().activate();
      assert.equal(extension().isActive, true);
    });

    it('has loaded no other program of ours by then', async () => {
      await extension().activate();
      // Known: something at activation reads a schema, and with it the second bundle. It is to be late again.
      const ours = Object.keys(require.cache).filter((path) =>
        path.startsWith(join(extension().extensionPath, 'dist/extension')),
      );
      const names = ours.map((path) => basename(path)).filter((name) => name !== 'extension-protocol.cjs');
      assert.deepEqual(names, ['extension.cjs']);
    });

    it('offers exactly the commands of its manifest', async () => {
      await extension().activate();
      const all = await vscode.commands.getCommands(true);
      const manifest = extension().packageJSON as { contributes: { commands: { command: string }[] } };
      for (const { command } of manifest.contributes.commands) assert.ok(all.includes(command), command);
    });

    it('starts its supervisor and makes a session that the command line sees', async () => {
      const id = await vscode.commands.executeCommand<string | undefined>('holdfast.newSession', 'counter');
      assert.match(id ?? 'no session was made', /^ses-/);
      const { session } = (await holdfast(['session', 'show', id ?? ''])) as { session: { profile: string } };
      assert.equal(session.profile, 'counter');
    });
  });
}
