import { describe, test } from 'vitest';
import { FAILPOINTS, type FailpointName } from '../../../supervisor/base/failpoints.ts';
import { agentTurnScenario } from './agents.ts';
import { artifactRemovalScenario, artifactScenario } from './artifacts.ts';
import { attachmentScenario } from './attachments.ts';
import { importScenario } from './bundles.ts';
import { historyCutScenario } from './history.ts';
import { moveScenario } from './moves.ts';
import {
  buildScenario,
  cloneScenario,
  deployScenario,
  setupEndScenario,
  setupScenario,
  spareScenario,
  templateScenario,
  undeployScenario,
} from './profiles.ts';
import { handoverScenario } from './programs.ts';
import { reviewScenario } from './reviews.ts';
import { createScenario, deleteScenario, pauseScenario, startScenario, stopScenario } from './sessions.ts';
import {
  gcScenario,
  forkScenario,
  freezeScenario,
  restoreScenario,
  scanScenario,
  snapshotScenario,
  turnChangesScenario,
} from './snapshots.ts';
import type { Scenario } from './fixture.ts';
import { terminalEndScenario, terminalOpenScenario } from './terminals.ts';
import { largeOutputScenario, turnScenario } from './turns.ts';
import { cleanScenario, seedScenario } from './workspaces.ts';

/** One for every name: without it this file does not compile. */
const SCENARIOS: Record<FailpointName, Scenario> = {
  'create.after-row': createScenario,
  'create.after-workspace': createScenario,
  'start.after-intent': startScenario,
  'start.after-sidecar': startScenario,
  'start.after-agent': startScenario,
  'start.before-record': startScenario,
  'start.after-home': startScenario,
  'turn.after-queued': turnScenario,
  'turn.after-snapshot': turnScenario,
  'turn.before-launch': turnScenario,
  'turn.after-launch': turnScenario,
  'turn.during-output': turnScenario,
  'content.before-event': largeOutputScenario,
  'cut.before-step': historyCutScenario,
  'cut.during-step': historyCutScenario,
  'cut.after-step': historyCutScenario,
  'turn.before-end': turnScenario,
  'turn.after-end': turnScenario,
  'turn.before-forget': turnScenario,
  'agent.before-start': agentTurnScenario,
  'agent.after-start': agentTurnScenario,
  'agent.before-prompt': agentTurnScenario,
  'agent.after-prompt': agentTurnScenario,
  'agent.after-output': agentTurnScenario,
  'agent.after-store': agentTurnScenario,
  'agent.before-end': agentTurnScenario,
  'terminal.after-intent': terminalOpenScenario,
  'terminal.after-launch': terminalOpenScenario,
  'terminal.before-end': terminalEndScenario,
  'pause.after-intent': pauseScenario,
  'pause.after-engine': pauseScenario,
  'stop.after-intent': stopScenario,
  'stop.after-agent': stopScenario,
  'stop.after-removed': stopScenario,
  'delete.after-intent': deleteScenario,
  'delete.after-sandbox': deleteScenario,
  'delete.after-snapshot': deleteScenario,
  'delete.after-clear': deleteScenario,
  'delete.after-workspace': deleteScenario,
  'delete.before-row': deleteScenario,
  'deploy.after-intent': deployScenario,
  'deploy.after-copy': deployScenario,
  'deploy.after-publish': deployScenario,
  'deploy.before-row': deployScenario,
  'setup.after-intent': setupScenario,
  'setup.after-clone': cloneScenario,
  'setup.after-build': buildScenario,
  'setup.before-image': setupScenario,
  'setup.after-image': setupScenario,
  'setup.after-run': setupScenario,
  'setup.after-template': setupScenario,
  'setup.before-clear': async (point) => {
    await setupScenario(point);
    await buildScenario(point);
  },
  'setup.after-end': setupEndScenario,
  'undeploy.after-intent': undeployScenario,
  'undeploy.after-sessions': undeployScenario,
  'handover.after-ack': handoverScenario,
  'handover.before-release': handoverScenario,
  'clean.after-intent': cleanScenario,
  'clean.after-clear': cleanScenario,
  'spare.after-sidecar': spareScenario,
  'spare.after-files': spareScenario,
  'seed.after-part': seedScenario,
  'seed.after-template': templateScenario,
  'seed.before-end': seedScenario,
  'gc.after-copy': gcScenario,
  'gc.after-publish': gcScenario,
  'gc.after-intent': gcScenario,
  'gc.after-pack': gcScenario,
  'snapshot.after-scan': snapshotScenario,
  'snapshot.after-publish': snapshotScenario,
  'snapshot.after-row': snapshotScenario,
  'changes.after-snapshot': turnChangesScenario,
  'changes.before-store': turnChangesScenario,
  'scans.before-seal': scanScenario,
  'freeze.after-intent': freezeScenario,
  'freeze.after-pause': freezeScenario,
  'freeze.before-thaw': freezeScenario,
  'restore.after-intent': restoreScenario,
  'restore.after-files': restoreScenario,
  'restore.after-end': restoreScenario,
  'fork.after-row': forkScenario,
  'fork.before-files': forkScenario,
  'fork.after-files': forkScenario,
  'import.after-contents': importScenario,
  'import.after-publish': importScenario,
  'import.after-row': importScenario,
  'artifact.after-file': artifactScenario,
  'artifact.after-row': artifactScenario,
  'artifact.after-removal': artifactRemovalScenario,
  'attachment.after-part': attachmentScenario,
  'attachment.before-commit': attachmentScenario,
  'attachment.after-commit': attachmentScenario,
  'attachment.after-place': attachmentScenario,
  'move.after-hold': moveScenario,
  'move.after-release': moveScenario,
  'move.after-activate': moveScenario,
  'move.after-finish': moveScenario,
  'move.after-withdrawal': moveScenario,
  'review.after-intent': reviewScenario,
  'review.after-file': reviewScenario,
};

type OperationOf<Name> = Name extends `${infer Operation}.${string}` ? Operation : never;
type Operation = OperationOf<FailpointName>;
export type ScenarioGroup = 'sessions' | 'turns' | 'workspaces' | 'snapshots';

/** The test file of each operation, `<part>.test.ts`: one file with all would run long after the others have ended. */
const PARTS: Record<Operation, ScenarioGroup> = {
  create: 'sessions',
  start: 'sessions',
  pause: 'sessions',
  stop: 'sessions',
  delete: 'sessions',
  turn: 'turns',
  content: 'turns',
  cut: 'turns',
  agent: 'turns',
  terminal: 'turns',
  attachment: 'turns',
  handover: 'turns',
  deploy: 'workspaces',
  setup: 'workspaces',
  undeploy: 'workspaces',
  clean: 'workspaces',
  seed: 'workspaces',
  spare: 'workspaces',
  gc: 'workspaces',
  snapshot: 'snapshots',
  changes: 'snapshots',
  scans: 'snapshots',
  freeze: 'snapshots',
  restore: 'snapshots',
  fork: 'snapshots',
  import: 'snapshots',
  move: 'sessions',
  review: 'snapshots',
  artifact: 'snapshots',
};

/** The tests of a part. */
export function testScenarios(part: ScenarioGroup): void {
  const points = FAILPOINTS.filter((point) => PARTS[point.split('.')[0] as Operation] === part);
  describe('a supervisor killed at', () => {
    test.each(points)('%s: all is finished or as if never asked', async (point) => {
      await SCENARIOS[point](point);
    });
  });
}
