import { DRAIN_MS, within } from './within.ts';
import type { Attachments } from '../history/attachments.ts';
import type { BackgroundWork } from '../base/background-work.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { IdleTimer } from '../sandboxes/idle-timer.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { ObservationCache } from '../sandboxes/observation-cache.ts';
import type { Reconciler } from '../sandboxes/reconciler.ts';
import type { SidecarConnections } from '../sandboxes/sidecar-connections.ts';
import type { Spares } from '../sessions/spares.ts';
import type { DrainedSessions } from '../sessions/drained-sessions.ts';
import type { InterruptedWork } from '../sessions/interrupted-work.ts';
import type { Conversations } from '../conversation/conversations.ts';
import type { AutomaticManifests } from '../manifests/automatic-manifests.ts';
import type { TextComparison } from '../snapshots/patch/text-comparison.ts';
import type { Comparisons } from '../snapshots/comparisons.ts';
import type { Hydration } from '../snapshots/hydration.ts';
import type { SnapshotMaintenance } from '../snapshots/maintenance.ts';
import type { ScanCaches } from '../snapshots/scan-caches.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { TurnChangeRecords } from '../snapshots/turn-changes.ts';
import type { TurnSnapshots } from '../snapshots/turn-snapshots.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { AgentConversations } from '../agents/acp/agent-conversations.ts';
import type { Permissions } from '../agents/permissions.ts';
import type { Execs } from '../terminals/execs.ts';
import type { Terminals } from '../terminals/terminals.ts';
import type { Bundles } from '../bundles/bundles.ts';
import type { Departures } from '../moves/departures.ts';
import type { TurnQueue } from '../turns/turn-queue.ts';
import type { StorageLimitGroup } from '../workspace/storage-limit-group.ts';
import type { StorageLimits } from '../workspace/storage-limits.ts';

export interface SessionRuntimeOptions {
  readonly reserve: DiskReserve;
  readonly background: BackgroundWork;
  readonly attachments: Pick<Attachments, 'expire'>;
  readonly conversations: Conversations;
  readonly sessionMutex: KeyedMutex;
  readonly lifecycle: Pick<Lifecycle, 'closeDispatches'>;
  readonly observations: ObservationCache;
  readonly sidecars: SidecarConnections;
  readonly scanCaches: ScanCaches;
  readonly limits: StorageLimits;
  readonly sandboxLimits: StorageLimitGroup;
  readonly idleTimer: IdleTimer;
  readonly snapshotService: SnapshotService;
  readonly bundles: Pick<Bundles, 'close'>;
  readonly departures: Pick<Departures, 'recover'>;
  readonly turnChanges: TurnChangeRecords;
  readonly turnSnapshots: TurnSnapshots;
  readonly comparisons: Comparisons;
  readonly reviewTexts: TextComparison;
  readonly automaticManifests: AutomaticManifests;
  readonly maintenance: SnapshotMaintenance;
  readonly hydration: Hydration;
  readonly queue: TurnQueue;
  readonly execs: Execs;
  readonly terminals: Terminals;
  readonly permissions: Permissions;
  readonly agentConversations: AgentConversations;
  readonly drainedSessions: DrainedSessions;
  readonly interruptedWork: InterruptedWork;
  readonly reconciler: Reconciler;
  readonly spares: Pick<Spares, 'recover' | 'close'>;
}

/** Starts everything that works on sessions, before the first request, and stops it after the last. */
export class SessionRuntime {
  readonly #services: SessionRuntimeOptions;

  constructor(services: SessionRuntimeOptions) {
    this.#services = services;
  }

  /** Reconciles, and resumes what an earlier supervisor began. Deletions and cleans are finished in the background. */
  async start(): Promise<void> {
    const { permissions } = this.#services;
    const { reserve, snapshotService, turnSnapshots, maintenance, queue, terminals, reconciler, background } =
      this.#services;
    const { interruptedWork, drainedSessions, idleTimer, limits, sandboxLimits } = this.#services;
    reserve.ensure();
    this.#services.attachments.expire();
    await snapshotService.start();
    turnSnapshots.recover();
    this.#services.turnChanges.recover();
    maintenance.start();
    // Turns first: a session with an unfinished turn has active work, and must not be taken for idle.
    permissions.recover();
    queue.recover();
    terminals.recover();
    await reconciler.start();
    background.add(interruptedWork.finish().then(() => this.#services.departures.recover()));
    background.add(this.#services.spares.recover());
    background.add(this.#services.conversations.start());
    drainedSessions.recover();
    idleTimer.start();
    limits.start();
    sandboxLimits.start();
  }

  /**
   * Stops the hydration of workspaces, which the next supervisor resumes, and settles when none is under way. Returns a function that
   * resumes it now.
   */
  async pauseHydration(): Promise<() => void> {
    return await this.#services.hydration.suspendAll();
  }

  /** Sandboxes, turns and terminals go on without this supervisor; execs end. */
  async stop(): Promise<void> {
    const {
      idleTimer,
      limits,
      sandboxLimits,
      execs,
      terminals,
      queue,
      reconciler,
      sessionMutex,
      background,
    } = this.#services;
    const { hydration, turnSnapshots, scanCaches, maintenance, comparisons, snapshotService } =
      this.#services;
    const { sidecars, observations } = this.#services;
    const { conversations } = this.#services;
    // First: what follows waits for sessions whose `setup.resume` runs.
    queue.stopStarting();
    this.#services.lifecycle.closeDispatches();
    await hydration.suspendAll();
    await within(DRAIN_MS, this.#services.spares.close()).catch(() => undefined);
    await conversations.close();
    await idleTimer.stop();
    await Promise.all([limits.close(), sandboxLimits.close()]);
    await execs.close();
    await terminals.detach();
    await this.#services.agentConversations.detach();
    await queue.detach();
    await turnSnapshots.close();
    await this.#services.turnChanges.close();
    await this.#services.automaticManifests.close();
    await reconciler.stop();
    await sessionMutex.drained();
    await background.settled();
    await scanCaches.close();
    await maintenance.close();
    await comparisons.close();
    await this.#services.reviewTexts.close();
    await this.#services.bundles.close();
    await snapshotService.close();
    await sidecars.close();
    observations.close();
  }
}
