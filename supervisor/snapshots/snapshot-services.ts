import type { Log } from '../base/log.ts';
import type { Artifacts } from '../history/artifacts.ts';
import type { Engine } from '../engine/port.ts';
import type { EventLog } from '../history/event-log.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import type { BackgroundWork } from '../base/background-work.ts';
import type { ChangeNotifier } from '../base/change-notifier.ts';
import type { SessionCreation } from '../sessions/session-creation.ts';
import type { Ids } from '../base/ids.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { Database } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import type { Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { Sessions } from '../store/sessions.ts';
import type { Snapshots } from '../store/snapshots.ts';
import type { Turns } from '../store/turns.ts';
import type { SidecarAccess } from '../workspace/sidecar-access.ts';
import type { Seeding } from '../workspace/seeding.ts';
import type { KeyedReadWriteLock } from '../base/keyed-read-write-lock.ts';
import { Comparisons } from './comparisons.ts';
import { Hydration } from './hydration.ts';
import { Forks } from '../sessions/forks.ts';
import type { Freezing } from '../sandboxes/freezing.ts';
import { LeasedRoots } from './leased-roots.ts';
import { ScanCaches } from './scan-caches.ts';
import { Restores, type RestoresOptions } from './restores.ts';
import { SnapshotService } from './snapshot-service.ts';
import type { LineageStores } from './store/lineage-stores.ts';
import { SnapshotCreation, type SnapshotCreationOptions } from './snapshot-creation.ts';
import { TurnSnapshots } from './turn-snapshots.ts';
import { SnapshotMaintenance } from './maintenance.ts';

export interface SnapshotServicesOptions {
  readonly home: Pick<Home, 'store'>;
  readonly database: Database;
  readonly engine: Pick<Engine, 'observeSession'>;
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly changes: ChangeNotifier;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly snapshots: Snapshots;
  readonly stores: LineageStores;
  readonly reserve: DiskReserve;
  readonly events: EventLog;
  readonly output: TurnOutput;
  readonly artifacts: Artifacts;
  /** Path of the worker program that compares lines. */
  readonly lineWorker: string;
  readonly records: SessionRecords;
  readonly lifecycle: Lifecycle;
  readonly lanes: KeyedMutex;
  readonly freezing: Freezing;
  readonly seeding: Seeding;
  readonly creation: SessionCreation;
  readonly access: SidecarAccess;
  readonly writes: KeyedReadWriteLock;
  readonly limitOf: SnapshotCreationOptions['limitOf'];
  readonly workspace: Pick<RestoresOptions, 'requireIdle' | 'drain' | 'finishCleans' | 'onResized'>;
  readonly background: BackgroundWork;
  readonly ids: Ids;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

export interface SnapshotServices {
  readonly scanCaches: ScanCaches;
  readonly snapshotCreation: SnapshotCreation;
  readonly service: SnapshotService;
  readonly turnSnapshots: TurnSnapshots;
  readonly comparisons: Comparisons;
  readonly maintenance: SnapshotMaintenance;
  readonly restores: Restores;
  readonly hydration: Hydration;
  readonly forks: Forks;
}

/** Wires up everything that works on snapshots. */
export function createSnapshotServices(options: SnapshotServicesOptions): SnapshotServices {
  const { access, stores, now, log } = options;
  const scanCaches = new ScanCaches(options);
  const snapshotCreation = new SnapshotCreation({
    ...options,
    onScan: (row, scan) => scanCaches.onScan(row, scan),
  });
  const service = new SnapshotService({ ...options, snapshotCreation });
  const turnSnapshots = new TurnSnapshots({
    ...options,
    snapshotCreation,
    isRequired: ({ profile }) => options.profiles.get(profile)?.config.snapshots === 'required',
  });
  const leasedRoots = new LeasedRoots(now);
  const comparisons = new Comparisons({
    stores,
    snapshotCreation,
    leasedRoots,
    findSnapshot: (id, session) => service.find(id, session),
    findSession: (reference) => service.findSession(reference),
    seedOf: (session) => options.seeding.itemsOf(session),
    lineWorker: options.lineWorker,
  });
  const maintenance = new SnapshotMaintenance({
    ...options,
    leasedRoots,
    remove: (row, why) => service.remove(row, why),
    log,
  });
  const hydration = new Hydration({
    ...options,
    snapshotFor: (sessionId) => restores.pendingHydration(sessionId),
    useWorkspace: (sessionId) => access.ensureRunning(sessionId),
  });
  const restores: Restores = new Restores({
    ...options,
    ...options.workspace,
    snapshotCreation,
    service,
    hydration,
  });
  const forks = new Forks({ ...options, restores, hydration });
  return {
    scanCaches,
    snapshotCreation,
    service,
    turnSnapshots,
    comparisons,
    maintenance,
    restores,
    hydration,
    forks,
  };
}
