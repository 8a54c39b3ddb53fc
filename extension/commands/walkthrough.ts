import { commands } from 'vscode';
import type { CommandId } from './table.ts';

/** Steps of the walkthrough by the commands that get them done. A command that was cancelled, or found nothing to do, gives nothing. */
const MILESTONES: Partial<Readonly<Record<CommandId, string>>> = {
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

/** Ticks a step of the walkthrough, once what it is about has happened. `outcome`: what the command's work gave. */
export function completeWalkthroughStep(command: CommandId, outcome: unknown): void {
  const milestone = MILESTONES[command];
  if (milestone === undefined || outcome === undefined) return;
  void commands.executeCommand('setContext', `holdfast.done.${milestone}`, true);
}
