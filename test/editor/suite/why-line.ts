import assert from 'node:assert/strict';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { commandLine } from './command-line.ts';
import { extension } from './extension.ts';
import { runInSandbox, SESSION, sessionUri } from './session.ts';

interface Origin {
  kind: string;
  turns: { prompt: string }[];
}

/** Needs a session whose agent runs prompts in a shell. */
export function defineWhyLine(): void {
  describe('why this line?', () => {
    const prompt = 'printf "one\\ntwo\\n" > told';
    before(async () => {
      await extension().activate();
      await commandLine(['prompt', SESSION, prompt]);
      await commandLine(['snapshot', 'create', SESSION]);
      await runInSandbox('printf "one\\n[mine](command:x)\\n" > told');
      await vscode.window.showTextDocument(sessionUri('/workspace/told'));
    });

    it('names the turn, or the person, in a hover and in a command', async () => {
      const hovers = async (line: number): Promise<string[]> => {
        const found = await vscode.commands.executeCommand<vscode.Hover[]>(
          'vscode.executeHoverProvider',
          sessionUri('/workspace/told'),
          new vscode.Position(line, 0),
        );
        return found
          .flatMap(({ contents }) => contents.map((one) => (one as vscode.MarkdownString).value))
          .map((text) => text.replaceAll('&nbsp;', ' '));
      };
      const [turn] = await hovers(0);
      assert.match(turn ?? '', /^Changed by .*printf/);
      const [person] = await hovers(1);
      assert.match(
        person ?? '',
        /^Changed by you, while no turn ran\.[^]*\(command:holdfast\.whyThisLine\?%5B1%5D\)$/,
      );

      const origin = await vscode.commands.executeCommand<Origin>('holdfast.whyThisLine', 0);
      assert.equal(origin.kind, 'turn');
      assert.equal(origin.turns[0]?.prompt, prompt);
    });
  });
}
