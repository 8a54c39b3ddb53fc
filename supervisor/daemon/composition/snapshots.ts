import { ChangeNotifier } from '../../base/change-notifier.ts';
import type { Log } from '../../base/log.ts';
import { BaseTrees } from '../../snapshots/base-trees.ts';
import { Comparisons } from '../../snapshots/comparisons.ts';
import { Hydration } from '../../snapshots/hydration.ts';
import { LeasedRoots } from '../../snapshots/leased-roots.ts';
import { SnapshotMaintenance } from '../../snapshots/maintenance.ts';
import { RestoreIntents } from '../../snapshots/restore-intents.ts';
import { SnapshotCreation } from '../../snapshots/snapshot-creation.ts';
import { SnapshotGraphs } from '../../snapshots/snapshot-graph.ts';
import { SnapshotService } from '../../snapshots/snapshot-service.ts';
import { TextComparison } from '../../snapshots/patch/text-comparison.ts';
import { TurnChangeRecords } from '../../snapshots/turn-changes.ts';
import { TurnSnapshots } from '../../snapshots/turn-snapshots.ts';
import type { Program } from '../program.ts';
import type { StorageLayer } from './storage.ts';
import type { SandboxLayer } from './sandboxes.ts';

/** Snapshots without restores, because a restore ends turns, which are created later. */
export function createSnapshots(below: StorageLayer & SandboxLayer, program: Program, log: Log) {
  const { database, operations, profiles, stores, access, scanCaches, seeding, now } = below;
  const own = { ...below, log: log.child('snapshots'), changes: new ChangeNotifier() };
  const snapshotCreation = new SnapshotCreation({
    ...own,
    onScan: (row, scan) => scanCaches.onScan(row, scan),
  });
  const snapshotService = new SnapshotService({ ...own, snapshotCreation });
  const baseTrees = new BaseTrees({
    ...own,
    snapshotCreation,
    tryCreate: (session, reason, create) => snapshotService.tryCreate(session, reason, create),
  });
  seeding.seeded.add((session) => baseTrees.record(session));
  const texts = new TextComparison(program.lineWorker);
  const turnChanges = new TurnChangeRecords({ ...own, snapshotCreation, texts });
  const turnSnapshots = new TurnSnapshots({
    ...own,
    snapshotCreation,
    turnChanges,
    isRequired: ({ profile }) => profiles.get(profile)?.config.snapshots === 'required',
  });
  const leasedRoots = new LeasedRoots(now);
  const comparisons = new Comparisons({
    stores,
    snapshotCreation,
    leasedRoots,
    findSnapshot: (id, session) => snapshotService.find(id, session),
    findSession: (reference) => snapshotService.findSession(reference),
    seedOf: (session) => seeding.itemsOf(session),
    lineWorker: program.lineWorker,
  });
  const maintenance = new SnapshotMaintenance({
    ...own,
    leasedRoots,
    remove: (row, why) => snapshotService.remove(row, why),
  });
  const restoreIntents = new RestoreIntents(database, operations);
  const hydration = new Hydration({
    ...own,
    snapshotFor: (sessionId) => restoreIntents.pendingHydration(sessionId),
    useWorkspace: (sessionId) => access.ensureRunning(sessionId),
  });
  restoreIntents.ended.on((sessionId) => hydration.clearFailure(sessionId));
  return {
    changes: own.changes,
    snapshotCreation,
    snapshotService,
    snapshotGraphs: new SnapshotGraphs(below),
    turnChanges,
    turnSnapshots,
    texts,
    baseTrees,
    comparisons,
    maintenance,
    restoreIntents,
    hydration,
  };
}

export type SnapshotLayer = ReturnType<typeof createSnapshots>;
