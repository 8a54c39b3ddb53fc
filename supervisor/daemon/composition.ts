import { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import type { Log } from '../base/log.ts';
import { DockerEngine } from '../engine/docker/engine.ts';
import type { Engine } from '../engine/port.ts';
import { Checks } from '../checks/checks.ts';
import { HandoffService } from '../handoff/handoff-service.ts';
import { PromotedArtifacts } from '../handoff/promoted-artifacts.ts';
import { DeletedSessionContents } from '../history/deleted-session-contents.ts';
import { ClientNames } from '../rpc/client-names.ts';
import type { Home } from '../store/home.ts';
import { PromotedArtifactRows } from '../store/promoted-artifacts.ts';
import { FilesConnections } from '../workspace/files-connections.ts';
import type { Program } from './program.ts';
import { SessionRuntime } from './session-runtime.ts';
import { openStorage } from './composition/storage.ts';
import { createNetwork } from './composition/network.ts';
import { createSandboxes } from './composition/sandboxes.ts';
import { createSnapshots } from './composition/snapshots.ts';
import { createAgents, createTools } from './composition/agents.ts';
import { createWork } from './composition/work.ts';
import { createSessions } from './composition/sessions.ts';
import { createReviews } from './composition/reviews.ts';
import { createManifests } from './composition/manifests.ts';
import { createBundles, createMoves } from './composition/moves.ts';
import { createProfiles } from './composition/profiles.ts';

/** Every object that needs the database. */
export type Services = ReturnType<typeof openServices>;

/** The returned engine connects in the background. */
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

/**
 * The composition root. It creates one layer after another, in the order of the modules, and each layer uses only the layers before
 * it; `composition/` has a file for each. A lower module reports to a higher one by an event or a hook; the subscription is where the higher object is created.
 * Errors: those of `openDatabase`.
 */
export function openServices(home: Home, engine: Engine, program: Program, log: Log) {
  const storage = { ...openStorage(home, log), engine };
  const network = createNetwork(storage, program, log);
  const sandboxes = createSandboxes({ ...storage, ...network }, log);
  const snapshots = createSnapshots({ ...storage, ...sandboxes }, program, log);
  const agents = createAgents(
    { ...storage, ...network, ...sandboxes, changes: snapshots.changes },
    program,
    log,
  );
  const tools = createTools({ ...storage, ...network, ...sandboxes, ...snapshots, ...agents }, program, log);
  const work = createWork({ ...storage, ...sandboxes, ...snapshots, ...agents }, log);
  const sessions = createSessions(
    { ...storage, ...network, ...sandboxes, ...snapshots, ...agents, ...tools, ...work },
    log,
  );
  const profileService = createProfiles({ ...storage, ...network, ...sessions }, log);
  const payloads = new BufferPool();
  /** For calls about files. */
  const filesConnections = new FilesConnections(sandboxes.access, payloads);
  const review = createReviews({
    ...storage,
    ...sandboxes,
    ...snapshots,
    ...sessions,
    filesConnections,
  });
  const { manifests, automaticManifests } = createManifests(
    { ...storage, ...sandboxes, ...snapshots, ...sessions },
    log,
  );
  const bundles = createBundles({ ...storage, ...sandboxes, ...snapshots, ...sessions });
  const handoffs = new HandoffService({
    ...storage,
    ...snapshots,
    ...review,
    running: (sessionId) => sandboxes.activeWork.count(sessionId),
    beforeMade: (session, made) => manifests.prepare(session, made),
  });
  const moves = createMoves(
    { ...storage, ...sandboxes, ...snapshots, ...agents, ...sessions, ...bundles },
    log,
  );
  return {
    ...storage,
    ...network,
    ...sandboxes,
    ...snapshots,
    ...agents,
    ...tools,
    ...work,
    ...sessions,
    ...review,
    sessionRuntime: new SessionRuntime({
      ...storage,
      ...sandboxes,
      ...snapshots,
      ...agents,
      ...work,
      ...sessions,
      ...review,
      automaticManifests,
      ...bundles,
      ...moves,
    }),
    handoffs,
    promotedArtifacts: new PromotedArtifacts({
      ...storage,
      ...snapshots,
      rows: new PromotedArtifactRows(storage.database),
      handoffs,
      sign: (session, artifact, subject) => manifests.ofArtifact(session, artifact, subject),
      lineWorker: program.lineWorker,
    }),
    checks: new Checks({
      ...storage,
      ...snapshots,
      ...work,
      ...sessions,
      ...review,
      imageIdentity: (image) => engine.images.identity(image),
    }),
    manifests,
    automaticManifests,
    ...bundles,
    ...moves,
    profileService,
    deletedSessions: new DeletedSessionContents({ ...storage, log: log.child('history') }),
    clients: new ClientNames(),
    /** Buffers of bytes that pass between clients and sidecars. */
    payloads,
    filesConnections,
    /** Separate connections for watches and searches, whose calls are long. */
    watchConnections: new FilesConnections(sandboxes.access, payloads),
  };
}
