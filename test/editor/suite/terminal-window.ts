import assert from 'node:assert/strict';
import * as vscode from 'vscode';
import { SESSION } from './session.ts';

/** A new terminal of the session, as VS Code shows it. */
export async function openTerminal(): Promise<{ id: string; shown: vscode.Terminal }> {
  const id = await vscode.commands.executeCommand<string | undefined>('holdfast.openTerminal', SESSION);
  assert.match(id ?? 'no terminal was opened', /^term-/);
  const shown = vscode.window.terminals.find(({ creationOptions }) =>
    JSON.stringify(creationOptions).includes(id ?? ''),
  );
  assert.ok(shown);
  return { id: id ?? '', shown };
}

/** What a terminal shows, all of it; it comes to the front for that. */
export async function readScreen(terminal: vscode.Terminal): Promise<string> {
  terminal.show();
  await vscode.env.clipboard.writeText('');
  await vscode.commands.executeCommand('workbench.action.terminal.selectAll');
  await vscode.commands.executeCommand('workbench.action.terminal.copySelection');
  return vscode.env.clipboard.readText();
}
