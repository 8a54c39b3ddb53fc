import type { StateKind } from '../connection/state.ts';

/**
 * What a command does in each state of the connection.
 * `run`: its work. `wait`: shows that it waits for the supervisor, then its work. `start`: starts a supervisor, then its work.
 * `explain`: says why it cannot, with the step that would change that.
 */
export type CommandAvailability = 'run' | 'wait' | 'start' | 'explain';

export interface AvailabilityByState {
  readonly connected: 'run';
  readonly connecting: 'run' | 'wait';
  readonly engineDown: 'run' | 'explain';
  readonly noSupervisor: 'run' | 'start' | 'explain';
}

/** Needs a sandbox, so the engine too. */
const SANDBOX: AvailabilityByState = {
  connected: 'run',
  connecting: 'wait',
  engineDown: 'explain',
  noSupervisor: 'start',
};
/** The supervisor's own records are enough. */
const RECORDS: AvailabilityByState = {
  connected: 'run',
  connecting: 'wait',
  engineDown: 'run',
  noSupervisor: 'start',
};
/** Needs nobody. */
const ALWAYS: AvailabilityByState = {
  connected: 'run',
  connecting: 'run',
  engineDown: 'run',
  noSupervisor: 'run',
};

export const COMMANDS = {
  'holdfast.newSession': SANDBOX,
  'holdfast.openSession': RECORDS,
  'holdfast.resumeSession': SANDBOX,
  'holdfast.resetSession': SANDBOX,
  'holdfast.runTurn': SANDBOX,
  'holdfast.cancelTurn': SANDBOX,
  'holdfast.pauseSession': SANDBOX,
  'holdfast.stopSession': SANDBOX,
  'holdfast.deleteSession': SANDBOX,
  'holdfast.openTerminal': SANDBOX,
  'holdfast.openHostTerminal': ALWAYS,
  'holdfast.runChecks': SANDBOX,
  'holdfast.createSnapshot': SANDBOX,
  'holdfast.restoreSnapshot': SANDBOX,
  'holdfast.forkSession': SANDBOX,
  'holdfast.compareSnapshots': SANDBOX,
  'holdfast.openSnapshot': RECORDS,
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
  'holdfast.openWorkspace': RECORDS,
  'holdfast.openWorkspaceInNewWindow': RECORDS,
  'holdfast.addWorkspace': RECORDS,
  'holdfast.showHistory': RECORDS,
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
  'holdfast.checkEngine': ALWAYS,
  'holdfast.showLog': ALWAYS,
} as const satisfies Record<string, AvailabilityByState>;

export type CommandId = keyof typeof COMMANDS;

/** A connection that nobody has used yet is about to be looked for. */
export function availabilityIn(conducts: AvailabilityByState, state: StateKind): CommandAvailability {
  return conducts[state === 'unused' ? 'connecting' : state];
}
