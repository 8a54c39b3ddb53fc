import { PROFILE_DEFAULTS } from '../../protocol/profile.ts';
import type { Log } from '../base/log.ts';
import type { Engine } from '../engine/port.ts';
import type { Artifacts } from '../history/artifacts.ts';
import type { EventLog } from '../history/event-log.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import { Freezing } from '../sandboxes/freezing.ts';
import { type SnapshotServices, createSnapshotServices } from '../snapshots/snapshot-services.ts';
import type { LineageStores } from '../snapshots/store/lineage-stores.ts';
import type { Database } from '../store/database.ts';
import { Freezes } from '../store/freezes.ts';
import type { Home } from '../store/home.ts';
import type { Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { Snapshots } from '../store/snapshots.ts';
import { TerminalRows } from '../store/terminals.ts';
import type { Turns } from '../store/turns.ts';
import type { Egress } from '../egress/egress.ts';
import type { Policies } from '../egress/policies.ts';
import type { SidecarAccess } from '../workspace/sidecar-access.ts';
import { KeyedReadWriteLock } from '../base/keyed-read-write-lock.ts';
import { Seeding } from '../workspace/seeding.ts';
import { StorageLimits } from '../workspace/storage-limits.ts';
import { BackgroundWork } from '../base/background-work.ts';
import { ChangeNotifier } from '../base/change-notifier.ts';
import { SessionCreation } from './session-creation.ts';
import { Execs } from '../terminals/execs.ts';
import { idleTimes } from '../sandboxes/idle-plan.ts';
import { IdleTimer } from '../sandboxes/idle-timer.ts';
import type { Ids } from '../base/ids.ts';
import { KeyedMutex } from '../base/keyed-mutex.ts';
import { Lifecycle } from '../sandboxes/lifecycle.ts';
import { ActiveWork } from '../sandboxes/active-work.ts';
import { ObservationCache } from '../sandboxes/observation-cache.ts';
import { Reconciler } from '../sandboxes/reconciler.ts';
import { SessionRecords } from '../history/session-records.ts';
import { Removal } from './removal.ts';
import { SessionResume } from './session-resume.ts';
import { SidecarConnections } from '../sandboxes/sidecar-connections.ts';
import { SessionViews } from './session-views.ts';
import { Terminals } from '../terminals/terminals.ts';
import { DrainedSessions } from './drained-sessions.ts';
import { TurnQueue } from '../turns/turn-queue.ts';
import { TurnRecords } from '../turns/turn-records.ts';
import { TurnRequests } from './turn-requests.ts';
import { InterruptedWork } from './interrupted-work.ts';

/** How long a forced stop waits for turns to end. */
const QUIET_MS = 30_000;

export interface SessionServicesOptions {
  readonly database: Database;
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly events: EventLog;
  readonly output: TurnOutput;
  readonly engine: Engine;
  readonly egress: Egress;
  readonly policies: Pick<Policies, 'forgetSession'>;
  readonly reserve: DiskReserve;
  readonly snapshots: Snapshots;
  /** The file of the thread that compares lines. */
  readonly lineWorker: string;
  readonly stores: LineageStores;
  readonly artifacts: Artifacts;
  readonly home: Pick<Home, 'deploy' | 'deployedGitHistory' | 'store'>;
  readonly ids: Ids;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

export interface SessionServices {
  readonly records: SessionRecords;
  readonly views: SessionViews;
  readonly creation: SessionCreation;
  readonly lanes: KeyedMutex;
  readonly live: ActiveWork;
  readonly observations: ObservationCache;
  readonly sidecars: SidecarConnections;
  /** What the rooms that work on files need of a session's sidecar. */
  readonly access: SidecarAccess;
  readonly writes: KeyedReadWriteLock;
  readonly lifecycle: Lifecycle;
  readonly changes: ChangeNotifier;
  readonly queue: TurnQueue;
  readonly requests: TurnRequests;
  readonly execs: Execs;
  readonly terminals: Terminals;
  /** Ends every turn, exec and terminal of a session. */
  readonly quiet: (sessionId: string, why: string) => Promise<void>;
  readonly removal: Removal;
  readonly limits: StorageLimits;
  readonly snapshots: SnapshotServices;
  readonly resumes: SessionResume;
  readonly throwaways: DrainedSessions;
  readonly unfinished: InterruptedWork;
  readonly reconciler: Reconciler;
  readonly idle: IdleTimer;
  readonly background: BackgroundWork;
}

/** Everything that works on sessions, put together. What a part calls back is made after it: nothing is called before all are there. */
export function createSessionServices(options: SessionServicesOptions): SessionServices {
  const { database, sessions, turns, profiles, operations, events, output, engine, egress, ids, log, now } =
    options;
  const background = new BackgroundWork(log);
  const records = new SessionRecords(database, sessions, events, now);
  const lanes = new KeyedMutex();
  const writes = new KeyedReadWriteLock();
  const live = new ActiveWork((sessionId) => idle.reschedule(sessionId));
  const changes = new ChangeNotifier();
  const limitOf = (sessionId: string): number | null => {
    const row = records.peek(sessionId);
    return row === null ? null : (profiles.get(row.profile)?.config.workspace?.limit ?? null);
  };

  const observations = new ObservationCache(engine);
  const sidecars = new SidecarConnections(engine, now, (sessionId) => egress.setLive(sessionId, false));
  const access: SidecarAccess = {
    ensureRunning: (sessionId, doubts) => lifecycle.withSidecar(sessionId, () => Promise.resolve(), doubts),
    acquireLease: (sessionId) => sidecars.acquireLease(sessionId),
    dial: (sessionId) => engine.dial(sessionId),
  };
  const seeding = new Seeding({
    home: options.home,
    database,
    operations,
    profiles,
    events,
    dial: (sessionId) => engine.dial(sessionId),
  });
  const freezing = new Freezing({
    engine,
    observations,
    freezes: new Freezes(database),
    log: log.child('freezing'),
  });
  const creation = new SessionCreation({
    database,
    sessions,
    records,
    profiles,
    operations,
    events,
    engine,
    seeding,
    restores: {
      intend: (sessionId, snapshot) => snapshots.restores.recordHydrationIntent(sessionId, snapshot),
    },
    ids,
    now,
    log,
  });
  const beforeSidecarEnds = (row: SessionRow): Promise<void> =>
    snapshots.scanCaches.saveBeforeSidecarEnds(row);
  const lifecycle = new Lifecycle({
    seeding,
    beforeSidecarEnds,
    egress,
    engine,
    records,
    profiles,
    sidecars,
    observations,
    lanes,
    live,
    now,
    finishPendingWork: async (sessionId) => {
      await freezing.thawIfLeftFrozen(sessionId);
      await removal.finishPendingCleanLocked(sessionId);
      await snapshots.restores.finishPendingLocked(sessionId);
    },
  });

  const turnRecords = new TurnRecords({
    database,
    turns,
    events,
    sessions: records,
    output,
    live,
    changes,
    reserve: options.reserve,
    now,
  });
  const queue = new TurnQueue({
    database,
    turns,
    events,
    records: turnRecords,
    sessions: records,
    output,
    lifecycle,
    live,
    changes,
    ids,
    now,
    log: log.child('turns'),
    profileOf: (turn) => profiles.getOrThrow(records.get(turn.sessionId).profile).config,
    isFrozen: (sessionId) => freezing.isFrozen(sessionId),
    onDrained: (sessionId) => throwaways.handleDrained(sessionId),
    reserve: options.reserve,
    beforeTurn: (session, turnId, signal) =>
      snapshots.turnSnapshots.createBeforeTurn(session, turnId, signal),
  });
  const execs = new Execs({ engine, lifecycle, records, events, live, ids, now, log: log.child('execs') });
  const terminals = new Terminals({
    database,
    rows: new TerminalRows(database),
    operations,
    lifecycle,
    records,
    live,
    ids,
    now,
    log: log.child('terminals'),
    idleTimeoutOf: (sessionId) => {
      const row = records.peek(sessionId);
      const profile = row === null ? null : profiles.get(row.profile);
      return profile === null ? PROFILE_DEFAULTS.idle.stop : idleTimes(profile.config).stop;
    },
    onEnded: (sessionId) => throwaways.handleDrained(sessionId),
  });
  const quiet = async (sessionId: string, why: string): Promise<void> => {
    await Promise.all([
      queue.cancelAll(sessionId, QUIET_MS),
      execs.endAll(sessionId),
      terminals.endAll(sessionId, why),
    ]);
  };

  const removal = new Removal({
    engine,
    database,
    operations,
    records,
    events,
    output,
    lifecycle,
    sidecars,
    lanes,
    reserve: options.reserve,
    now,
    log: log.child('removal'),
    quiet,
    onWorkspaceCleared: (sessionId) => {
      const profile = profiles.get(records.get(sessionId).profile);
      if (profile !== null) seeding.recordIntent(sessionId, profile.config);
      snapshots.restores.dropIntent(sessionId);
      limits.forget(sessionId);
    },
    onSessionDeleted: (sessionId) => {
      seeding.dropIntent(sessionId);
      snapshots.restores.dropIntent(sessionId);
      const row = records.peek(sessionId);
      if (row !== null) {
        snapshots.service.pruneDeletedSession(row);
        background.add(snapshots.scanCaches.remove(row));
      }
      options.policies.forgetSession(sessionId);
      limits.forget(sessionId);
    },
    suspendHydration: (sessionId, why) => snapshots.hydration.suspend(sessionId, why),
    cancelScans: (sessionId, why) => snapshots.snapshotCreation.interrupt(sessionId, why),
    withScanLock: (sessionId, act) => snapshots.snapshotCreation.withScanLock(sessionId, act),
    snapshotBeforeDelete: async (row) => {
      // Of one that is not filled yet everything is in the snapshot that it begins with.
      if (snapshots.restores.pendingHydration(row.id) !== null) await snapshots.restores.drain(row);
      else if (!row.throwaway) await snapshots.service.createBeforeDelete(row);
    },
  });
  const limits = new StorageLimits({
    limitOf,
    lastMeasured: (sessionId) => records.peek(sessionId)?.workspaceBytes ?? null,
    measure: (sessionId) => lifecycle.withSidecar(sessionId, (client) => client.workspaceUsage()),
    largestFolders: (sessionId, limit) =>
      lifecycle.withSidecar(sessionId, (client) => client.biggestFolders(limit)),
    record: (sessionId, bytes, told) =>
      void records.change(sessionId, { workspaceBytes: bytes }, 'measured', told),
    activeSessions: () => live.sessionIds(),
    log: log.child('limits'),
  });
  const throwaways = new DrainedSessions({ sessions, records, live, removal, limits, background });
  const snapshots = createSnapshotServices({
    ...options,
    records,
    lifecycle,
    lanes,
    freezing,
    seeding,
    creation,
    access,
    writes,
    changes,
    limitOf,
    workspace: {
      requireIdle: (row, what) => live.requireIdle(row, what, '--cancel'),
      drain: quiet,
      finishCleans: (sessionId) => removal.finishPendingCleanLocked(sessionId),
      onResized: (sessionId) => {
        limits.forget(sessionId);
        limits.measureSoon(sessionId, true);
      },
    },
    background,
    log: log.child('snapshots'),
  });

  const requests = new TurnRequests({
    sessions,
    profiles,
    operations,
    creation,
    queue,
    limits,
    removal,
    // Also where its paused turn must end before the new one can run.
    beginThaw: (sessionId) => background.add(lifecycle.thaw(sessionId)),
  });
  const resumes = new SessionResume({
    operations,
    lifecycle,
    removal,
    restores: snapshots.restores,
    snapshots: snapshots.service,
  });
  const unfinished = new InterruptedWork({ removal, snapshots, access, log });
  const reconciler = new Reconciler({
    engine,
    observations,
    sessions,
    records,
    sidecars,
    lanes,
    live,
    egress,
    freezing,
    beforeSidecarEnds,
    log: log.child('reconcile'),
    onEngineReconnected: () => background.add(unfinished.finish()),
    onAgentGone: (sessionId, why, limits) => {
      queue.onAgentGone(sessionId, why, limits);
      execs.onAgentGone(sessionId);
      terminals.onAgentGone(sessionId, why);
    },
  });
  const idle = new IdleTimer({
    sessions,
    profiles,
    lifecycle,
    records,
    live,
    now,
    log: log.child('idle'),
    canPause: () => engine.capabilities().pause !== 'none',
  });
  return {
    records,
    views: new SessionViews({
      sessions,
      turns,
      profiles,
      events,
      engine,
      hydrationOf: (sessionId) => snapshots.hydration.stateOf(sessionId),
    }),
    creation,
    lanes,
    live,
    observations,
    sidecars,
    access,
    writes,
    lifecycle,
    changes,
    queue,
    requests,
    execs,
    terminals,
    quiet,
    removal,
    limits,
    snapshots,
    resumes,
    throwaways,
    unfinished,
    reconciler,
    idle,
    background,
  };
}
