import { commands } from 'vscode';
import type { CommandId } from './table.ts';

/** The walkthrough step that each command completes. */
const STEPS: Partial<Readonly<Record<CommandId, string>>> = {
  'holdfast.newSession': 'newSession',
  'holdfast.openWorkspace': 'openWorkspace',
  'holdfast.openWorkspaceInNewWindow': 'openWorkspace',
  'holdfast.addWorkspace': 'openWorkspace',
  'holdfast.resumeSession': 'resumeSession',
  'holdfast.compareSnapshots': 'compareSnapshots',
  'holdfast.findFile': 'search',
  'holdfast.searchText': 'search',
  'holdfast.allowHost': 'allowHost',
};

/**
 * Marks the command's step of the walkthrough as done. `outcome`: its result, undefined where it was cancelled or did
 * nothing.
 */
export function completeWalkthroughStep(command: CommandId, outcome: unknown): void {
  const step = STEPS[command];
  if (step === undefined || outcome === undefined) return;
  void commands.executeCommand('setContext', `holdfast.done.${step}`, true);
}
