import { PayloadBuffers } from '../../protocol/wire/payload-buffers.ts';
import { DockerEngine } from '../engine/docker/engine.ts';
import type { Engine } from '../engine/port.ts';
import { Artifacts } from '../history/artifacts.ts';
import { DeletedSessions } from '../history/deleted-sessions.ts';
import { EventLog } from '../history/events.ts';
import { TurnOutput } from '../history/turn-output.ts';
import { ProfileService } from '../profiles/service.ts';
import { Custody } from '../sessions/custody.ts';
import { randomIds } from '../sessions/ids.ts';
import { type SessionParts, sessionParts } from '../sessions/parts.ts';
import { SessionService } from '../sessions/service.ts';
import { type Database, openDatabase } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import { EgressRules } from '../store/egress-rules.ts';
import { Operations } from '../store/operations.ts';
import { Profiles } from '../store/profiles.ts';
import { Reserve } from '../store/reserve.ts';
import { LineageStores } from '../snapshots/store/stores.ts';
import { Sessions } from '../store/sessions.ts';
import { Snapshots } from '../store/snapshots.ts';
import { Turns } from '../store/turns.ts';
import { Egress } from '../trust/egress/egress.ts';
import { Policies } from '../trust/egress/policies.ts';
import { nameResolver } from '../trust/egress/resolver.ts';
import { FilesConnections } from '../workspace/files-connections.ts';
import type { Log } from './logs.ts';
import type { Program } from './program.ts';

export interface Rooms {
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
  readonly sessionParts: SessionParts;
  readonly custody: Custody;
  /** Memory of what passes through, between clients and sidecars. */
  readonly payloads: PayloadBuffers;
  /** Connections to sidecars for files. */
  readonly files: FilesConnections;
  /** The same for watches and searches, which take long. */
  readonly watching: FilesConnections;
  readonly profileService: ProfileService;
  readonly policies: Policies;
  readonly egress: Egress;
  readonly deletedSessions: DeletedSessions;
}

/** The engine connects in the background from here on. */
export function openEngine(home: Home, program: Program, log: Log): Engine {
  return new DockerEngine({
    home: home.root,
    homeId: home.id,
    sidecarImage: program.sidecarImage,
    builtPrograms: program.builtPrograms,
    thawProgram: program.thawProgram,
    report: (what, error) => log.warn(what, { error }),
  });
}

/** Everything that works on the database, put together. Errors: those of `openDatabase`. */
export function openRooms(home: Home, engine: Engine, program: Program, log: Log): Rooms {
  const database = openDatabase(home);
  const now = (): number => Date.now();
  const payloads = new PayloadBuffers();
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
    log: log.room('egress'),
    now,
  });
  const reserve = new Reserve(home);
  const parts = sessionParts({
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
    log: log.room('sessions'),
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
    log: log.room('profiles'),
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
    sessionParts: parts,
    custody: new Custody(parts, reserve),
    policies,
    egress,
    payloads,
    files: new FilesConnections(parts.access, payloads),
    watching: new FilesConnections(parts.access, payloads),
    profileService,
    deletedSessions: new DeletedSessions({
      database,
      sessions,
      events,
      artifacts,
      log: log.room('history'),
      now,
    }),
  };
}
