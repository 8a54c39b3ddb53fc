import type { StateKind } from '../connection/state.ts';

/**
 * What a command does in a state of the connection. `run`: runs. `wait`: waits for the supervisor with a progress
 * message, then runs. `start`: starts a supervisor, then runs. `explain`: shows why it cannot run, with a button for
 * the next step.
 */
export type CommandAvailability = 'run' | 'wait' | 'start' | 'explain';

export interface AvailabilityByState {
  readonly connected: 'run';
  readonly connecting: 'run' | 'wait';
  readonly engineDown: 'run' | 'explain';
  readonly noSupervisor: 'run' | 'start' | 'explain';
}

/** For commands that need a sandbox, and so the engine. */
const SANDBOX: AvailabilityByState = {
  connected: 'run',
  connecting: 'wait',
  engineDown: 'explain',
  noSupervisor: 'start',
};
/** For commands that need only the supervisor's records. */
const RECORDS: AvailabilityByState = {
  connected: 'run',
  connecting: 'wait',
  engineDown: 'run',
  noSupervisor: 'start',
};
/** For commands that need no supervisor. */
const ALWAYS: AvailabilityByState = {
  connected: 'run',
  connecting: 'run',
  engineDown: 'run',
  noSupervisor: 'run',
};

export const COMMANDS = {
  'holdfast.openHome': ALWAYS,
  'holdfast.newSession': SANDBOX,
  'holdfast.openSession': RECORDS,
  'holdfast.openSessionPage': RECORDS,
  'holdfast.resumeSession': SANDBOX,
  'holdfast.resetSession': SANDBOX,
  'holdfast.runTurn': SANDBOX,
  'holdfast.cancelTurn': SANDBOX,
  'holdfast.pauseSession': SANDBOX,
  'holdfast.stopSession': SANDBOX,
  'holdfast.deleteSession': SANDBOX,
  'holdfast.moveSession': SANDBOX,
  'holdfast.keepSession': RECORDS,
  'holdfast.exportSession': SANDBOX,
  'holdfast.importSession': RECORDS,
  'holdfast.openTerminal': SANDBOX,
  'holdfast.openHostTerminal': ALWAYS,
  'holdfast.runChecks': SANDBOX,
  'holdfast.runChecksOnAccepted': SANDBOX,
  'holdfast.createSnapshot': SANDBOX,
  'holdfast.restoreSnapshot': SANDBOX,
  'holdfast.forkSession': SANDBOX,
  'holdfast.compareSnapshots': SANDBOX,
  'holdfast.seeChanges': SANDBOX,
  'holdfast.compareWithTurn': SANDBOX,
  'holdfast.openSnapshot': RECORDS,
  'holdfast.openSnapshotFile': RECORDS,
  'holdfast.pinSnapshot': RECORDS,
  'holdfast.deleteSnapshot': RECORDS,
  'holdfast.reviewChanges': SANDBOX,
  'holdfast.reviewChangesSince': SANDBOX,
  'holdfast.closeReview': ALWAYS,
  'holdfast.openChange': RECORDS,
  'holdfast.openAllChanges': RECORDS,
  'holdfast.nextChange': RECORDS,
  'holdfast.previousChange': RECORDS,
  'holdfast.acceptChange': RECORDS,
  'holdfast.rejectChange': SANDBOX,
  'holdfast.withdrawDecision': RECORDS,
  'holdfast.acceptSelection': RECORDS,
  'holdfast.rejectSelection': SANDBOX,
  'holdfast.acceptHunk': RECORDS,
  'holdfast.rejectHunk': SANDBOX,
  'holdfast.acceptAllChanges': RECORDS,
  'holdfast.rejectAllChanges': SANDBOX,
  'holdfast.undoDecision': RECORDS,
  'holdfast.addComment': RECORDS,
  'holdfast.removeComment': RECORDS,
  'holdfast.sendComments': SANDBOX,
  'holdfast.whyThisLine': SANDBOX,
  'holdfast.handOff': SANDBOX,
  'holdfast.undoHandoff': RECORDS,
  'holdfast.keepArtifact': SANDBOX,
  'holdfast.showArtifacts': RECORDS,
  'holdfast.openArtifact': RECORDS,
  'holdfast.exportArtifact': RECORDS,
  'holdfast.verifyArtifact': RECORDS,
  'holdfast.deleteArtifact': RECORDS,
  'holdfast.showCommit': ALWAYS,
  'holdfast.findFile': SANDBOX,
  'holdfast.searchText': SANDBOX,
  'holdfast.openResult': SANDBOX,
  'holdfast.refreshSearch': SANDBOX,
  'holdfast.clearSearch': ALWAYS,
  'holdfast.toggleSearchCase': ALWAYS,
  'holdfast.toggleSearchWord': ALWAYS,
  'holdfast.toggleSearchRegex': ALWAYS,
  'holdfast.replaceText': SANDBOX,
  'holdfast.applyReplace': SANDBOX,
  'holdfast.discardReplace': ALWAYS,
  'holdfast.reviewConflicts': ALWAYS,
  'holdfast.compareConflict': SANDBOX,
  'holdfast.overwriteConflict': SANDBOX,
  'holdfast.useSessionVersion': SANDBOX,
  'holdfast.importFiles': SANDBOX,
  'holdfast.exportFiles': SANDBOX,
  'holdfast.allowHost': RECORDS,
  'holdfast.setSecret': RECORDS,
  'holdfast.showSetupLog': RECORDS,
  'holdfast.runSetup': SANDBOX,
  'holdfast.answerPermission': RECORDS,
  'holdfast.nextWaiting': RECORDS,
  'holdfast.chooseMode': RECORDS,
  'holdfast.chooseModel': RECORDS,
  'holdfast.openWorkspace': RECORDS,
  'holdfast.openWorkspaceInNewWindow': RECORDS,
  'holdfast.addWorkspace': RECORDS,
  'holdfast.showHistory': RECORDS,
  'holdfast.showManifest': RECORDS,
  'holdfast.saveManifest': RECORDS,
  'holdfast.verifyManifest': ALWAYS,
  'holdfast.renameSession': RECORDS,
  'holdfast.pinSession': RECORDS,
  'holdfast.unpinSession': RECORDS,
  'holdfast.archiveSession': RECORDS,
  'holdfast.unarchiveSession': RECORDS,
  'holdfast.refreshSessions': ALWAYS,
  'holdfast.searchSessions': ALWAYS,
  'holdfast.filterSessions': ALWAYS,
  'holdfast.clearFilter': ALWAYS,
  'holdfast.buildImages': ALWAYS,
  'holdfast.connect': ALWAYS,
  'holdfast.connectHost': ALWAYS,
  'holdfast.disconnectHost': ALWAYS,
  'holdfast.updateHost': ALWAYS,
  'holdfast.checkEngine': ALWAYS,
  'holdfast.showLog': ALWAYS,
} as const satisfies Record<string, AvailabilityByState>;

export type CommandId = keyof typeof COMMANDS;

/** An unused connection counts as connecting, because the command is about to use it. */
export function availabilityIn(command: AvailabilityByState, state: StateKind): CommandAvailability {
  return command[state === 'unused' ? 'connecting' : state];
}
