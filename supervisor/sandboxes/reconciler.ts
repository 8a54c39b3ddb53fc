import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Limit } from '../../sidecar/wire.ts';
import type { Engine, ObservedObject, ObservedSandbox } from '../engine/port.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import { statusWithoutSandbox } from './idle-plan.ts';
import type { Egress } from '../egress/egress.ts';
import type { Freezing } from './freezing.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import { STOP_GRACE_MS } from './sandbox-spec.ts';
import type { ActiveWork } from './active-work.ts';
import type { ObservationCache } from './observation-cache.ts';
import { limitsMetAtExit, planRepairs, type Repair } from './repair-plan.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { SidecarConnections } from './sidecar-connections.ts';

/** Everything is compared at least this often, whatever the engine reports. */
const SWEEP_MS = 30_000;
/** Events of one burst are handled together. */
const SETTLE_MS = 20;

export interface ReconcilerOptions {
  readonly engine: Engine;
  readonly observations: ObservationCache;
  readonly sessions: Sessions;
  readonly records: SessionRecords;
  readonly sidecars: SidecarConnections;
  readonly sessionMutex: KeyedMutex;
  readonly activeWork: ActiveWork;
  readonly egress: Pick<Egress, 'setLive'>;
  readonly freezing: Pick<Freezing, 'thawIfLeftFrozen'>;
  /** Saves what the next sidecar can use. Never rejects. */
  readonly beforeSidecarEnds: (row: SessionRow) => Promise<void>;
  /** Whether a setup or a spare has this id: its containers belong to no session, and are its own business. */
  readonly isNoSession: (id: string) => boolean;
  readonly log: Log;
  /** The agent of this session ended: its turn, execs and terminals have to know. */
  readonly onAgentGone: (sessionId: string, why: string, limits: readonly Limit[]) => void;
  /** The engine answers again: what could not be finished without it can be retried. */
  readonly onEngineReconnected: () => void;
}

/** Makes the records and the engine agree: at start, after every change that the engine reports, and periodically. */
export class Reconciler {
  readonly #options: ReconcilerOptions;
  readonly #pending = new Set<string>();
  #settleTimer: NodeJS.Timeout | null = null;
  #sweepTimer: NodeJS.Timeout | null = null;
  #unwatch: (() => void) | null = null;
  #sweeping: Promise<void> | null = null;
  #sweepAgain = false;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  /** Waits for the first comparison, so that the first request sees the true state. Without an engine it is made later. */
  async start(): Promise<void> {
    this.#unwatch = this.#options.engine.watch(({ sessionId }) => {
      if (sessionId === null) void this.sweep().then(() => this.#options.onEngineReconnected());
      else this.#reconcileSoon(sessionId);
    });
    this.#sweepTimer = setInterval(() => void this.sweep(), SWEEP_MS);
    await this.sweep();
  }

  async stop(): Promise<void> {
    this.#unwatch?.();
    if (this.#settleTimer !== null) clearTimeout(this.#settleTimer);
    if (this.#sweepTimer !== null) clearInterval(this.#sweepTimer);
    this.#sweepAgain = false;
    await this.#sweeping;
  }

  /** Compares every session and every object of this home. Never rejects: a failure is retried with the next sweep. */
  sweep(): Promise<void> {
    if (this.#sweeping !== null) {
      this.#sweepAgain = true;
      return this.#sweeping;
    }
    this.#sweeping = this.#sweep().finally(() => {
      this.#sweeping = null;
      if (!this.#sweepAgain) return;
      this.#sweepAgain = false;
      void this.sweep();
    });
    return this.#sweeping;
  }

  async #sweep(): Promise<void> {
    const { engine, sessions, log } = this.#options;
    let objects: ObservedObject[];
    let running: string[];
    try {
      objects = await engine.observe();
      running = sessions.all(['active', 'idle', 'paused']).map((row) => row.id);
    } catch (error) {
      log.debug('sessions and engine cannot be compared', { why: HoldfastError.from(error).sentence });
      return;
    }
    const observed = new Set<string>();
    for (const object of objects) {
      if (object.kind !== 'container' || object.sessionId === null) continue;
      observed.add(object.sessionId);
    }
    await Promise.all([...new Set([...observed, ...running])].map((sessionId) => this.#reconcile(sessionId)));
  }

  #reconcileSoon(sessionId: string): void {
    this.#pending.add(sessionId);
    this.#settleTimer ??= setTimeout(() => {
      this.#settleTimer = null;
      const sessionIds = [...this.#pending];
      this.#pending.clear();
      for (const id of sessionIds) void this.#reconcile(id);
    }, SETTLE_MS);
  }

  async #reconcile(sessionId: string): Promise<void> {
    const { sessionMutex, observations, records, freezing, log, isNoSession } = this.#options;
    if (isNoSession(sessionId)) return;
    try {
      await sessionMutex.run(sessionId, async () => {
        await freezing.thawIfLeftFrozen(sessionId);
        const observed = await observations.refresh(sessionId);
        for (const repair of planRepairs(records.peek(sessionId), observed))
          await this.#repair(sessionId, repair);
        this.#updateEgress(sessionId, observed);
        await this.#removeUnusedSidecar(sessionId, observed);
      });
    } catch (error) {
      log.warn('a session could not be reconciled', {
        session: sessionId,
        why: HoldfastError.from(error).sentence,
      });
    }
  }

  async #repair(sessionId: string, repair: Repair): Promise<void> {
    const { engine, records, activeWork, log, sidecars } = this.#options;
    log.info('reconcile', {
      session: sessionId,
      repair: repair.do,
      ...('why' in repair ? { why: repair.why } : {}),
    });
    switch (repair.do) {
      case 'record-lost': {
        const row = records.get(sessionId);
        records.change(
          sessionId,
          { status: statusWithoutSandbox(row), codeVersion: null, image: null },
          repair.why,
          [{ type: 'sandbox.lost', data: { generation: row.generation, why: repair.why } }],
        );
        this.#options.onAgentGone(sessionId, repair.why, limitsMetAtExit(repair));
        return;
      }
      case 'record-paused':
        records.change(sessionId, { status: 'paused' }, 'paused on the engine');
        return;
      case 'record-running':
      case 'adopt':
        records.change(
          sessionId,
          { status: activeWork.count(sessionId) > 0 ? 'active' : 'idle' },
          repair.do === 'adopt' ? 'found running' : 'thawed on the engine',
        );
        return;
      case 'remove-agent':
        await engine.stopAgent(sessionId, 0);
        return;
      case 'remove-sandbox':
        await sidecars.disconnect(sessionId);
        await engine.removeSandbox(sessionId, STOP_GRACE_MS);
        return;
    }
  }

  #updateEgress(sessionId: string, { sidecar }: ObservedSandbox): void {
    const status = this.#options.records.peek(sessionId)?.status;
    const isUp = status === 'active' || status === 'idle' || status === 'paused';
    this.#options.egress.setLive(sessionId, isUp && sidecar?.state === 'running');
  }

  /** A sidecar that nobody uses, without an agent beside it, only costs memory. */
  async #removeUnusedSidecar(sessionId: string, observed: ObservedSandbox): Promise<void> {
    const { engine, activeWork, sidecars } = this.#options;
    if (observed.sidecar === null || observed.agent !== null) return;
    if (activeWork.count(sessionId) > 0 || !sidecars.isUnused(sessionId)) return;
    const row = this.#options.records.peek(sessionId);
    if (row !== null) await this.#options.beforeSidecarEnds(row);
    await sidecars.disconnect(sessionId);
    await engine.removeSandbox(sessionId, 0);
  }
}
