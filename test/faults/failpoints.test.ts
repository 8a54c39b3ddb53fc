import { describe, test } from 'vitest';
import { FAILPOINTS, type FailpointName } from '../../supervisor/failpoints.ts';
import { seedOfRun } from '../unit/protocol/seeded.ts';
import { deployed, undeployed } from './failpoints/profiles.ts';
import { handedOver } from './failpoints/programs.ts';
import { created, deleted, paused, started, stopped } from './failpoints/sessions.ts';
import { collected, forked, frozen, restored, scanned, snapshotted } from './failpoints/snapshots.ts';
import type { Scenario } from './failpoints/stage.ts';
import { terminalEnded, terminalOpened } from './failpoints/terminals.ts';
import { turned, turnedAgain } from './failpoints/turns.ts';
import { cleaned, seeded } from './failpoints/workspaces.ts';
import { times } from '../setup/run-length.ts';

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

describe('a supervisor killed at', () => {
  test.each(FAILPOINTS)('%s: all is finished or as if never asked', async (point) => {
    await SCENARIOS[point](point);
  });

  test('two places, the second while the next one puts right what the first left', async () => {
    const order: FailpointName[] = [
      'turn.before-launch',
      'turn.after-launch',
      'turn.during-output',
      'turn.before-end',
    ];
    const pairs = order.flatMap((first, at) => order.slice(at).map((second) => [first, second] as const));
    const seed = seedOfRun('places to be killed at');
    const chosen = Array.from(
      { length: times(2, pairs.length) },
      (_, at) => pairs[(seed + at * 3) % pairs.length],
    );
    for (const pair of chosen) if (pair !== undefined) await turnedAgain('shell', ...pair);
  });
});
