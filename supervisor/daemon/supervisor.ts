import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Engine } from '../engine/port.ts';
import { failpoint } from '../base/failpoints.ts';
import { RpcServer } from '../rpc/server.ts';
import type { HandlerTable } from '../rpc/handler-table.ts';
import type { Home } from '../store/home.ts';
import type { HomeLock } from '../store/lock.ts';
import { childProblem } from '../egress/proxy-child.ts';
import { Doctor } from '../doctor/doctor.ts';
import { refuseUnavailable } from './availability.ts';
import { createDamagedHomeHandlers } from './damaged-home-handlers.ts';
import { createHandlers } from './handlers.ts';
import { HomeWatch } from './home-watch.ts';
import type { LogFile } from '../base/log.ts';
import type { Program } from './program.ts';
import { Purge } from './purge.ts';
import { removeEngineObjects, removeLeftoverHelpers } from './engine-objects.ts';
import { openEngine, openServices, type Services } from './composition.ts';
import { IdleShutdown } from './idle-shutdown.ts';
import { DRAIN_MS, within } from './within.ts';

/** `home-gone`: the home was removed, so its containers are removed too. `unneeded`: nobody needed the supervisor for a while. */
export type ShutdownReason = 'stop' | 'handover' | 'signal' | 'purge' | 'home-gone' | 'unneeded';

/** How long the first client may wait for the first reconciliation. */
const FIRST_SWEEP_MS = 3000;
const PROTOCOL_SOCKET = 'supervisor.sock';
/** Methods that a supervisor answers while it shuts down. */
const ALWAYS: ReadonlySet<keyof HandlerTable> = new Set(['ping', 'supervisor/handover', 'supervisor/status']);

export interface SupervisorOptions {
  readonly home: Home;
  readonly lock: HomeLock;
  readonly log: LogFile;
  readonly program: Program;
  /** Shut down after this long without a client and a sandbox; null: never. */
  readonly idleShutdownMs?: number | null;
}

/** The supervisor process of one home. `shutDown` closes everything that `start` opened, in reverse order. */
export class Supervisor {
  /** Resolves when everything is closed. */
  readonly stopped: Promise<ShutdownReason>;
  readonly #options: SupervisorOptions;
  readonly #engine: Engine;
  readonly #services: Services | null;
  readonly #startedAt = Date.now();
  readonly #resolveStopped: (reason: ShutdownReason) => void;
  #server: RpcServer | null = null;
  #watch: HomeWatch | null = null;
  #idleShutdown: IdleShutdown | null = null;
  #unsubscribe: () => void = () => undefined;
  #shutdownReason: ShutdownReason | null = null;

  private constructor(options: SupervisorOptions, engine: Engine, services: Services | null) {
    this.#options = options;
    this.#engine = engine;
    this.#services = services;
    const { promise, resolve } = Promise.withResolvers<ShutdownReason>();
    this.stopped = promise;
    this.#resolveStopped = resolve;
  }

  /** Resolves when the supervisor serves requests. Errors: `home_newer`, `no_space`, `permission_denied`, those of listening. */
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

  /** Sandboxes and turns go on. Further calls change nothing. */
  shutDown(reason: ShutdownReason): void {
    if (this.#shutdownReason !== null) return;
    this.#shutdownReason = reason;
    void this.#closeAll(reason);
  }

  async #start(damage: HoldfastError | null): Promise<void> {
    const { home, log, program } = this.#options;
    const services = this.#services;
    if (services !== null) await this.#recover(services);
    const purge = new Purge({ home, engine: this.#engine, services, log: log.child('purge') });
    const control = {
      startedAt: this.#startedAt,
      connections: () => this.#server?.connections ?? 0,
      shutDownSoon: (reason: ShutdownReason) => void setImmediate(() => this.shutDown(reason)),
      purge: purge.handler((all) => void setImmediate(() => this.shutDown(all ? 'purge' : 'stop'))),
    };
    const table =
      services === null || damage !== null
        ? createDamagedHomeHandlers(
            damage ?? new HoldfastError('home_damaged', 'The database cannot be used'),
            new Doctor({
              ...{ home, engine: this.#engine, program, damage },
              ...{ database: null, sessions: null, secrets: null, spares: null },
              proxyChildProblem: childProblem,
            }),
            control,
          )
        : createHandlers(services, program, control, log.child('daemon'));
    const handlers = refuseUnavailable(table, (method) => (ALWAYS.has(method) ? null : this.#refusal(purge)));
    this.#server = await RpcServer.listen({
      place: { directory: home.socketDirectory, name: PROTOCOL_SOCKET },
      identity: {
        supervisor: { ...program.info, pid: process.pid, epoch: services?.database.epoch() ?? 0 },
        home: home.root,
        homeId: home.id,
        capabilities: {},
      },
      handlers,
      payloads: services?.payloads,
      onHello: (connection, name) => services?.clients.set(connection, name),
      onInternalError: (error, where) =>
        log.child('rpc').error('a request failed', { error, method: where.method }),
      onConnectionBroken: (error) => log.child('rpc').info('a connection was ended', { error }),
    });
    this.#watch = new HomeWatch(home, () => this.shutDown('home-gone'));
    const { idleShutdownMs = null } = this.#options;
    if (idleShutdownMs !== null) {
      this.#idleShutdown = new IdleShutdown(
        idleShutdownMs,
        () => this.#isNeeded(),
        () => this.shutDown('unneeded'),
      );
    }
    log
      .child('daemon')
      .info('ready', { pid: process.pid, version: program.info.version, build: program.info.build });
  }

  /** Clients, sandboxes (somebody has to stop idle ones) and hydrations need a supervisor. */
  #isNeeded(): boolean {
    if ((this.#server?.connections ?? 0) > 0) return true;
    if (this.#services === null) return false;
    if (this.#services.hydration.isBusy) return true;
    const { active, idle, paused } = this.#services.sessions.countByStatus();
    const { running, queued } = this.#services.turns.countByStatus();
    return active + idle + paused + running + queued > 0;
  }

  /** Reconciles before the first request. An engine that hangs must not keep clients waiting. */
  async #recover({
    sessionRuntime,
    profileService,
    operations,
    deletedSessions,
    contents,
    secrets,
  }: Services): Promise<void> {
    const log = this.#options.log.child('daemon');
    const recover = (): void => {
      profileService.recover().catch((error: unknown) => log.error('recovery failed', { error }));
      removeLeftoverHelpers(this.#engine).catch((error: unknown) =>
        log.warn('helper containers could not be removed', { error }),
      );
    };
    const started = sessionRuntime.start().then(() => {
      recover();
      // After the removal of expired snapshots: the remaining ones keep the history.
      deletedSessions.start();
    });
    secrets.start();
    contents
      .collect()
      .catch((error: unknown) => log.warn('leftovers of outputs could not be removed', { error }));
    await Promise.race([started, sleep(FIRST_SWEEP_MS, undefined, { ref: false })]);
    started.catch((error: unknown) => log.error('the sessions could not be recovered', { error }));
    operations.prune();
    let reachable = this.#engine.status().reachable;
    this.#unsubscribe = this.#engine.onStatus((status) => {
      if (status.reachable && !reachable) recover();
      reachable = status.reachable;
    });
  }

  #refusal(purge: Purge): HoldfastError | null {
    if (this.#shutdownReason === null && !purge.isRunning) return null;
    return new HoldfastError('shutting_down', 'The supervisor is shutting down', {
      next: 'try again: the next supervisor continues where this one stopped',
    });
  }

  async #closeAll(reason: ShutdownReason): Promise<void> {
    const { home, lock, log } = this.#options;
    const daemon = log.child('daemon');
    daemon.info('shutting down', { reason });
    this.#watch?.close();
    this.#services?.deletedSessions.close();
    this.#services?.secrets.close();
    this.#idleShutdown?.close();
    this.#unsubscribe();
    if (reason === 'handover') await failpoint('handover.after-ack');
    // First, because other steps may wait for a hydration.
    await this.#try('hydration', () => within(DRAIN_MS, this.#services?.sessionRuntime.pauseHydration()));
    // Then nothing keeps a deploy waiting.
    await this.#try('setups', () => within(DRAIN_MS, this.#services?.setups.stop()));
    await this.#try('profiles', () => within(DRAIN_MS, this.#services?.profileService.waitUntilIdle()));
    await this.#try('server', () => within(DRAIN_MS, this.#server?.close()));
    await this.#try('watches', () => within(DRAIN_MS, this.#services?.watchConnections.close()));
    await this.#try('files', () => within(DRAIN_MS, this.#services?.filesConnections.close()));
    await this.#try('tools', () => this.#services?.agentTools.close());
    await this.#try('egress', () => this.#services?.egress.close());
    await this.#try('egress proxy', () => within(DRAIN_MS, this.#services?.egressProxy.close()));
    await this.#try('sessions', () => within(DRAIN_MS, this.#services?.sessionRuntime.stop()));
    if (reason === 'home-gone')
      await this.#try('engine objects', () => removeEngineObjects(this.#engine, () => undefined));
    await this.#try('engine', () => within(DRAIN_MS, this.#engine.close()));
    await this.#try('database', () => this.#services?.database.close());
    if (reason === 'handover') await failpoint('handover.before-release');
    if (reason === 'purge') await this.#try('home', () => Purge.removeHome(home));
    await this.#try('lock', () => lock.release());
    if (reason === 'purge') await this.#try('home', () => Purge.removeRest(home));
    daemon.info('stopped', { reason });
    this.#resolveStopped(reason);
  }

  /** A step that fails must not keep the others open, least of all the lock. */
  async #try(what: string, act: () => unknown): Promise<void> {
    try {
      await act();
    } catch (error) {
      this.#options.log.child('daemon').error(`${what} could not be closed`, { error });
    }
  }
}

/** With a damaged database the supervisor still answers what is wrong, and can purge the home. */
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
