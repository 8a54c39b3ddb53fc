import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Engine } from '../engine/port.ts';
import { failpoint } from '../base/failpoints.ts';
import { RpcServer } from '../rpc/server.ts';
import type { HandlerTable } from '../rpc/handler-table.ts';
import type { Home } from '../store/home.ts';
import type { HomeLock } from '../store/lock.ts';
import { Doctor } from '../doctor/doctor.ts';
import { refuseUnavailable } from './availability.ts';
import { createHandlers, createDamagedHomeHandlers } from './handlers.ts';
import { HomeWatch } from './home-watch.ts';
import type { LogFile } from '../base/log.ts';
import type { Program } from './program.ts';
import { Purge } from './purge.ts';
import { removeEngineObjects, removeLeftoverHelpers } from './engine-objects.ts';
import { openEngine, openServices, type Services } from './composition.ts';
import { IdleShutdown } from './idle-shutdown.ts';

/** Why a supervisor ends. `home-gone`: its home was removed, so nothing of it may stay. `unneeded`: it was to leave when idle, and is. */
export type ShutdownReason = 'stop' | 'handover' | 'signal' | 'purge' | 'home-gone' | 'unneeded';

/** How long the steps at hand may take before the home is let go all the same; whoever comes next finishes them. */
const DRAIN_MS = 10_000;
/** How long the first look at the engine may hold up the first client. */
const FIRST_LOOK_MS = 3000;
const PROTOCOL_SOCKET = 'supervisor.sock';
/** May be asked of a supervisor that is on its way out. */
const ALWAYS: ReadonlySet<keyof HandlerTable> = new Set(['ping', 'supervisor/handover', 'supervisor/status']);

export interface SupervisorOptions {
  readonly home: Home;
  readonly lock: HomeLock;
  readonly log: LogFile;
  readonly program: Program;
  /** Leave after this long without a client and a sandbox; null: stay. */
  readonly idleShutdownMs?: number | null;
}

/** The life of one supervisor: everything that it opened is closed by `leave`, in the reverse order. */
export class Supervisor {
  /** Resolves when it has let go of everything. */
  readonly stopped: Promise<ShutdownReason>;
  readonly #options: SupervisorOptions;
  readonly #engine: Engine;
  readonly #services: Services | null;
  readonly #startedAt = Date.now();
  readonly #resolveLeft: (reason: ShutdownReason) => void;
  #server: RpcServer | null = null;
  #watch: HomeWatch | null = null;
  #unneeded: IdleShutdown | null = null;
  #unfollow: () => void = () => undefined;
  #leaving: ShutdownReason | null = null;

  private constructor(options: SupervisorOptions, engine: Engine, services: Services | null) {
    this.#options = options;
    this.#engine = engine;
    this.#services = services;
    const { promise, resolve } = Promise.withResolvers<ShutdownReason>();
    this.stopped = promise;
    this.#resolveLeft = resolve;
  }

  /** Serves requests when it resolves. Errors: `home_newer`, `no_space`, `permission_denied`, those of listening. */
  static async start(options: SupervisorOptions): Promise<Supervisor> {
    const { home, log, program } = options;
    const engine = openEngine(home, program, log.child('engine'));
    try {
      const { services, damage } = open(options, engine);
      const supervisor = new Supervisor(options, engine, services);
      await supervisor.#start(damage);
      return supervisor;
    } catch (error) {
      await engine.close();
      throw error;
    }
  }

  /** Ends it: sandboxes and turns go on. Asking again changes nothing. */
  shutDown(reason: ShutdownReason): void {
    if (this.#leaving !== null) return;
    this.#leaving = reason;
    void this.#leave(reason);
  }

  async #start(damage: HoldfastError | null): Promise<void> {
    const { home, log, program } = this.#options;
    const services = this.#services;
    if (services !== null) await this.#firstLook(services);
    const purge = new Purge({ home, engine: this.#engine, services, log: log.child('purge') });
    const life = {
      startedAt: this.#startedAt,
      connections: () => this.#server?.connections ?? 0,
      leaveSoon: (reason: ShutdownReason) => void setImmediate(() => this.shutDown(reason)),
      purge: purge.handler((all) => void setImmediate(() => this.shutDown(all ? 'purge' : 'stop'))),
    };
    const table =
      services === null || damage !== null
        ? createDamagedHomeHandlers(
            damage ?? new HoldfastError('home_damaged', 'The database cannot be used'),
            new Doctor({ home, engine: this.#engine, program, database: null, sessions: null, damage }),
            life,
          )
        : createHandlers(services, program, life, log.child('daemon'));
    const handlers = refuseUnavailable(table, (method) => (ALWAYS.has(method) ? null : this.#refusal(purge)));
    this.#server = await RpcServer.listen({
      place: { directory: home.socketDirectory, name: PROTOCOL_SOCKET },
      identity: {
        supervisor: { ...program.info, pid: process.pid, epoch: services?.database.epoch() ?? 0 },
        home: home.root,
        capabilities: {},
      },
      handlers,
      payloads: services?.payloads,
      onInternalError: (error, where) =>
        log.child('rpc').error('a request failed', { error, method: where.method }),
      onConnectionBroken: (error) => log.child('rpc').info('a connection was ended', { error }),
    });
    this.#watch = new HomeWatch(home, () => this.shutDown('home-gone'));
    const { idleShutdownMs = null } = this.#options;
    if (idleShutdownMs !== null) {
      this.#unneeded = new IdleShutdown(
        idleShutdownMs,
        () => this.#isNeeded(),
        () => this.shutDown('unneeded'),
      );
    }
    log
      .child('daemon')
      .info('ready', { pid: process.pid, version: program.info.version, build: program.info.build });
  }

  /** By a client, by a sandbox – somebody has to end what is idle – or by a workspace that is being filled. */
  #isNeeded(): boolean {
    if ((this.#server?.connections ?? 0) > 0) return true;
    if (this.#services === null) return false;
    if (this.#services.hydration.isBusy) return true;
    const { active, idle, paused } = this.#services.sessions.countByStatus();
    const { running, queued } = this.#services.turns.countByStatus();
    return active + idle + paused + running + queued > 0;
  }

  /** Reconciles before the first request; an engine that hangs must not keep clients from hearing that it does. */
  async #firstLook({ sessionRuntime, profileService, operations, deletedSessions }: Services): Promise<void> {
    const log = this.#options.log.child('daemon');
    const recover = (): void => {
      profileService.recover().catch((error: unknown) => log.error('recovery failed', { error }));
      removeLeftoverHelpers(this.#engine).catch((error: unknown) => log.warn('left helpers stay', { error }));
    };
    const started = sessionRuntime.start().then(() => {
      recover();
      // After the snapshots whose time was over: those that are left keep the history.
      deletedSessions.start();
    });
    await Promise.race([started, sleep(FIRST_LOOK_MS, undefined, { ref: false })]);
    started.catch((error: unknown) => log.error('the sessions could not be looked at', { error }));
    operations.prune();
    let reachable = this.#engine.status().reachable;
    this.#unfollow = this.#engine.onStatus((status) => {
      if (status.reachable && !reachable) recover();
      reachable = status.reachable;
    });
  }

  #refusal(purge: Purge): HoldfastError | null {
    if (this.#leaving === null && !purge.isRunning) return null;
    return new HoldfastError('shutting_down', 'The supervisor is leaving', {
      next: 'ask again: the next one goes on where it stopped',
    });
  }

  async #leave(reason: ShutdownReason): Promise<void> {
    const { home, lock, log } = this.#options;
    const daemon = log.child('daemon');
    daemon.info('leaving', { reason });
    this.#watch?.close();
    this.#services?.deletedSessions.close();
    this.#unneeded?.close();
    this.#unfollow();
    if (reason === 'handover') await failpoint('handover.after-ack');
    // First: what else ends here may wait for one.
    await this.#try('fills', () => within(DRAIN_MS, this.#services?.sessionRuntime.pauseHydration()));
    await this.#try('profiles', () => within(DRAIN_MS, this.#services?.profileService.waitUntilIdle()));
    await this.#try('server', () => within(DRAIN_MS, this.#server?.close()));
    await this.#try('watches', () => within(DRAIN_MS, this.#services?.watchConnections.close()));
    await this.#try('files', () => within(DRAIN_MS, this.#services?.filesConnections.close()));
    await this.#try('egress', () => this.#services?.egress.close());
    await this.#try('sessions', () => within(DRAIN_MS, this.#services?.sessionRuntime.stop()));
    if (reason === 'home-gone') await this.#try('engine objects', () => removeEngineObjects(this.#engine));
    await this.#try('engine', () => within(DRAIN_MS, this.#engine.close()));
    await this.#try('database', () => this.#services?.database.close());
    if (reason === 'handover') await failpoint('handover.before-release');
    if (reason === 'purge') await this.#try('home', () => Purge.removeHome(home));
    await this.#try('lock', () => lock.release());
    if (reason === 'purge') await this.#try('home', () => Purge.removeRest(home));
    daemon.info('left', { reason });
    this.#resolveLeft(reason);
  }

  /** One part that cannot be closed must not keep the others open, least of all the lock. */
  async #try(what: string, act: () => unknown): Promise<void> {
    try {
      await act();
    } catch (error) {
      this.#options.log.child('daemon').error(`${what} could not be closed`, { error });
    }
  }
}

/** A damaged database leaves a supervisor that can be asked what is wrong, and to clear everything away. */
function open(
  { home, program, log }: SupervisorOptions,
  engine: Engine,
): { services: Services | null; damage: HoldfastError | null } {
  try {
    return { services: openServices(home, engine, program, log.child('daemon')), damage: null };
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code !== 'home_damaged') throw error;
    log.child('daemon').warn('the database is damaged', { error });
    return { services: null, damage: error };
  }
}

async function within(ms: number, work: Promise<unknown> | undefined): Promise<void> {
  const timer = new AbortController();
  try {
    const late = sleep(ms, 'late', { signal: timer.signal }).catch(() => 'ended');
    const first = await Promise.race([work, late]);
    if (first === 'late') throw new HoldfastError('timeout', `It took longer than ${ms / 1000} s`);
  } finally {
    timer.abort();
  }
}
