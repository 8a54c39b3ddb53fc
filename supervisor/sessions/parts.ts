import { DEFAULTS } from '../../protocol/profile.ts';
import type { Log } from '../daemon/logs.ts';
import type { Engine } from '../engine/port.ts';
import type { Artifacts } from '../history/artifacts.ts';
import type { EventLog } from '../history/events.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import { Freezing } from '../snapshots/freezing.ts';
import { type SnapshotParts, snapshotParts } from '../snapshots/parts.ts';
import type { LineageStores } from '../snapshots/store/stores.ts';
import type { Database } from '../store/database.ts';
import { Freezes } from '../store/freezes.ts';
import type { Home } from '../store/home.ts';
import type { Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { Reserve } from '../store/reserve.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { Snapshots } from '../store/snapshots.ts';
import { TerminalRows } from '../store/terminals.ts';
import type { Turns } from '../store/turns.ts';
import type { Egress } from '../trust/egress/egress.ts';
import type { Policies } from '../trust/egress/policies.ts';
import type { SidecarAccess } from '../workspace/sidecar-access.ts';
import { WriteGate } from '../workspace/write-gate.ts';
import { Seeding } from '../workspace/seed.ts';
import { StorageLimits } from '../workspace/storage-limits.ts';
import { BackgroundWork } from './background-work.ts';
import { Changes } from './changes.ts';
import { SessionCreation } from './creation.ts';
import { Execs } from './execs.ts';
import { idleTimes } from './idle.ts';
import { IdleClock } from './idle-clock.ts';
import type { Ids } from './ids.ts';
import { Lanes } from './lanes.ts';
import { Lifecycle } from './lifecycle.ts';
import { LiveThings } from './live.ts';
import { Observations } from './observations.ts';
import { Reconciler } from './reconciler.ts';
import { SessionRecords } from './records.ts';
import { Removal } from './removal.ts';
import { Resumes } from './resumes.ts';
import { Sidecars } from './sidecars.ts';
import { SessionViews } from './session-views.ts';
import { Terminals } from './terminals.ts';
import { Throwaways } from './throwaways.ts';
import { TurnQueue } from './turn-queue.ts';
import { TurnRecords } from './turn-records.ts';
import { TurnRequests } from './turn-requests.ts';
import { Unfinished } from './unfinished.ts';

/** How long a forced stop waits for turns to end. */
const QUIET_MS = 30_000;

export interface SessionPartsOptions {
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
  readonly reserve: Reserve;
  readonly snapshots: Snapshots;
  /** The file of the thread that compares lines. */
  readonly lineWorker: string;
  readonly stores: LineageStores;
  readonly artifacts: Artifacts;
  readonly home: Pick<Home, 'deploy' | 'deployedHistory' | 'store'>;
  readonly ids: Ids;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

export interface SessionParts {
  readonly records: SessionRecords;
  readonly views: SessionViews;
  readonly creation: SessionCreation;
  readonly lanes: Lanes;
  readonly live: LiveThings;
  readonly observations: Observations;
  readonly sidecars: Sidecars;
  /** What the rooms that work on files need of a session's sidecar. */
  readonly access: SidecarAccess;
  readonly writes: WriteGate;
  readonly lifecycle: Lifecycle;
  readonly changes: Changes;
  readonly queue: TurnQueue;
  readonly requests: TurnRequests;
  readonly execs: Execs;
  readonly terminals: Terminals;
  /** Ends every turn, exec and terminal of a session. */
  readonly quiet: (sessionId: string, why: string) => Promise<void>;
  readonly removal: Removal;
  readonly limits: StorageLimits;
  readonly snapshots: SnapshotParts;
  readonly resumes: Resumes;
  readonly throwaways: Throwaways;
  readonly unfinished: Unfinished;
  readonly reconciler: Reconciler;
  readonly idle: IdleClock;
  readonly background: BackgroundWork;
}

/** Everything that works on sessions, put together. What a part calls back is made after it: nothing is called before all are there. */
export function sessionParts(options: SessionPartsOptions): SessionParts {
  const { database, sessions, turns, profiles, operations, events, output, engine, egress, ids, log, now } =
    options;
  const background = new BackgroundWork(log);
  const records = new SessionRecords(database, sessions, events, now);
  const lanes = new Lanes();
  const writes = new WriteGate();
  const live = new LiveThings((sessionId) => idle.touch(sessionId));
  const changes = new Changes();
  const limitOf = (sessionId: string): number | null => {
    const row = records.peek(sessionId);
    return row === null ? null : (profiles.get(row.profile)?.config.workspace?.limit ?? null);
  };

  const observations = new Observations(engine);
  const sidecars = new Sidecars(engine, now, (sessionId) => egress.look(sessionId, false));
  const access: SidecarAccess = {
    ensure: (sessionId, doubts) => lifecycle.withSidecar(sessionId, () => Promise.resolve(), doubts),
    hold: (sessionId) => sidecars.hold(sessionId),
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
    log: log.room('freezing'),
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
    restores: { intend: (sessionId, snapshot) => snapshots.restores.intend(sessionId, snapshot) },
    ids,
    now,
    log,
  });
  const beforeSidecarEnds = (row: SessionRow): Promise<void> => snapshots.keptScans.beforeEnd(row);
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
    finishEarlier: async (sessionId) => {
      await freezing.thawLeft(sessionId);
      await removal.finishInLane(sessionId);
      await snapshots.restores.finishInLane(sessionId);
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
    log: log.room('turns'),
    profileOf: (turn) => profiles.existing(records.get(turn.sessionId).profile).config,
    isFrozen: (sessionId) => freezing.isFrozen(sessionId),
    drained: (sessionId) => throwaways.drained(sessionId),
    reserve: options.reserve,
    beforeTurn: (session, turnId, signal) => snapshots.beforeTurns.before(session, turnId, signal),
  });
  const execs = new Execs({ engine, lifecycle, records, events, live, ids, now, log: log.room('execs') });
  const terminals = new Terminals({
    database,
    rows: new TerminalRows(database),
    operations,
    lifecycle,
    records,
    live,
    ids,
    now,
    log: log.room('terminals'),
    patienceOf: (sessionId) => {
      const row = records.peek(sessionId);
      const profile = row === null ? null : profiles.get(row.profile);
      return profile === null ? DEFAULTS.idle.stop : idleTimes(profile.config).stop;
    },
    ended: (sessionId) => throwaways.drained(sessionId),
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
    log: log.room('removal'),
    quiet,
    seedAgain: (sessionId) => {
      const profile = profiles.get(records.get(sessionId).profile);
      if (profile !== null) seeding.intend(sessionId, profile.config);
      snapshots.restores.drop(sessionId);
      limits.forget(sessionId);
    },
    seedNever: (sessionId) => {
      seeding.drop(sessionId);
      snapshots.restores.drop(sessionId);
      const row = records.peek(sessionId);
      if (row !== null) {
        snapshots.service.forgetSession(row);
        background.add(snapshots.keptScans.remove(row));
      }
      options.policies.forgetSession(sessionId);
      limits.forget(sessionId);
    },
    endFill: (sessionId, why) => snapshots.fills.end(sessionId, why),
    endScans: (sessionId, why) => snapshots.takes.interrupt(sessionId, why),
    alone: (sessionId, act) => snapshots.takes.alone(sessionId, act),
    keepLast: async (row) => {
      // Of one that is not filled yet everything is in the snapshot that it begins with.
      if (snapshots.restores.fills(row.id) !== null) await snapshots.restores.quieten(row);
      else if (!row.throwaway) await snapshots.service.beforeDelete(row);
    },
  });
  const limits = new StorageLimits({
    limitOf,
    lastOf: (sessionId) => records.peek(sessionId)?.workspaceBytes ?? null,
    measure: (sessionId) => lifecycle.withSidecar(sessionId, (client) => client.workspaceUsage()),
    biggest: (sessionId, limit) => lifecycle.withSidecar(sessionId, (client) => client.biggestFolders(limit)),
    record: (sessionId, bytes, told) =>
      void records.change(sessionId, { workspaceBytes: bytes }, 'measured', told),
    busy: () => live.sessions(),
    log: log.room('limits'),
  });
  const throwaways = new Throwaways({ sessions, records, live, removal, limits, background });
  const snapshots = snapshotParts({
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
      refuseLive: (row, what) => live.refuse(row, what, '--cancel'),
      quiet,
      finishCleans: (sessionId) => removal.finishInLane(sessionId),
      resized: (sessionId) => {
        limits.forget(sessionId);
        limits.look(sessionId, true);
      },
    },
    background,
    log: log.room('snapshots'),
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
    wake: (sessionId) => background.add(lifecycle.thaw(sessionId)),
  });
  const resumes = new Resumes({
    operations,
    lifecycle,
    removal,
    restores: snapshots.restores,
    snapshots: snapshots.service,
  });
  const unfinished = new Unfinished({ removal, snapshots, access, log });
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
    log: log.room('reconcile'),
    reconnected: () => background.add(unfinished.finish()),
    agentGone: (sessionId, why, limits) => {
      queue.agentGone(sessionId, why, limits);
      execs.agentGone(sessionId);
      terminals.agentGone(sessionId, why);
    },
  });
  const idle = new IdleClock({
    sessions,
    profiles,
    lifecycle,
    records,
    live,
    now,
    log: log.room('idle'),
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
      fillingOf: (sessionId) => snapshots.fills.of(sessionId),
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
