import type { ExtensionContext } from 'vscode';
import { window } from 'vscode';
import { Holdfast } from './holdfast.ts';

/**
 * VS Code calls this at the first use of a command, a view or a `holdfast:` file. It must return fast: nothing connects
 * yet.
 */
export function activate(context: ExtensionContext): void {
  try {
    context.subscriptions.push(new Holdfast(context));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    void window.showErrorMessage(`Holdfast could not start: ${why}`);
    throw error;
  }
}
