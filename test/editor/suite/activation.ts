import assert from 'node:assert/strict';
import { basename, join } from 'node:path';
import { describe, it } from 'mocha';
import * as vscode from 'vscode';
import { runHoldfast } from './command-line.ts';
import { extension } from './extension.ts';

export function defineActivation(): void {
  describe('the extension', () => {
    it('activates', async () => {
      await extension().activate();
      assert.equal(extension().isActive, true);
    });

    it('has not loaded the second bundle by then', async () => {
      await extension().activate();
      // This window shows no session.
      const ours = Object.keys(require.cache).filter((path) =>
        path.startsWith(join(extension().extensionPath, 'dist/extension')),
      );
      assert.deepEqual(
        ours.map((path) => basename(path)),
        ['extension.cjs'],
      );
    });

    it('registers the commands of its manifest', async () => {
      await extension().activate();
      const all = await vscode.commands.getCommands(true);
      const manifest = extension().packageJSON as { contributes: { commands: { command: string }[] } };
      for (const { command } of manifest.contributes.commands)
        if (command.startsWith('holdfast.')) assert.ok(all.includes(command), command);
    });

    it('starts its supervisor and creates a session that the command line sees', async () => {
      const id = await vscode.commands.executeCommand<string | undefined>('holdfast.newSession', 'counter');
      assert.match(id ?? 'no session was made', /^ses-/);
      const { session } = (await runHoldfast(['session', 'show', id ?? ''])) as {
        session: { profile: string };
      };
      assert.equal(session.profile, 'counter');
    });
  });
}
