import { join } from 'node:path';
import { statfs } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';
import type { StateScope } from '../../snapshot-format/sidecar-calls.ts';
import { SIGN_IN_FILES } from '../../protocol/presets/index.ts';
import { PROFILE_DEFAULTS } from '../../protocol/profile.ts';
import { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import { BackgroundWork } from '../base/background-work.ts';
import { ChangeNotifier } from '../base/change-notifier.ts';
import { randomIds } from '../base/ids.ts';
import { KeyedMutex } from '../base/keyed-mutex.ts';
import { KeyedReadWriteLock } from '../base/keyed-read-write-lock.ts';
import type { Log } from '../base/log.ts';
import { ConversationLive } from '../conversation/conversation-live.ts';
import { ConversationReader } from '../conversation/conversation-reader.ts';
import { ConversationSearch } from '../conversation/conversation-search.ts';
import { Conversations } from '../conversation/conversations.ts';
import { SessionCredentials } from '../egress/credentials/session-credentials.ts';
import { Handover } from '../conversation/handover.ts';
import { SessionMemory } from '../conversation/session-memory.ts';
import { Egress } from '../egress/egress.ts';
import { Policies } from '../egress/policies.ts';
import { proxyLauncher } from '../egress/proxy-launcher.ts';
import { ProxyProcess } from '../egress/proxy-process.ts';
import { nameResolver } from '../egress/resolver.ts';
import { DockerEngine } from '../engine/docker/engine.ts';
import type { Engine } from '../engine/port.ts';
import { BundleExports } from '../bundles/bundle-exports.ts';
import { BundleImports } from '../bundles/bundle-imports.ts';
import { Bundles } from '../bundles/bundles.ts';
import { SessionImport } from '../bundles/session-import.ts';
import { Arrivals } from '../moves/arrivals.ts';
import { Departures } from '../moves/departures.ts';
import { type HostKey, openHostKey } from '../manifests/host-key.ts';
import { SessionGate } from '../sessions/session-gate.ts';
import { MoveRows } from '../store/moves.ts';
import { Checks } from '../checks/checks.ts';
import { sandboxOwner } from '../engine/sandbox-owner.ts';
import { changedPaths } from '../handoff/changed-files.ts';
import { HandoffService } from '../handoff/handoff-service.ts';
import { PromotedArtifacts } from '../handoff/promoted-artifacts.ts';
import { AutomaticManifests } from '../manifests/automatic-manifests.ts';
import { Manifests } from '../manifests/manifests.ts';
import { Artifacts } from '../history/artifacts.ts';
import { Attachments } from '../history/attachments.ts';
import { Contents } from '../history/contents.ts';
import { DeletedSessionContents } from '../history/deleted-session-contents.ts';
import { EventLog } from '../history/event-log.ts';
import { SessionRecords } from '../history/session-records.ts';
import { TurnOutput } from '../history/turn-output.ts';
import { AgentChoices } from '../agents/agent-choices.ts';
import { AgentConversations } from '../agents/acp/agent-conversations.ts';
import { PromptFiles } from '../agents/prompt-files.ts';
import { ConversationStore } from '../agents/acp/conversation-store.ts';
import { Permissions } from '../agents/permissions.ts';
import { ProfileService } from '../profiles/service.ts';
import { AgentSweep } from '../sandboxes/agent-sweep.ts';
import { ActiveWork } from '../sandboxes/active-work.ts';
import { Freezing } from '../sandboxes/freezing.ts';
import { idleTimes } from '../sandboxes/idle-plan.ts';
import { IdleTimer } from '../sandboxes/idle-timer.ts';
import { Lifecycle } from '../sandboxes/lifecycle.ts';
import { ObservationCache } from '../sandboxes/observation-cache.ts';
import { Reconciler } from '../sandboxes/reconciler.ts';
import { ResumeScript } from '../sandboxes/resume-script.ts';
import { SandboxUsage } from '../sandboxes/sandbox-usage.ts';
import { SidecarConnections } from '../sandboxes/sidecar-connections.ts';
import { DrainedSessions } from '../sessions/drained-sessions.ts';
import { Forks } from '../sessions/forks.ts';
import { HostFeed } from '../sessions/host-feed.ts';
import { InterruptedWork } from '../sessions/interrupted-work.ts';
import { Removal } from '../sessions/removal.ts';
import { SessionCreation } from '../sessions/session-creation.ts';
import { type ResumesOptions, SessionResume } from '../sessions/session-resume.ts';
import { SessionService } from '../sessions/session-service.ts';
import { SessionViews } from '../sessions/session-views.ts';
import { MemoryRequests } from '../sessions/memory-requests.ts';
import { TurnRequests } from '../sessions/turn-requests.ts';
import { BaseTrees } from '../snapshots/base-trees.ts';
import { Comparisons } from '../snapshots/comparisons.ts';
import { Hydration } from '../snapshots/hydration.ts';
import { LeasedRoots } from '../snapshots/leased-roots.ts';
import { SnapshotMaintenance } from '../snapshots/maintenance.ts';
import { RestoreIntents } from '../snapshots/restore-intents.ts';
import { Restores } from '../snapshots/restores.ts';
import { ScanCaches } from '../snapshots/scan-caches.ts';
import { SetupTemplates } from '../snapshots/setup-templates.ts';
import { SnapshotCreation } from '../snapshots/snapshot-creation.ts';
import { SnapshotGraphs } from '../snapshots/snapshot-graph.ts';
import { SnapshotService } from '../snapshots/snapshot-service.ts';
import { LineageStores } from '../snapshots/store/lineage-stores.ts';
import { TurnSnapshots } from '../snapshots/turn-snapshots.ts';
import { Blames } from '../reviews/blame/blames.ts';
import { readLiveFile } from '../reviews/blame/live-file.ts';
import { CheckTrees } from '../reviews/check-trees.ts';
import { ReviewComments } from '../reviews/review-comments.ts';
import { ReviewDelivery } from '../reviews/review-delivery.ts';
import { ReviewDecisions } from '../reviews/review-decisions.ts';
import { ReviewTrees } from '../reviews/review-trees.ts';
import { Reviews } from '../reviews/reviews.ts';
import { TextComparison } from '../reviews/text-comparison.ts';
import { WorkspaceChanges } from '../reviews/workspace-changes.ts';
import { openDatabase } from '../store/database.ts';
import { SecretFiles } from '../secrets/secret-files.ts';
import { SecretStore } from '../secrets/secret-store.ts';
import { EgressRules } from '../store/egress-rules.ts';
import { AttachmentUploads } from '../store/attachment-uploads.ts';
import { AgentChoiceRows } from '../store/agent-choices.ts';
import { AgentConversationRows } from '../store/agent-conversations.ts';
import { PermissionRows } from '../store/permissions.ts';
import { ClientNames } from '../rpc/client-names.ts';
import { SidecarProcessChannel, type UseSidecar } from '../workspace/sidecar-process-channel.ts';
import { Freezes } from '../store/freezes.ts';
import type { Home } from '../store/home.ts';
import { KeptManifestRows } from '../store/kept-manifests.ts';
import { Operations } from '../store/operations.ts';
import { Profiles } from '../store/profiles.ts';
import { PromotedArtifactRows } from '../store/promoted-artifacts.ts';
import { DiskReserve } from '../store/reserve.ts';
import { SecretRows } from '../store/secrets.ts';
import { SetupRows } from '../store/setups.ts';
import { Setups } from '../setup/setups.ts';
import { ReviewCommentRows } from '../store/review-comments.ts';
import { ReviewRows } from '../store/reviews.ts';
import { type SessionRow, Sessions } from '../store/sessions.ts';
import { Snapshots } from '../store/snapshots.ts';
import { TerminalRows } from '../store/terminals.ts';
import { Turns } from '../store/turns.ts';
import { WorkspaceBases } from '../store/workspace-bases.ts';
import { AgentSnapshots } from '../tools/agent-snapshots.ts';
import { AgentTools } from '../tools/agent-tools.ts';
import { EgressRequests } from '../tools/egress-requests.ts';
import { sessionTools } from '../tools/session-tools.ts';
import { Execs } from '../terminals/execs.ts';
import { Terminals } from '../terminals/terminals.ts';
import { TurnQueue } from '../turns/turn-queue.ts';
import { TurnRecords } from '../turns/turn-records.ts';
import { FilesConnections } from '../workspace/files-connections.ts';
import { Seeding, seedWorkspace } from '../workspace/seeding.ts';
import type { SidecarAccess } from '../workspace/sidecar-access.ts';
import { StorageLimitGroup } from '../workspace/storage-limit-group.ts';
import { StorageLimits } from '../workspace/storage-limits.ts';
import { SidecarClient } from '../workspace/sidecar-client.ts';
import {
  homeLimitError,
  runDirectoryLimit,
  runLimitError,
  storageLimitError,
} from '../workspace/storage-state.ts';
import type { Program } from './program.ts';
import { SessionRuntime } from './session-runtime.ts';

/** How long turns may take to end when their session is stopped or deleted. */
const DRAIN_TURNS_MS = 30_000;
/** How long the first sandbox of a prepared image may take until it accepts requests. */
const SETUP_READY_MS = 30_000;
/** How long a manifest waits for what a running sandbox says of itself. */
const SANDBOX_FACTS_MS = 2000;

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
 * it. A lower module reports to a higher one by an event or a hook; the subscription is where the higher object is created.
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
    (profile, request) => renewRepository(storage, profileService, profile, request),
    log,
  );
  const profileService = createProfiles({ ...storage, ...network, ...sessions }, program, log);
  const payloads = new BufferPool();
  /** For calls about files. */
  const filesConnections = new FilesConnections(sandboxes.access, payloads);
  const review = createReviews(
    { ...storage, ...sandboxes, ...snapshots, ...sessions, filesConnections },
    program,
  );
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

type Storage = ReturnType<typeof openStorage> & { readonly engine: Engine };
type Network = ReturnType<typeof createNetwork>;
type Sandboxes = ReturnType<typeof createSandboxes>;
type Agents = ReturnType<typeof createAgents>;
type SnapshotLayer = ReturnType<typeof createSnapshots>;
type Tools = ReturnType<typeof createTools>;
type Work = ReturnType<typeof createWork>;
type SessionLayer = ReturnType<typeof createSessions>;

/** Rows, history and the object stores of snapshots. */
function openStorage(home: Home, log: Log) {
  const now = (): number => Date.now();
  const database = openDatabase(home);
  const sessions = new Sessions(database);
  const events = new EventLog(database, (error) => log.error('a listener of events failed', { error }));
  const artifacts = new Artifacts(home);
  const contents = new Contents(database, artifacts);
  const uploads = new AttachmentUploads(database);
  const attachments = new Attachments({ database, uploads, contents, now, log: log.child('attachments') });
  const own = { database, sessions, events, contents, attachments };
  const operations = new Operations(database);
  const conversations = new Conversations({ ...own, log: log.child('conversations') });
  const conversationReader = new ConversationReader({ ...own, conversations });
  const sessionMemory = new SessionMemory({ ...own, operations });
  return {
    home,
    database,
    sessions,
    turns: new Turns(database),
    snapshots: new Snapshots(database),
    reviewRows: new ReviewRows(database),
    commentRows: new ReviewCommentRows(database),
    bases: new WorkspaceBases(database),
    profiles: new Profiles(database),
    operations,
    reserve: new DiskReserve(home),
    stores: new LineageStores(home),
    events,
    artifacts,
    contents,
    attachments,
    output: new TurnOutput(database, events, contents, artifacts),
    conversations,
    conversationReader,
    sessionMemory,
    handover: new Handover({ conversations, reader: conversationReader, memory: sessionMemory }),
    conversationSearch: new ConversationSearch({ ...own, conversations }),
    conversationLive: new ConversationLive({
      events,
      storedBytes: (...message) => conversations.storedBytes(...message),
    }),
    records: new SessionRecords(database, sessions, events, now),
    background: new BackgroundWork(log.child('sessions')),
    secrets: new SecretStore({
      rows: new SecretRows(database),
      files: new SecretFiles(home.secrets),
      log: log.child('secrets'),
      now,
    }),
    ids: randomIds,
    now,
  };
}

function createNetwork(storage: Storage, program: Program, log: Log) {
  const { database, engine } = storage;
  const credentials = new SessionCredentials(storage);
  const egressRules = new EgressRules(database);
  const policies = new Policies({ ...storage, rules: egressRules });
  const egressProxy = new ProxyProcess({
    launch: proxyLauncher({
      startContainer: () => engine.startEgressProxy(),
      program: join(program.builtPrograms, 'egress-proxy.cjs'),
      log: log.child('egress'),
    }),
    log: log.child('egress'),
  });
  const egress = new Egress({
    ...storage,
    policies,
    proxy: egressProxy,
    credentials,
    dial: (sessionId) => engine.dial(sessionId),
    resolve: nameResolver(process.env),
    reportElsewhere: (id, entries) => setups.reportEgress(id, entries),
    log: log.child('egress'),
  });
  const setupTemplates = new SetupTemplates({
    ...storage,
    dial: (id) => engine.dial(id),
    templateOf: (image) => setups.templateOf(image),
  });
  const setups: Setups = new Setups({
    ...storage,
    ...{ policies, egress },
    rows: new SetupRows(database),
    templates: setupTemplates,
    connect: (id) => SidecarClient.connect(() => engine.dial(id), id),
    owner: () => sandboxOwner(engine, () => storage.sessions.allocateUid()),
    takesRequests: async (id) => {
      const client = await SidecarClient.connect(() => engine.dial(id), id);
      try {
        return await client.agentReady(SETUP_READY_MS);
      } finally {
        client.close();
      }
    },
    log: log.child('setup'),
  });
  return { policies, egress, egressProxy, egressRules, setups, setupTemplates };
}

/** Containers of sessions, and what needs their sidecars: seeding, storage limits, scan caches. */
function createSandboxes(below: Storage & Network, log: Log) {
  const { database, engine, profiles, records, stores, egress, now } = below;
  const sessionMutex = new KeyedMutex();
  /** Each change that a client makes to a file shares this lock; a restore holds it exclusively. */
  const writeLock = new KeyedReadWriteLock();
  const activeWork = new ActiveWork();
  const observations = new ObservationCache(engine);
  const dial: SidecarAccess['dial'] = (sessionId) => engine.dial(sessionId);
  const sidecars = new SidecarConnections(engine, now, (sessionId) => egress.setLive(sessionId, false));
  const freezing = new Freezing({
    engine,
    observations,
    freezes: new Freezes(database),
    log: log.child('freezing'),
  });
  const seeding = new Seeding({ ...below, dial, templates: below.setupTemplates });
  const scanCaches = new ScanCaches({ engine, stores, access: { dial }, log: log.child('snapshots') });
  const beforeSidecarEnds = (row: SessionRow): Promise<void> => scanCaches.saveBeforeSidecarEnds(row);
  const lifecycle = new Lifecycle({
    ...below,
    sessionMutex,
    activeWork,
    observations,
    sidecars,
    seeding,
    homeTemplates: below.setupTemplates,
    resumeScript: new ResumeScript(below),
    beforeSidecarEnds,
  });
  const moveRows = new MoveRows(database);
  const gate = new SessionGate(moveRows);
  lifecycle.beforeUse.add(async (sessionId) => gate.requireNotHeld(sessionId));
  lifecycle.beforeUse.add((sessionId) => freezing.thawIfLeftFrozen(sessionId));
  const agentSweep = new AgentSweep({
    engine,
    lifecycle,
    records,
    activeWork,
    sessionMutex,
    log: log.child('sandboxes'),
  });
  const access: SidecarAccess = {
    ensureRunning: (sessionId, isSuspect) =>
      lifecycle.withSidecar(sessionId, () => Promise.resolve(), isSuspect),
    acquireLease: (sessionId) => sidecars.acquireLease(sessionId),
    dial,
  };
  const limitOf = (sessionId: string): number | null => {
    const row = records.peek(sessionId);
    return row === null ? null : (profiles.get(row.profile)?.config.workspace?.limit ?? null);
  };
  const limits = new StorageLimits({
    limitOf,
    lastMeasured: (sessionId) => records.peek(sessionId)?.workspaceBytes ?? null,
    measure: (sessionId) => lifecycle.withSidecar(sessionId, (client) => client.workspaceUsage()),
    largestFolders: (sessionId, limit) =>
      lifecycle.withSidecar(sessionId, (client) => client.biggestFolders(limit)),
    record: (sessionId, bytes, events) =>
      void records.change(sessionId, { workspaceBytes: bytes }, 'measured', events),
    refusal: storageLimitError,
    activeSessions: () => activeWork.sessionIds(),
    log: log.child('limits'),
  });
  const homeLimitOf = (sessionId: string): number => {
    const row = records.peek(sessionId);
    const config = row === null ? null : profiles.get(row.profile)?.config;
    return config?.limits?.home ?? PROFILE_DEFAULTS.limits.home;
  };
  const sandboxUsage = new SandboxUsage({ ...below, sidecars, sessionMutex, lifecycle });
  const homeLimits = new StorageLimits({
    limitOf: homeLimitOf,
    lastMeasured: () => null,
    measure: (sessionId, isAwaited) => sandboxUsage.measureHome(sessionId, isAwaited),
    largestFolders: () => Promise.resolve([]),
    record: () => undefined,
    refusal: homeLimitError,
    activeSessions: () => activeWork.sessionIds(),
    log: log.child('limits'),
  });
  const runLimits = new StorageLimits({
    limitOf: (sessionId) => {
      const row = records.peek(sessionId);
      const config = row === null ? null : profiles.get(row.profile)?.config;
      return runDirectoryLimit(config?.limits?.output ?? PROFILE_DEFAULTS.limits.output);
    },
    lastMeasured: () => null,
    measure: (sessionId, isAwaited) => sandboxUsage.measureRunDirectory(sessionId, isAwaited),
    largestFolders: () => Promise.resolve([]),
    record: () => undefined,
    refusal: runLimitError,
    activeSessions: () => activeWork.sessionIds(),
    log: log.child('limits'),
  });
  const idleTimer = new IdleTimer({
    ...below,
    lifecycle,
    activeWork,
    canPause: () => engine.capabilities().pause !== 'none',
    log: log.child('idle'),
  });
  activeWork.changed.on((sessionId) => idleTimer.reschedule(sessionId));
  return {
    sessionMutex,
    writeLock,
    activeWork,
    observations,
    sidecars,
    agentSweep,
    freezing,
    seeding,
    scanCaches,
    beforeSidecarEnds,
    moveRows,
    gate,
    lifecycle,
    access,
    /** For everything that a snapshot may hold. */
    limitOf: (sessionId: string): number | null => {
      const limit = limitOf(sessionId);
      return limit === null ? null : limit + homeLimitOf(sessionId);
    },
    stateOf: (row: SessionRow): StateScope | null => {
      const paths = profiles.get(row.profile)?.config.agent.state ?? [];
      return paths.length === 0 ? null : { paths: [...paths], signIn: [...SIGN_IN_FILES] };
    },
    limits,
    sandboxLimits: new StorageLimitGroup([homeLimits, runLimits]),
    idleTimer,
  };
}

/** Snapshots without restores, because a restore ends turns, which are created later. */
function createSnapshots(below: Storage & Sandboxes, program: Program, log: Log) {
  const { database, operations, profiles, stores, access, scanCaches, seeding, now } = below;
  const own = { ...below, log: log.child('snapshots'), changes: new ChangeNotifier() };
  const snapshotCreation = new SnapshotCreation({
    ...own,
    onScan: (row, scan) => scanCaches.onScan(row, scan),
  });
  const snapshotService = new SnapshotService({ ...own, snapshotCreation });
  const baseTrees = new BaseTrees({ ...own, snapshotCreation });
  seeding.seeded.add((session) => baseTrees.record(session));
  const turnSnapshots = new TurnSnapshots({
    ...own,
    snapshotCreation,
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
    turnSnapshots,
    baseTrees,
    comparisons,
    maintenance,
    restoreIntents,
    hydration,
  };
}

/** Agents that stay and take prompts, and what they ask people. */
function createAgents(
  below: Storage & Network & Sandboxes & Pick<SnapshotLayer, 'changes'>,
  program: Program,
  log: Log,
) {
  const {
    database,
    turns,
    conversationLive: live,
    handover,
    lifecycle,
    freezing,
    records,
    profiles,
    now,
  } = below;
  const rows = new PermissionRows(database);
  const conversationRows = new AgentConversationRows(database);
  const agentChoices = new AgentChoices({
    ...below,
    rows: new AgentChoiceRows(database),
    conversationRows,
    offersSettings: (sessionId) =>
      profiles.get(records.get(sessionId).profile)?.config.agent.protocol === 'acp',
  });
  const permissions: Permissions = new Permissions({
    ...below,
    rows,
    isRunning: (turnId) => turns.statusOf(turnId) === 'running',
    onAnswering: (row, option) => egressRequests.onAnswering(row, option),
    onAnswered: (sessionId, id, option) => {
      agentConversations.answer(sessionId, id, option);
      // The answer may have been a rule.
      below.egress.applyRules();
    },
  });
  const egressRequests: EgressRequests = new EgressRequests({ ...below, permissionRows: rows, permissions });
  const useSidecar =
    (sessionId: string): UseSidecar =>
    (use, isSuspect) =>
      lifecycle.withSidecar(sessionId, use, isSuspect);
  const promptFiles = new PromptFiles({ ...below, useSidecar });
  const agentConversations: AgentConversations = new AgentConversations({
    ...below,
    promptFiles,
    channel: (sessionId) => new SidecarProcessChannel(useSidecar(sessionId)),
    store: new ConversationStore({
      ...below,
      rows: conversationRows,
      permissions: rows,
      now,
    }),
    onLive: (sessionId, { turnId, message, role, text }) =>
      live.append(sessionId, turnId, message, role, text),
    handover: (sessionId, turnId) => handover.textFor(sessionId, { exceptTurn: turnId }),
    mustStartOver: (sessionId) => handover.mustStartOver(sessionId),
    wantedOf: (sessionId) => ({
      model: records.peek(sessionId)?.model ?? null,
      choices: agentChoices.of(sessionId),
    }),
    answerTo: (id) => permissions.answerTo(id),
    isStill: (sessionId) => freezing.isFrozen(sessionId) || records.peek(sessionId)?.status === 'paused',
    version: program.info.version,
    log: log.child('agents'),
  });
  below.events.appended.on(({ sessionId, events }) => {
    if (!events.some(({ type }) => type === 'agent.chosen' || type === 'session.updated')) return;
    database.afterCommit(() => agentConversations.chosen(sessionId));
  });
  return {
    ...{ permissions, agentConversations, agentChoices, promptFiles },
    ...{ permissionRows: rows, egressRequests },
  };
}

async function freeBytesAt(path: string): Promise<number> {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize;
}

/** What agents can ask of Holdfast itself. */
function createTools(
  below: Storage & Network & Sandboxes & SnapshotLayer & Agents,
  program: Program,
  log: Log,
) {
  const { engine, egress, records, profiles, home } = below;
  const agentSnapshots = new AgentSnapshots({ ...below, freeBytes: () => freeBytesAt(home.store) });
  const agentTools = new AgentTools({
    tools: sessionTools({ ...below, agentSnapshots }),
    offersTools: (sessionId) => {
      const row = records.peek(sessionId);
      return row !== null && profiles.get(row.profile)?.config.agent.protocol === 'acp';
    },
    dial: (sessionId) => engine.dial(sessionId),
    version: program.info.version,
    log: log.child('tools'),
  });
  egress.liveness.on(({ sessionId, isLive }) => agentTools.setLive(sessionId, isLive));
  return { agentTools };
}

/** What clients run in sandboxes: turns, execs and terminals. */
function createWork(below: Storage & Sandboxes & SnapshotLayer & Agents, log: Log) {
  const { database, records, profiles, freezing, turnSnapshots, changes, permissions } = below;
  const turnRecords = new TurnRecords({ ...below, sessions: records });
  turnRecords.ending.on((turnId) => permissions.closeOf(turnId));
  const queue = new TurnQueue({
    ...below,
    changes,
    sessions: records,
    records: turnRecords,
    profileOf: (turn) => profiles.getOrThrow(records.get(turn.sessionId).profile).config,
    isFrozen: (sessionId) => freezing.isFrozen(sessionId),
    sweep: (sessionId, turnId) => below.agentSweep.run(sessionId, turnId, 'a turn was terminated'),
    beforeTurn: (session, turnId, signal) => turnSnapshots.createBeforeTurn(session, turnId, signal),
    log: log.child('turns'),
  });
  const execs = new Execs({ ...below, log: log.child('execs') });
  const terminals = new Terminals({
    ...below,
    rows: new TerminalRows(database),
    idleTimeoutOf: (sessionId) => {
      const row = records.peek(sessionId);
      const profile = row === null ? null : profiles.get(row.profile);
      return profile === null ? PROFILE_DEFAULTS.idle.stop : idleTimes(profile.config).stop;
    },
    log: log.child('terminals'),
  });
  /** Ends every turn, exec and terminal of a session. */
  const drain = async (sessionId: string, why: string): Promise<void> => {
    // The turns first: one that waits for its sandbox is cancelled, and has not failed.
    const turns = queue.cancelAll(sessionId, DRAIN_TURNS_MS);
    below.lifecycle.interruptDispatches(sessionId, why);
    await Promise.all([turns, execs.endAll(sessionId), terminals.endAll(sessionId, why)]);
  };
  return { queue, execs, terminals, drain };
}

/** What creates, restores and removes sessions, and the service that clients call. */
function createSessions(
  below: Storage & Network & Sandboxes & SnapshotLayer & Agents & Tools & Work,
  renewTemplate: ResumesOptions['renewTemplate'],
  log: Log,
) {
  const {
    database,
    profiles,
    engine,
    background,
    policies,
    conversations,
    agentConversations,
    agentChoices,
  } = below;
  const {
    lifecycle,
    activeWork,
    limits,
    sandboxLimits,
    seeding,
    scanCaches,
    snapshotService,
    restoreIntents,
    hydration,
  } = below;
  const { queue, execs, terminals } = below;
  const own = { ...below, log: log.child('sessions') };
  const creation = new SessionCreation(own);
  const removal = new Removal({ ...own, log: log.child('removal') });
  removal.workspaceCleared.on(({ id, profile: name }) => {
    const profile = profiles.get(name);
    if (profile !== null) seeding.recordIntent(id, profile.config);
    restoreIntents.drop(id);
    limits.forget(id);
  });
  removal.sessionDeleted.on((row) => {
    seeding.dropIntent(row.id);
    restoreIntents.drop(row.id);
    snapshotService.pruneDeletedSession(row);
    background.add(scanCaches.remove(row));
    database.afterCommit(() => background.add(conversations.remove(row.id)));
    agentConversations.forget(row.id);
    agentChoices.forget(row.id);
    below.agentTools.forget(row.id);
    policies.forgetSession(row.id);
    limits.forget(row.id);
    sandboxLimits.forget(row.id);
  });
  const restores = new Restores({
    ...own,
    intents: restoreIntents,
    service: snapshotService,
    requireIdle: (row, what) => activeWork.requireIdle(row, what, '--cancel'),
    finishCleans: (sessionId) => removal.finishPendingCleanLocked(sessionId),
    onResized: (sessionId) => {
      limits.forget(sessionId);
      limits.measureSoon(sessionId, true);
    },
  });
  // In this order: an interrupted clean ends before an interrupted restore continues.
  lifecycle.beforeUse.add((sessionId) => removal.finishPendingCleanLocked(sessionId));
  lifecycle.beforeUse.add((sessionId) => restores.finishPendingLocked(sessionId));

  const drainedSessions = new DrainedSessions({ ...own, removal });
  queue.drained.on((sessionId) => drainedSessions.handleDrained(sessionId));
  terminals.ended.on((sessionId) => drainedSessions.handleDrained(sessionId));

  const interruptedWork = new InterruptedWork({ ...own, removal });
  const reconciler = new Reconciler({
    ...below,
    isSetup: (id) => below.setups.isRunning(id),
    log: log.child('reconcile'),
    onEngineReconnected: () => background.add(interruptedWork.finish()),
    onAgentGone: (sessionId, why, limitsMet) => {
      queue.onAgentGone(sessionId, why, limitsMet);
      execs.onAgentGone(sessionId);
      terminals.onAgentGone(sessionId, why);
    },
  });
  const views = new SessionViews({
    ...own,
    engine,
    hydrationOf: (sessionId) => hydration.stateOf(sessionId),
  });
  const requests = new TurnRequests({
    ...own,
    creation,
    removal,
    // A paused turn has to end before the new one can run.
    beginThaw: (sessionId) => background.add(lifecycle.thaw(sessionId)),
  });
  const memoryRequests = new MemoryRequests({ ...own, memory: below.sessionMemory, requests });
  const sessionService = new SessionService({
    ...own,
    creation,
    removal,
    forks: new Forks({ ...own, creation }),
    resume: new SessionResume({ ...own, removal, restores, snapshots: snapshotService, renewTemplate }),
    requests,
    views,
  });
  const hostFeed = createHostFeed({ ...below, views });
  return {
    creation,
    removal,
    restores,
    drainedSessions,
    interruptedWork,
    reconciler,
    sessionService,
    memoryRequests,
    hostFeed,
  };
}

/** The feed of the host hears of everything that changes what clients see of sessions. */
function createHostFeed(below: Storage & SnapshotLayer & { readonly views: SessionViews }): HostFeed {
  const { database, sessions, profiles, events, engine, restoreIntents } = below;
  const feed = new HostFeed({ ...below, epoch: database.epoch() });
  sessions.changed.on((sessionId) => feed.reportSession(sessionId));
  profiles.changed.on((name) => feed.reportProfile(name));
  restoreIntents.ended.on((sessionId) => feed.reportSession(sessionId));
  events.subscribeAll((event) => feed.handleEvent(event));
  engine.onStatus((status) => feed.handleEngineStatus(status));
  return feed;
}

/** Null if no sandbox of the session runs, or it does not do that soon. Never starts one, and never rejects. */
async function withRunningSandbox<T>(
  { sidecars, records }: Pick<Sandboxes, 'sidecars'> & Pick<Storage, 'records'>,
  sessionId: string,
  act: (sidecar: SidecarClient) => Promise<T>,
): Promise<T | null> {
  const status = records.peek(sessionId)?.status;
  if (status !== 'active' && status !== 'idle') return null;
  const slow = setTimeout(SANDBOX_FACTS_MS, null, { ref: false });
  const answer = sidecars
    .get(sessionId)
    .then(act)
    .catch(() => null);
  return await Promise.race([answer, slow]);
}

/** Statements of what sessions did. */
function createManifests(below: Storage & Sandboxes & SnapshotLayer & SessionLayer, log: Log) {
  const { database, sessionMemory, baseTrees, stores, removal } = below;
  const kept = new KeptManifestRows(database);
  const setups = new SetupRows(database);
  const manifests = new Manifests({
    ...below,
    kept,
    memoryVersion: (sessionId) => sessionMemory.show(sessionId)?.version ?? 0,
    baseOf: (session) => baseTrees.find(session),
    setupOf: (profile, image) => {
      const setup = setups.list(profile).find((one) => one.image === image);
      return setup === undefined ? null : { key: setup.key, imageId: setup.imageId };
    },
    changesBetween: ({ lineage }, before, after) => changedPaths(stores, lineage, { before, after }),
    openPorts: ({ id }) =>
      withRunningSandbox(below, id, (sidecar) => sidecar.openPorts({ timeoutMs: SANDBOX_FACTS_MS })),
    writeAgentCopy: async ({ id }, copy) => {
      const options = { timeoutMs: SANDBOX_FACTS_MS };
      await withRunningSandbox(below, id, (sidecar) => sidecar.writeManifestCopy(copy, options));
    },
    log: log.child('manifests'),
  });
  removal.sessionDeleted.on(({ id }) => kept.removeOfSession(id));
  const automaticManifests = new AutomaticManifests({ ...below, manifests, log: log.child('manifests') });
  return { manifests, automaticManifests };
}

/** What people decide about the changes of agents. */
function createReviews(
  below: Storage & Sandboxes & SnapshotLayer & SessionLayer & { readonly filesConnections: FilesConnections },
  program: Program,
) {
  const { reviewRows: rows, filesConnections } = below;
  const own = { ...below, rows, mutex: new KeyedMutex(), workspace: new WorkspaceChanges(filesConnections) };
  const texts = new TextComparison(program.lineWorker);
  const trees = new ReviewTrees(below);
  const reviews = new Reviews({
    ...own,
    texts,
    trees,
    finishPending: (sessionId) => reviewDecisions.finishPending(sessionId),
  });
  const reviewDecisions: ReviewDecisions = new ReviewDecisions({ ...own, reviews });
  const reviewComments = new ReviewComments({
    ...own,
    reviews,
    mutex: new KeyedMutex(),
    startTurn: async (session, prompt, opId) => {
      const { turn } = await below.sessionService.startTurn({ session, input: Buffer.from(prompt), opId });
      return turn.turnId;
    },
  });
  below.removal.sessionDeleted.on(({ id }) => {
    reviews.removeOfSession(id);
    reviewComments.removeOfSession(id);
  });
  const reviewDelivery = new ReviewDelivery({ ...own, reviews });
  const checkTrees = new CheckTrees({ reviews, trees });
  const blames = new Blames({
    ...own,
    texts,
    trees,
    readLive: (sessionId, path, signal) => readLiveFile(filesConnections, sessionId, path, signal),
  });
  return { reviews, reviewDecisions, reviewDelivery, reviewComments, checkTrees, blames, reviewTexts: texts };
}

/** Sessions as files, on their way to another home. */
function createBundles(below: Storage & Sandboxes & SnapshotLayer & SessionLayer) {
  const { idleTimer } = below;
  const bundleImports = new BundleImports({ ...below, sessionImport: new SessionImport(below) });
  const bundles = new Bundles({
    ...below,
    exports: new BundleExports(below),
    imports: bundleImports,
    onImported: (sessionId) => idleTimer.reschedule(sessionId),
  });
  return { bundles, bundleImports };
}

/** Sessions on their way from and to other homes. */
function createMoves(
  below: Storage & Sandboxes & SnapshotLayer & Agents & SessionLayer & ReturnType<typeof createBundles>,
  log: Log,
) {
  const { home, moveRows: rows, sessionService, idleTimer, removal } = below;
  let opened: HostKey | null = null;
  const hostKey = (): HostKey => (opened ??= openHostKey(home.hostKey));
  const own = { ...below, rows, key: hostKey, log: log.child('moves') };
  const departures = new Departures(own);
  const arrivals = new Arrivals({
    ...own,
    view: (row) => sessionService.view(row),
    onActive: (sessionId) => idleTimer.reschedule(sessionId),
  });
  removal.sessionDeleted.on(({ id }) => {
    departures.handleDeleted(id);
    arrivals.handleDeleted(id);
  });
  return { departures, arrivals, hostKey };
}

/** A clone of now, where workspaces of the profile begin with one: its branch can have moved on. */
async function renewRepository(
  { profiles }: Pick<Storage, 'profiles'>,
  profileService: ProfileService,
  profile: string,
  { signal, onProgress }: Parameters<ResumesOptions['renewTemplate']>[1],
): Promise<void> {
  if (profiles.get(profile)?.config.workspace?.repository === undefined) return;
  await profileService.runSetup(profile, {
    reportProgress: (stage, done, of, unit) =>
      onProgress?.({ stage, done: done ?? null, of: of ?? null, unit: unit ?? null }),
    onOutput: () => undefined,
    signal: signal ?? new AbortController().signal,
  });
}

function createProfiles(below: Storage & Network & SessionLayer, program: Program, log: Log) {
  const { sessions, sessionService, policies, secrets } = below;
  return new ProfileService({
    ...below,
    forgetProfile: (profile) => {
      policies.forgetProfile(profile);
      secrets.forgetProfile(profile);
    },
    sessions: {
      sessionsOf: (profile) => sessionService.sessionsOf(profile),
      deleteSession: async (sessionId) => {
        const row = sessions.get(sessionId);
        if (row !== null && row.status !== 'deleted') await sessionService.delete(row, true);
      },
    },
    fillWorkspace: (sandboxId, items) => seedWorkspace((id) => below.engine.dial(id), sandboxId, items),
    log: log.child('profiles'),
    defaultImage: program.agentImage,
  });
}
