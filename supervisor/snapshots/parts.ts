import type { Log } from '../daemon/logs.ts';
import type { Artifacts } from '../history/artifacts.ts';
import type { Engine } from '../engine/port.ts';
import type { EventLog } from '../history/events.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import type { BackgroundWork } from '../sessions/background-work.ts';
import type { Changes } from '../sessions/changes.ts';
import type { SessionCreation } from '../sessions/creation.ts';
import type { Ids } from '../sessions/ids.ts';
import type { Lanes } from '../sessions/lanes.ts';
import type { Lifecycle } from '../sessions/lifecycle.ts';
import type { SessionRecords } from '../sessions/records.ts';
import type { Database } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import type { Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { Reserve } from '../store/reserve.ts';
import type { Sessions } from '../store/sessions.ts';
import type { Snapshots } from '../store/snapshots.ts';
import type { Turns } from '../store/turns.ts';
import type { SidecarAccess } from '../workspace/sidecar-access.ts';
import type { Seeding } from '../workspace/seed.ts';
import type { WriteGate } from '../workspace/write-gate.ts';
import { Comparisons } from './comparisons.ts';
import { Fills } from './fills.ts';
import { Forks } from './forks.ts';
import type { Freezing } from './freezing.ts';
import { HeldRoots } from './held-roots.ts';
import { KeptScans } from './kept-scans.ts';
import { Restores, type RestoresOptions } from './restores.ts';
import { SnapshotService } from './service.ts';
import type { LineageStores } from './store/stores.ts';
import { Takes, type TakesOptions } from './takes.ts';
import { TurnSnapshots } from './turn-snapshots.ts';
import { SnapshotUpkeep } from './upkeep.ts';

export interface SnapshotPartsOptions {
  readonly home: Pick<Home, 'store'>;
  readonly database: Database;
  readonly engine: Pick<Engine, 'observeSession'>;
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly changes: Changes;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly snapshots: Snapshots;
  readonly stores: LineageStores;
  readonly reserve: Reserve;
  readonly events: EventLog;
  readonly output: TurnOutput;
  readonly artifacts: Artifacts;
  /** The file of the thread that compares lines. */
  readonly lineWorker: string;
  readonly records: SessionRecords;
  readonly lifecycle: Lifecycle;
  readonly lanes: Lanes;
  readonly freezing: Freezing;
  readonly seeding: Seeding;
  readonly creation: SessionCreation;
  readonly access: SidecarAccess;
  readonly writes: WriteGate;
  readonly limitOf: TakesOptions['limitOf'];
  readonly workspace: Pick<RestoresOptions, 'refuseLive' | 'quiet' | 'finishCleans' | 'resized'>;
  readonly background: BackgroundWork;
  readonly ids: Ids;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

export interface SnapshotParts {
  readonly keptScans: KeptScans;
  readonly takes: Takes;
  readonly service: SnapshotService;
  readonly beforeTurns: TurnSnapshots;
  readonly comparisons: Comparisons;
  readonly upkeep: SnapshotUpkeep;
  readonly restores: Restores;
  readonly fills: Fills;
  readonly forks: Forks;
}

/** Everything that works on snapshots, put together. */
export function snapshotParts(options: SnapshotPartsOptions): SnapshotParts {
  const { access, stores, now, log } = options;
  const keptScans = new KeptScans(options);
  const takes = new Takes({ ...options, scanned: (row, scan) => keptScans.noticed(row, scan) });
  const service = new SnapshotService({ ...options, takes });
  const beforeTurns = new TurnSnapshots({
    ...options,
    takes,
    isRequired: ({ profile }) => options.profiles.get(profile)?.config.snapshots === 'required',
  });
  const held = new HeldRoots(now);
  const comparisons = new Comparisons({
    stores,
    takes,
    held,
    findSnapshot: (id, session) => service.find(id, session),
    findSession: (reference) => service.session(reference),
    seedOf: (session) => options.seeding.itemsOf(session),
    lineWorker: options.lineWorker,
  });
  const upkeep = new SnapshotUpkeep({
    ...options,
    held,
    remove: (row, why) => service.remove(row, why),
    log,
  });
  const fills = new Fills({
    ...options,
    snapshotFor: (sessionId) => restores.fills(sessionId),
    use: (sessionId) => access.ensure(sessionId),
  });
  const restores: Restores = new Restores({ ...options, ...options.workspace, takes, service, fills });
  const forks = new Forks({ ...options, restores, fills });
  return { keptScans, takes, service, beforeTurns, comparisons, upkeep, restores, fills, forks };
}
