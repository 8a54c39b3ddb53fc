import { describe, test } from 'vitest';
import { FAILPOINTS, type FailpointName } from '../../../supervisor/failpoints.ts';
import { deployed, undeployed } from './profiles.ts';
import { handedOver } from './programs.ts';
import { created, deleted, paused, started, stopped } from './sessions.ts';
import { collected, forked, frozen, restored, scanned, snapshotted } from './snapshots.ts';
import type { Scenario } from './stage.ts';
import { terminalEnded, terminalOpened } from './terminals.ts';
import { turned } from './turns.ts';
import { cleaned, seeded } from './workspaces.ts';

/** One for every name: without it this file does not compile. */
const SCENARIOS: Record<FailpointName, Scenario> = {
  'create.after-row': created,
  'create.after-workspace': created,
  'start.after-intent': started,
  'start.after-sidecar': started,
  'start.after-agent': started,
  'start.before-record': started,
  'turn.after-queued': turned,
  'turn.after-snapshot': turned,
  'turn.before-launch': turned,
  'turn.after-launch': turned,
  'turn.during-output': turned,
  'turn.before-end': turned,
  'turn.after-end': turned,
  'turn.before-forget': turned,
  'terminal.after-intent': terminalOpened,
  'terminal.after-launch': terminalOpened,
  'terminal.before-end': terminalEnded,
  'pause.after-intent': paused,
  'pause.after-engine': paused,
  'stop.after-intent': stopped,
  'stop.after-agent': stopped,
  'stop.after-removed': stopped,
  'delete.after-intent': deleted,
  'delete.after-sandbox': deleted,
  'delete.after-snapshot': deleted,
  'delete.after-clear': deleted,
  'delete.after-workspace': deleted,
  'delete.before-row': deleted,
  'deploy.after-intent': deployed,
  'deploy.after-copy': deployed,
  'deploy.after-publish': deployed,
  'deploy.before-row': deployed,
  'undeploy.after-intent': undeployed,
  'undeploy.after-sessions': undeployed,
  'handover.after-ack': handedOver,
  'handover.before-release': handedOver,
  'clean.after-intent': cleaned,
  'clean.after-clear': cleaned,
  'seed.after-part': seeded,
  'seed.before-end': seeded,
  'gc.after-copy': collected,
  'gc.after-publish': collected,
  'gc.after-intent': collected,
  'gc.after-pack': collected,
  'snapshot.after-scan': snapshotted,
  'snapshot.after-publish': snapshotted,
  'snapshot.after-row': snapshotted,
  'scans.before-seal': scanned,
  'freeze.after-intent': frozen,
  'freeze.after-pause': frozen,
  'freeze.before-thaw': frozen,
  'restore.after-intent': restored,
  'restore.after-files': restored,
  'restore.after-end': restored,
  'fork.after-row': forked,
  'fork.before-files': forked,
  'fork.after-files': forked,
};

type OperationOf<Name> = Name extends `${infer Operation}.${string}` ? Operation : never;
type Operation = OperationOf<FailpointName>;
export type Part = 'sessions' | 'turns' | 'workspaces' | 'snapshots';

/** The test file of each operation, `<part>.test.ts`: one file with all would run long after the others have ended. */
const PARTS: Record<Operation, Part> = {
  create: 'sessions',
  start: 'sessions',
  pause: 'sessions',
  stop: 'sessions',
  delete: 'sessions',
  turn: 'turns',
  terminal: 'turns',
  handover: 'turns',
  deploy: 'workspaces',
  undeploy: 'workspaces',
  clean: 'workspaces',
  seed: 'workspaces',
  gc: 'workspaces',
  snapshot: 'snapshots',
  scans: 'snapshots',
  freeze: 'snapshots',
  restore: 'snapshots',
  fork: 'snapshots',
};

/** The tests of a part. */
export function killedIn(part: Part): void {
  const points = FAILPOINTS.filter((point) => PARTS[point.split('.')[0] as Operation] === part);
  describe('a supervisor killed at', () => {
    test.each(points)('%s: all is finished or as if never asked', async (point) => {
      await SCENARIOS[point](point);
    });
  });
}
