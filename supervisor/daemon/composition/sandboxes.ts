import type { StateScope } from '../../../snapshot-format/sidecar-calls.ts';
import { SIGN_IN_FILES } from '../../../protocol/presets/index.ts';
import { PROFILE_DEFAULTS } from '../../../protocol/profile.ts';
import { KeyedMutex } from '../../base/keyed-mutex.ts';
import { KeyedReadWriteLock } from '../../base/keyed-read-write-lock.ts';
import type { Log } from '../../base/log.ts';
import { SessionGate } from '../../sessions/session-gate.ts';
import { MoveRows } from '../../store/moves.ts';
import { AgentSweep } from '../../sandboxes/agent-sweep.ts';
import { ActiveWork } from '../../sandboxes/active-work.ts';
import { Dispatches } from '../../sandboxes/dispatches.ts';
import { Freezing } from '../../sandboxes/freezing.ts';
import { IdleTimer } from '../../sandboxes/idle-timer.ts';
import { Lifecycle } from '../../sandboxes/lifecycle.ts';
import { ObservationCache } from '../../sandboxes/observation-cache.ts';
import { ResumeScript } from '../../sandboxes/resume-script.ts';
import { SandboxUsage } from '../../sandboxes/sandbox-usage.ts';
import { SidecarConnections } from '../../sandboxes/sidecar-connections.ts';
import { ScanCaches } from '../../snapshots/scan-caches.ts';
import { Freezes } from '../../store/freezes.ts';
import type { SessionRow } from '../../store/sessions.ts';
import { Seeding } from '../../workspace/seeding.ts';
import type { SidecarAccess } from '../../workspace/sidecar-access.ts';
import { StorageLimitGroup } from '../../workspace/storage-limit-group.ts';
import { StorageLimits } from '../../workspace/storage-limits.ts';
import {
  homeLimitError,
  runDirectoryLimit,
  runLimitError,
  storageLimitError,
} from '../../workspace/storage-state.ts';
import type { StorageLayer } from './storage.ts';
import type { NetworkLayer } from './network.ts';

/** Containers of sessions, and what needs their sidecars: seeding, storage limits, scan caches. */
export function createSandboxes(below: StorageLayer & NetworkLayer, log: Log) {
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
  const dispatches = new Dispatches({
    ...below,
    activeWork,
    observations,
    sidecars,
    seeding,
    homeTemplates: below.setupTemplates,
    resumeScript: new ResumeScript(below),
  });
  const lifecycle = new Lifecycle({
    ...below,
    sessionMutex,
    activeWork,
    observations,
    sidecars,
    dispatches,
    seeding,
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
    isRunning: async (sessionId) => (await sidecars.getOpen(sessionId)) !== null,
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

export type SandboxLayer = ReturnType<typeof createSandboxes>;
