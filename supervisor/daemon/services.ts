import { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import { DockerEngine } from '../engine/docker/engine.ts';
import type { Engine } from '../engine/port.ts';
import { Artifacts } from '../history/artifacts.ts';
import { DeletedSessionContents } from '../history/deleted-session-contents.ts';
import { EventLog } from '../history/event-log.ts';
import { TurnOutput } from '../history/turn-output.ts';
import { ProfileService } from '../profiles/service.ts';
import { SessionRuntime } from '../sessions/session-runtime.ts';
import { randomIds } from '../base/ids.ts';
import { type SessionServices, createSessionServices } from '../sessions/session-services.ts';
import { SessionService } from '../sessions/session-service.ts';
import { type Database, openDatabase } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import { EgressRules } from '../store/egress-rules.ts';
import { Operations } from '../store/operations.ts';
import { Profiles } from '../store/profiles.ts';
import { DiskReserve } from '../store/reserve.ts';
import { LineageStores } from '../snapshots/store/lineage-stores.ts';
import { Sessions } from '../store/sessions.ts';
import { Snapshots } from '../store/snapshots.ts';
import { Turns } from '../store/turns.ts';
import { Egress } from '../egress/egress.ts';
import { Policies } from '../egress/policies.ts';
import { nameResolver } from '../egress/resolver.ts';
import { FilesConnections } from '../workspace/files-connections.ts';
import type { Log } from '../base/log.ts';
import type { Program } from './program.ts';

export interface Services {
  readonly home: Home;
  readonly engine: Engine;
  readonly database: Database;
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly snapshots: Snapshots;
  /** What snapshots are made of. */
  readonly stores: LineageStores;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly events: EventLog;
  readonly output: TurnOutput;
  readonly artifacts: Artifacts;
  readonly sessionService: SessionService;
  readonly sessionServices: SessionServices;
  readonly sessionRuntime: SessionRuntime;
  /** Memory of what passes through, between clients and sidecars. */
  readonly payloads: BufferPool;
  /** Connections to sidecars for files. */
  readonly filesConnections: FilesConnections;
  /** The same for watches and searches, which take long. */
  readonly watchConnections: FilesConnections;
  readonly profileService: ProfileService;
  readonly policies: Policies;
  readonly egress: Egress;
  readonly deletedSessions: DeletedSessionContents;
}

/** The engine connects in the background from here on. */
export function openEngine(home: Home, program: Program, log: Log): Engine {
  return new DockerEngine({
    home: home.root,
    homeId: home.id,
    sidecarImage: program.sidecarImage,
    programsDirectory: program.builtPrograms,
    unpauseProgram: program.thawProgram,
    reportBackgroundError: (what, error) => log.warn(what, { error }),
  });
}

/** Everything that works on the database, put together. Errors: those of `openDatabase`. */
export function openServices(home: Home, engine: Engine, program: Program, log: Log): Services {
  const database = openDatabase(home);
  const now = (): number => Date.now();
  const payloads = new BufferPool();
  const sessions = new Sessions(database);
  const turns = new Turns(database);
  const snapshots = new Snapshots(database);
  const stores = new LineageStores(home);
  const profiles = new Profiles(database);
  const operations = new Operations(database);
  const events = new EventLog(database, (error) => log.error('a listener of events failed', { error }));
  const artifacts = new Artifacts(home);
  const output = new TurnOutput(database, events, artifacts);
  const policies = new Policies({
    database,
    rules: new EgressRules(database),
    profiles,
    sessions,
    events,
    now,
  });
  const egress = new Egress({
    policies,
    sessions,
    events,
    dial: (sessionId) => engine.dial(sessionId),
    resolve: nameResolver(process.env),
    log: log.child('egress'),
    now,
  });
  const reserve = new DiskReserve(home);
  const parts = createSessionServices({
    database,
    sessions,
    turns,
    profiles,
    operations,
    events,
    output,
    engine,
    egress,
    policies,
    reserve,
    snapshots,
    lineWorker: program.lineWorker,
    stores,
    artifacts,
    home,
    ids: randomIds,
    log: log.child('sessions'),
    now,
  });
  const sessionService = new SessionService({ sessions, profiles, operations, engine, parts });
  const profileService = new ProfileService({
    home,
    database,
    profiles,
    operations,
    engine,
    sessions: {
      sessionsOf: (profile) => sessionService.sessionsOf(profile),
      deleteSession: async (sessionId) => {
        const row = sessions.get(sessionId);
        if (row !== null && row.status !== 'deleted') await sessionService.delete(row, true);
      },
    },
    policies,
    reserve,
    log: log.child('profiles'),
    defaultImage: program.agentImage,
    now,
  });
  return {
    home,
    engine,
    database,
    sessions,
    turns,
    snapshots,
    stores,
    profiles,
    operations,
    events,
    output,
    artifacts,
    sessionService,
    sessionServices: parts,
    sessionRuntime: new SessionRuntime(parts, reserve),
    policies,
    egress,
    payloads,
    filesConnections: new FilesConnections(parts.access, payloads),
    watchConnections: new FilesConnections(parts.access, payloads),
    profileService,
    deletedSessions: new DeletedSessionContents({
      database,
      sessions,
      events,
      artifacts,
      log: log.child('history'),
      now,
    }),
  };
}
