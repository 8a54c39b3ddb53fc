import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Engine } from '../engine/port.ts';
import { failpoint } from '../failpoints.ts';
import { RpcServer } from '../rpc/server.ts';
import type { HandlerTable } from '../rpc/table.ts';
import type { Home } from '../store/home.ts';
import type { HomeLock } from '../store/lock.ts';
import { Doctor } from '../trust/doctor.ts';
import { gate } from './gate.ts';
import { handlersOf, handlersOfDamaged } from './handlers.ts';
import { HomeWatch } from './home-watch.ts';
import type { LogFile } from './logs.ts';
import type { Program } from './program.ts';
import { Purge } from './purge.ts';
import { removeFromEngine, removeLeftHelpers } from './engine-objects.ts';
import { openEngine, openRooms, type Rooms } from './rooms.ts';
import { UnneededWatch } from './unneeded.ts';

/** Why a supervisor ends. `home-gone`: its home was removed, so nothing of it may stay. `unneeded`: it was to leave when idle, and is. */
export type LeaveReason = 'stop' | 'handover' | 'signal' | 'purge' | 'home-gone' | 'unneeded';

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
  readonly leaveAfterMs?: number | null;
}

/** The life of one supervisor: everything that it opened is closed by `leave`, in the reverse order. */
export class Supervisor {
  /** Resolves when it has let go of everything. */
  readonly left: Promise<LeaveReason>;
  readonly #options: SupervisorOptions;
  readonly #engine: Engine;
  readonly #rooms: Rooms | null;
  readonly #startedAt = Date.now();
  readonly #resolveLeft: (reason: LeaveReason) => void;
  #server: RpcServer | null = null;
  #watch: HomeWatch | null = null;
  #unneeded: UnneededWatch | null = null;
  #unfollow: () => void = () => undefined;
  #leaving: LeaveReason | null = null;

  private constructor(options: SupervisorOptions, engine: Engine, rooms: Rooms | null) {
    this.#options = options;
    this.#engine = engine;
    this.#rooms = rooms;
    const { promise, resolve } = Promise.withResolvers<LeaveReason>();
    this.left = promise;
    this.#resolveLeft = resolve;
  }

  /** Serves requests when it resolves. Errors: `home_newer`, `no_space`, `permission_denied`, those of listening. */
  static async start(options: SupervisorOptions): Promise<Supervisor> {
    const { home, log, program } = options;
    const engine = openEngine(home, program, log.room('engine'));
    try {
      const { rooms, damage } = open(options, engine);
      const supervisor = new Supervisor(options, engine, rooms);
      await supervisor.#start(damage);
      return supervisor;
    } catch (error) {
      await engine.close();
      throw error;
    }
  }

  /** Ends it: sandboxes and turns go on. Asking again changes nothing. */
  leave(reason: LeaveReason): void {
    if (this.#leaving !== null) return;
    this.#leaving = reason;
    void this.#leave(reason);
  }

  async #start(damage: HoldfastError | null): Promise<void> {
    const { home, log, program } = this.#options;
    const rooms = this.#rooms;
    if (rooms !== null) await this.#firstLook(rooms);
    const purge = new Purge({ home, engine: this.#engine, rooms, log: log.room('purge') });
    const life = {
      startedAt: this.#startedAt,
      connections: () => this.#server?.connections ?? 0,
      leaveSoon: (reason: LeaveReason) => void setImmediate(() => this.leave(reason)),
      purge: purge.handler((all) => void setImmediate(() => this.leave(all ? 'purge' : 'stop'))),
    };
    const table =
      rooms === null || damage !== null
        ? handlersOfDamaged(
            damage ?? new HoldfastError('home_damaged', 'The database cannot be used'),
            new Doctor({ home, engine: this.#engine, program, database: null, sessions: null, damage }),
            life,
          )
        : handlersOf(rooms, program, life, log.room('daemon'));
    const handlers = gate(table, (method) => (ALWAYS.has(method) ? null : this.#refusal(purge)));
    this.#server = await RpcServer.listen({
      place: { directory: home.socketDirectory, name: PROTOCOL_SOCKET },
      identity: {
        supervisor: { ...program.info, pid: process.pid, epoch: rooms?.database.epoch() ?? 0 },
        home: home.root,
        capabilities: {},
      },
      handlers,
      payloads: rooms?.payloads,
      onInternalError: (error, where) =>
        log.room('rpc').error('a request failed', { error, method: where.method }),
      onBroken: (error) => log.room('rpc').info('a connection was ended', { error }),
    });
    this.#watch = new HomeWatch(home, () => this.leave('home-gone'));
    const { leaveAfterMs = null } = this.#options;
    if (leaveAfterMs !== null) {
      this.#unneeded = new UnneededWatch(
        leaveAfterMs,
        () => this.#isNeeded(),
        () => this.leave('unneeded'),
      );
    }
    log
      .room('daemon')
      .info('ready', { pid: process.pid, version: program.info.version, build: program.info.build });
  }

  /** By a client, by a sandbox – somebody has to end what is idle – or by a workspace that is being filled. */
  #isNeeded(): boolean {
    if ((this.#server?.connections ?? 0) > 0) return true;
    if (this.#rooms === null) return false;
    if (this.#rooms.sessionParts.snapshots.fills.isBusy) return true;
    const { active, idle, paused } = this.#rooms.sessions.counts();
    const { running, queued } = this.#rooms.turns.counts();
    return active + idle + paused + running + queued > 0;
  }

  /** Reconciles before the first request; an engine that hangs must not keep clients from hearing that it does. */
  async #firstLook({ custody, profileService, operations, deletedSessions }: Rooms): Promise<void> {
    const log = this.#options.log.room('daemon');
    const recover = (): void => {
      profileService.recover().catch((error: unknown) => log.error('recovery failed', { error }));
      removeLeftHelpers(this.#engine).catch((error: unknown) => log.warn('left helpers stay', { error }));
    };
    const started = custody.takeOver().then(() => {
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
    if (this.#leaving === null && !purge.running) return null;
    return new HoldfastError('shutting_down', 'The supervisor is leaving', {
      next: 'ask again: the next one goes on where it stopped',
    });
  }

  async #leave(reason: LeaveReason): Promise<void> {
    const { home, lock, log } = this.#options;
    const daemon = log.room('daemon');
    daemon.info('leaving', { reason });
    this.#watch?.close();
    this.#rooms?.deletedSessions.close();
    this.#unneeded?.close();
    this.#unfollow();
    if (reason === 'handover') await failpoint('handover.after-ack');
    // First: what else ends here may wait for one.
    await this.#try('fills', () => within(DRAIN_MS, this.#rooms?.custody.pauseFills()));
    await this.#try('profiles', () => within(DRAIN_MS, this.#rooms?.profileService.drained()));
    await this.#try('server', () => within(DRAIN_MS, this.#server?.close()));
    await this.#try('watches', () => within(DRAIN_MS, this.#rooms?.watching.close()));
    await this.#try('files', () => within(DRAIN_MS, this.#rooms?.files.close()));
    await this.#try('egress', () => this.#rooms?.egress.close());
    await this.#try('sessions', () => within(DRAIN_MS, this.#rooms?.custody.letGo()));
    if (reason === 'home-gone') await this.#try('engine objects', () => removeFromEngine(this.#engine));
    await this.#try('engine', () => within(DRAIN_MS, this.#engine.close()));
    await this.#try('database', () => this.#rooms?.database.close());
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
      this.#options.log.room('daemon').error(`${what} could not be closed`, { error });
    }
  }
}

/** A damaged database leaves a supervisor that can be asked what is wrong, and to clear everything away. */
function open(
  { home, program, log }: SupervisorOptions,
  engine: Engine,
): { rooms: Rooms | null; damage: HoldfastError | null } {
  try {
    return { rooms: openRooms(home, engine, program, log.room('daemon')), damage: null };
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code !== 'home_damaged') throw error;
    log.room('daemon').warn('the database is damaged', { error });
    return { rooms: null, damage: error };
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
