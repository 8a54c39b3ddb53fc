import { accountName } from '../../base/account-name.ts';
import type { Log } from '../../base/log.ts';
import { Reconciler } from '../../sandboxes/reconciler.ts';
import { DrainedSessions } from '../../sessions/drained-sessions.ts';
import { Forks } from '../../sessions/forks.ts';
import { HostFeed } from '../../sessions/host-feed.ts';
import { InterruptedWork } from '../../sessions/interrupted-work.ts';
import { Removal } from '../../sessions/removal.ts';
import { SessionCreation } from '../../sessions/session-creation.ts';
import { type ResumesOptions, SessionResume } from '../../sessions/session-resume.ts';
import { SessionService } from '../../sessions/session-service.ts';
import { NewSessionRows } from '../../sessions/new-session-rows.ts';
import { Spares } from '../../sessions/spares.ts';
import { SessionViews } from '../../sessions/session-views.ts';
import { MemoryRequests } from '../../sessions/memory-requests.ts';
import { TurnRequests } from '../../sessions/turn-requests.ts';
import { Restores } from '../../snapshots/restores.ts';
import { SidecarClient } from '../../workspace/sidecar-client.ts';
import type { StorageLayer } from './storage.ts';
import type { NetworkLayer } from './network.ts';
import type { SandboxLayer } from './sandboxes.ts';
import type { SnapshotLayer } from './snapshots.ts';
import type { AgentLayer, ToolLayer } from './agents.ts';
import type { WorkLayer } from './work.ts';

/** What creates, restores and removes sessions, and the service that clients call. */
export function createSessions(
  below: StorageLayer & NetworkLayer & SandboxLayer & SnapshotLayer & AgentLayer & ToolLayer & WorkLayer,
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
  const rows = new NewSessionRows({ ...below, account: accountName() });
  const spares = new Spares({
    ...own,
    rows,
    connect: (id) => SidecarClient.connect(() => engine.dial(id), id),
    isPrepared: ({ image }) => below.setupRows.findByImage(image) !== null,
    templateBytes: (profile) =>
      below.setupTemplates.has(profile) ? below.setupTemplates.bytesOf(profile) : 0,
    log: log.child('spares'),
  });
  profiles.changed.on((name) => spares.removeOutdated(name));
  below.events.subscribeAll(({ sessionId, type, data }) => {
    if (type !== 'sandbox.started' || data['case'] !== 'create') return;
    const profile = below.records.peek(sessionId)?.profile;
    if (profile !== undefined) spares.makeSoon(profile);
  });
  const creation = new SessionCreation({ ...own, rows, spares });
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
    isNoSession: (id) => below.setups.isRunning(id) || spares.has(id),
    log: log.child('reconcile'),
    onEngineReconnected: () => {
      background.add(interruptedWork.finish());
      background.add(spares.recover());
    },
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
    resume: new SessionResume({
      ...own,
      removal,
      restores,
      snapshots: snapshotService,
      renewTemplate: (profile, request) => renewRepository(below, profile, request),
    }),
    requests,
    views,
  });
  const hostFeed = createHostFeed({ ...below, views });
  return {
    spares,
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

/** A clone of now, where workspaces of the profile begin with one: its branch can have moved on. */
async function renewRepository(
  { profiles, profileSetups }: Pick<StorageLayer, 'profiles'> & Pick<NetworkLayer, 'profileSetups'>,
  profile: string,
  { signal, onProgress }: Parameters<ResumesOptions['renewTemplate']>[1],
): Promise<void> {
  if (profiles.get(profile)?.config.workspace?.repository === undefined) return;
  await profileSetups.run(profile, {
    reportProgress: (stage, done, of, unit) =>
      onProgress?.({ stage, done: done ?? null, of: of ?? null, unit: unit ?? null }),
    onOutput: () => undefined,
    signal: signal ?? new AbortController().signal,
  });
}

/** The feed of the host hears of everything that changes what clients see of sessions. */
export function createHostFeed(
  below: StorageLayer & SnapshotLayer & { readonly views: SessionViews },
): HostFeed {
  const { database, sessions, profiles, events, engine, restoreIntents } = below;
  const feed = new HostFeed({ ...below, epoch: database.epoch() });
  sessions.changed.on((sessionId) => feed.reportSession(sessionId));
  profiles.changed.on((name) => feed.reportProfile(name));
  restoreIntents.ended.on((sessionId) => feed.reportSession(sessionId));
  events.subscribeAll((event) => feed.handleEvent(event));
  engine.onStatus((status) => feed.handleEngineStatus(status));
  return feed;
}

export type SessionLayer = ReturnType<typeof createSessions>;
