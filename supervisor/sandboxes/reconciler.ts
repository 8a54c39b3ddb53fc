import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Limit } from '../../sidecar/wire.ts';
import type { Engine, ObservedObject, ObservedSandbox } from '../engine/port.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import { statusWithoutSandbox } from './idle-plan.ts';
import type { Egress } from '../egress/egress.ts';
import type { Freezing } from './freezing.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import { STOP_GRACE_MS } from './lifecycle.ts';
import type { ActiveWork } from './active-work.ts';
import type { ObservationCache } from './observation-cache.ts';
import { limitsMetAtExit, planRepairs, type Repair } from './repair-plan.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { SidecarConnections } from './sidecar-connections.ts';

/** A look at everything happens at least this often, whatever events say. */
const SWEEP_MS = 30_000;
/** A burst of engine events is answered once. */
const SETTLE_MS = 20;

export interface ReconcilerOptions {
  readonly engine: Engine;
  readonly observations: ObservationCache;
  readonly sessions: Sessions;
  readonly records: SessionRecords;
  readonly sidecars: SidecarConnections;
  readonly lanes: KeyedMutex;
  readonly live: ActiveWork;
  readonly egress: Pick<Egress, 'setLive'>;
  readonly freezing: Pick<Freezing, 'thawIfLeftFrozen'>;
  /** Its sidecar is about to be ended, and may leave something for the next one. Never rejects. */
  readonly beforeSidecarEnds: (row: SessionRow) => Promise<void>;
  readonly log: Log;
  /** The agent of this session ended under us: its turn and its execs must know. */
  readonly onAgentGone: (sessionId: string, why: string, limits: readonly Limit[]) => void;
  /** The engine answers again: what could not be finished without it can be now. */
  readonly onEngineReconnected: () => void;
}

/** Makes the record and the engine agree: at start, after every change the engine tells of, and on a slow tick. */
export class Reconciler {
  readonly #options: ReconcilerOptions;
  readonly #pending = new Set<string>();
  #settle: NodeJS.Timeout | null = null;
  #tick: NodeJS.Timeout | null = null;
  #unwatch: (() => void) | null = null;
  #sweeping: Promise<void> | null = null;
  #sweepAgain = false;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  /** The first look is awaited, so that the first request sees what is; without an engine it is made once there is one. */
  async start(): Promise<void> {
    this.#unwatch = this.#options.engine.watch(({ sessionId }) => {
      if (sessionId === null) void this.sweep().then(() => this.#options.onEngineReconnected());
      else this.#soon(sessionId);
    });
    this.#tick = setInterval(() => void this.sweep(), SWEEP_MS);
    await this.sweep();
  }

  async stop(): Promise<void> {
    this.#unwatch?.();
    if (this.#settle !== null) clearTimeout(this.#settle);
    if (this.#tick !== null) clearInterval(this.#tick);
    this.#sweepAgain = false;
    await this.#sweeping;
  }

  /** Looks at every session and every object of this home. Never rejects: what fails is tried again at the next look. */
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
    let supposed: string[];
    try {
      objects = await engine.observe();
      supposed = sessions.all(['active', 'idle', 'paused']).map((row) => row.id);
    } catch (error) {
      log.debug('sessions and engine cannot be compared', { why: HoldfastError.from(error).sentence });
      return;
    }
    const seen = new Set<string>();
    for (const object of objects) {
      if (object.kind !== 'container' || object.sessionId === null) continue;
      seen.add(object.sessionId);
    }
    await Promise.all([...new Set([...seen, ...supposed])].map((sessionId) => this.#one(sessionId)));
  }

  #soon(sessionId: string): void {
    this.#pending.add(sessionId);
    this.#settle ??= setTimeout(() => {
      this.#settle = null;
      const now = [...this.#pending];
      this.#pending.clear();
      for (const one of now) void this.#one(one);
    }, SETTLE_MS);
  }

  async #one(sessionId: string): Promise<void> {
    const { lanes, observations, records, freezing, log } = this.#options;
    try {
      await lanes.run(sessionId, async () => {
        await freezing.thawIfLeftFrozen(sessionId);
        const observed = await observations.refresh(sessionId);
        for (const repair of planRepairs(records.peek(sessionId), observed))
          await this.#repair(sessionId, repair);
        this.#lookAtEgress(sessionId, observed);
        await this.#putAwaySidecar(sessionId, observed);
      });
    } catch (error) {
      log.warn('a session could not be reconciled', {
        session: sessionId,
        why: HoldfastError.from(error).sentence,
      });
    }
  }

  async #repair(sessionId: string, repair: Repair): Promise<void> {
    const { engine, records, live, log, sidecars } = this.#options;
    log.info('reconcile', {
      session: sessionId,
      repair: repair.do,
      ...('why' in repair ? { why: repair.why } : {}),
    });
    switch (repair.do) {
      case 'record-lost': {
        const row = records.get(sessionId);
        records.change(sessionId, { status: statusWithoutSandbox(row), codeVersion: null }, repair.why, [
          { type: 'sandbox.lost', data: { generation: row.generation, why: repair.why } },
        ]);
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
          { status: live.count(sessionId) > 0 ? 'active' : 'idle' },
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

  #lookAtEgress(sessionId: string, { sidecar }: ObservedSandbox): void {
    const status = this.#options.records.peek(sessionId)?.status;
    const up = status === 'active' || status === 'idle' || status === 'paused';
    this.#options.egress.setLive(sessionId, up && sidecar?.state === 'running');
  }

  /** A sidecar without an agent beside it, which nobody has used for a while, only costs memory. */
  async #putAwaySidecar(sessionId: string, observed: ObservedSandbox): Promise<void> {
    const { engine, live, sidecars } = this.#options;
    if (observed.sidecar === null || observed.agent !== null) return;
    if (live.count(sessionId) > 0 || !sidecars.isUnused(sessionId)) return;
    const row = this.#options.records.peek(sessionId);
    if (row !== null) await this.#options.beforeSidecarEnds(row);
    await sidecars.disconnect(sessionId);
    await engine.removeSandbox(sessionId, 0);
  }
}
