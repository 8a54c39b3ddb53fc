import type { Session, Turn, WorkspaceInfo } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { DEFAULTS } from '../../protocol/profile.ts';
import type { Log } from '../daemon/logs.ts';
import type { Engine } from '../engine/port.ts';
import type { Artifacts } from '../history/artifacts.ts';
import type { EventLog } from '../history/events.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import { Forks } from '../snapshots/forks.ts';
import { Freezing } from '../snapshots/freezing.ts';
import type { SnapshotUsage } from '../../protocol/snapshots.ts';
import { Comparisons } from '../snapshots/comparisons.ts';
import { HeldRoots } from '../snapshots/held-roots.ts';
import { Restores } from '../snapshots/restores.ts';
import { SnapshotService } from '../snapshots/service.ts';
import type { LineageStores } from '../snapshots/store/stores.ts';
import { Takes } from '../snapshots/takes.ts';
import { SnapshotUpkeep } from '../snapshots/upkeep.ts';
import type { Database } from '../store/database.ts';
import { Freezes } from '../store/freezes.ts';
import type { Home } from '../store/home.ts';
import type { Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { Reserve } from '../store/reserve.ts';
import type { SessionFilter, SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import { TerminalRows } from '../store/terminals.ts';
import type { Turns } from '../store/turns.ts';
import type { Egress } from '../trust/egress/egress.ts';
import type { Policies } from '../trust/egress/policies.ts';
import type { SidecarAccess } from '../workspace/files-connections.ts';
import { Seeding } from '../workspace/seed.ts';
import { StorageLimits } from '../workspace/storage-limits.ts';
import { Changes } from './changes.ts';
import { SessionCreation } from './creation.ts';
import { Execs } from './execs.ts';
import { idleTimes } from './idle.ts';
import { IdleClock } from './idle-clock.ts';
import type { Ids } from './ids.ts';
import { Lanes } from './lanes.ts';
import { Lifecycle } from './lifecycle.ts';
import { LiveThings } from './live.ts';
import { Observations } from './observations.ts';
import { Reconciler } from './reconciler.ts';
import { SessionRecords } from './records.ts';
import { Removal, type Removed } from './removal.ts';
import { type Resumed, type ResumeRequest, Resumes } from './resumes.ts';
import { Sidecars } from './sidecars.ts';
import { SessionViews } from './session-views.ts';
import { workspaceSpec } from './spec.ts';
import { Terminals } from './terminals.ts';
import { TurnQueue } from './turn-queue.ts';
import { TurnRecords } from './turn-records.ts';
import { type TurnRequest, TurnRequests } from './turn-requests.ts';
import { iso } from './view.ts';

/** How long a forced stop waits for turns to end. */
const QUIET_MS = 30_000;

export interface SessionServiceOptions {
  readonly database: Database;
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly events: EventLog;
  readonly output: TurnOutput;
  readonly engine: Engine;
  readonly egress: Egress;
  readonly policies: Pick<Policies, 'forgetSession'>;
  readonly reserve: Reserve;
  readonly snapshots: Snapshots;
  /** The file of the thread that compares lines. */
  readonly lineWorker: string;
  readonly stores: LineageStores;
  readonly artifacts: Artifacts;
  readonly home: Pick<Home, 'deploy' | 'store'>;
  readonly ids: Ids;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/** What people may change about a session. */
export interface SessionLabels {
  readonly name?: string | undefined;
  readonly pinned?: boolean | undefined;
  readonly starred?: boolean | undefined;
  readonly archived?: boolean | undefined;
  readonly tags?: string[] | undefined;
  readonly model?: string | null | undefined;
}

/** Sessions as clients know them. Put together here from its parts; `start` before the first request, `close` after the last. */
export class SessionService {
  readonly #options: SessionServiceOptions;
  readonly #records: SessionRecords;
  readonly #lifecycle: Lifecycle;
  readonly #sidecars: Sidecars;
  readonly #observations: Observations;
  readonly #live: LiveThings;
  readonly #lanes = new Lanes();
  readonly #queue: TurnQueue;
  readonly #reconciler: Reconciler;
  readonly #idle: IdleClock;
  readonly #removal: Removal;
  readonly #views: SessionViews;
  readonly #creation: SessionCreation;
  readonly #requests: TurnRequests;
  readonly #resumes: Resumes;
  readonly #background = new Set<Promise<void>>();
  readonly changes = new Changes();
  readonly execs: Execs;
  readonly terminals: Terminals;
  readonly limits: StorageLimits;
  readonly snapshots: SnapshotService;
  readonly comparisons: Comparisons;
  readonly upkeep: SnapshotUpkeep;
  readonly takes: Takes;
  readonly restores: Restores;
  readonly forks: Forks;

  constructor(options: SessionServiceOptions) {
    this.#options = options;
    const { database, sessions, turns, profiles, operations, events, output, engine, ids, log, now } =
      options;
    this.#views = new SessionViews({ sessions, turns, profiles, events, engine });
    const records = new SessionRecords(database, sessions, events, now);
    const lanes = this.#lanes;
    const live = new LiveThings((sessionId) => this.#touched(sessionId));
    const sidecars = new Sidecars(engine, now, (sessionId) => options.egress.look(sessionId, false));
    const observations = new Observations(engine);
    this.#observations = observations;
    const seeding = new Seeding({
      home: options.home,
      database,
      operations,
      profiles,
      events,
      dial: (sessionId) => engine.dial(sessionId),
    });
    const freezing = new Freezing({
      engine,
      observations,
      freezes: new Freezes(database),
      log: log.room('freezing'),
    });
    this.#creation = new SessionCreation({
      database,
      sessions,
      records,
      profiles,
      operations,
      events,
      engine,
      seeding,
      restores: { intend: (sessionId, snapshot) => this.restores.intend(sessionId, snapshot) },
      ids,
      now,
      log,
    });
    const lifecycle = new Lifecycle({
      seeding,
      egress: options.egress,
      engine,
      records,
      profiles,
      sidecars,
      observations,
      lanes,
      live,
      now,
      finishEarlier: async (sessionId) => {
        await freezing.thawLeft(sessionId);
        await this.#removal.finishInLane(sessionId);
        await this.restores.finishInLane(sessionId);
      },
    });
    const changes = this.changes;
    const turnRecords = new TurnRecords({
      database,
      turns,
      events,
      sessions: records,
      output,
      live,
      changes,
      now,
    });
    this.#records = records;
    this.#live = live;
    this.#sidecars = sidecars;
    this.#lifecycle = lifecycle;
    this.#queue = new TurnQueue({
      database,
      turns,
      events,
      records: turnRecords,
      sessions: records,
      output,
      lifecycle,
      live,
      changes,
      ids,
      now,
      log: log.room('turns'),
      profileOf: (turn) => profiles.existing(records.get(turn.sessionId).profile).config,
      drained: (sessionId) => this.#drained(sessionId),
      beforeTurn: (session, signal) => this.snapshots.beforeTurn(session, signal),
    });
    this.execs = new Execs({ engine, lifecycle, records, events, live, ids, now, log: log.room('execs') });
    this.terminals = new Terminals({
      database,
      rows: new TerminalRows(database),
      lifecycle,
      records,
      live,
      ids,
      now,
      log: log.room('terminals'),
      patienceOf: (sessionId) => {
        const row = records.peek(sessionId);
        const profile = row === null ? null : profiles.get(row.profile);
        return profile === null ? DEFAULTS.idle.stop : idleTimes(profile.config).stop;
      },
      ended: (sessionId) => this.#drained(sessionId),
    });
    this.#removal = new Removal({
      engine,
      database,
      operations,
      records,
      events,
      output,
      lifecycle,
      sidecars,
      lanes,
      reserve: options.reserve,
      now,
      log: log.room('removal'),
      quiet: (sessionId) => this.#quiet(sessionId),
      seedAgain: (sessionId) => {
        const profile = profiles.get(records.get(sessionId).profile);
        if (profile !== null) seeding.intend(sessionId, profile.config);
        this.restores.drop(sessionId);
        this.limits.forget(sessionId);
      },
      seedNever: (sessionId) => {
        seeding.drop(sessionId);
        this.restores.drop(sessionId);
        const row = records.peek(sessionId);
        if (row !== null) this.snapshots.forgetSession(row);
        options.policies.forgetSession(sessionId);
        this.limits.forget(sessionId);
      },
      alone: (sessionId, act) => this.takes.alone(sessionId, act),
      keepLast: async (row) => {
        if (!row.throwaway) await this.snapshots.beforeDelete(row);
      },
    });
    this.limits = new StorageLimits({
      limitOf: (sessionId) => this.#limitOf(sessionId),
      lastOf: (sessionId) => records.peek(sessionId)?.workspaceBytes ?? null,
      measure: (sessionId) => lifecycle.withSidecar(sessionId, (client) => client.workspaceUsage()),
      biggest: (sessionId, limit) =>
        lifecycle.withSidecar(sessionId, (client) => client.biggestFolders(limit)),
      record: (sessionId, bytes, told) =>
        void records.change(sessionId, { workspaceBytes: bytes }, 'measured', told),
      busy: () => live.sessions(),
      log: log.room('limits'),
    });
    this.takes = new Takes({
      home: options.home,
      database,
      snapshots: options.snapshots,
      stores: options.stores,
      records,
      events,
      operations,
      freezing,
      lanes,
      ids,
      access: this.sidecarAccess,
      limitOf: (sessionId) => this.#limitOf(sessionId),
      now,
    });
    this.snapshots = new SnapshotService({
      database,
      sessions,
      snapshots: options.snapshots,
      stores: options.stores,
      events,
      operations,
      takes: this.takes,
      reserve: options.reserve,
      log: log.room('snapshots'),
      now,
    });
    const held = new HeldRoots(now);
    this.comparisons = new Comparisons({
      stores: options.stores,
      takes: this.takes,
      held,
      findSnapshot: (id, session) => this.snapshots.find(id, session),
      findSession: (reference) => this.snapshots.session(reference),
      lineWorker: options.lineWorker,
    });
    this.upkeep = new SnapshotUpkeep({
      snapshots: options.snapshots,
      sessions,
      stores: options.stores,
      operations,
      held,
      reserve: options.reserve,
      remove: (row, why) => this.snapshots.remove(row, why),
      log: log.room('snapshots'),
      now,
    });
    this.restores = new Restores({
      database,
      operations,
      records,
      events,
      stores: options.stores,
      takes: this.takes,
      service: this.snapshots,
      lifecycle,
      lanes,
      seeding,
      access: this.sidecarAccess,
      refuseLive: (row, what) => {
        if (live.count(row.id) > 0) throw this.#liveConflict(row, what, '--cancel');
      },
      quiet: (sessionId) => this.#quiet(sessionId),
      finishCleans: (sessionId) => this.#removal.finishInLane(sessionId),
      resized: (sessionId) => {
        this.limits.forget(sessionId);
        this.limits.look(sessionId, true);
      },
    });
    this.forks = new Forks({
      database,
      sessions,
      turns,
      profiles,
      operations,
      events,
      output,
      artifacts: options.artifacts,
      creation: this.#creation,
      restores: this.restores,
      ids,
      fill: (sessionId) => this.sidecarAccess.ensure(sessionId),
      undo: (sessionId) => this.#removal.deleteSession(sessionId, 'its files could not be brought'),
    });
    this.#resumes = new Resumes({
      operations,
      lifecycle,
      removal: this.#removal,
      restores: this.restores,
      snapshots: this.snapshots,
    });
    this.#requests = new TurnRequests({
      sessions,
      profiles,
      operations,
      creation: this.#creation,
      queue: this.#queue,
      limits: this.limits,
      removal: this.#removal,
      // Also where its paused turn must end before the new one can run.
      wake: (sessionId) => this.#inBackground(lifecycle.thaw(sessionId)),
    });
    this.#reconciler = new Reconciler({
      engine,
      observations,
      sessions,
      records,
      sidecars,
      lanes,
      live,
      egress: options.egress,
      freezing,
      log: log.room('reconcile'),
      reconnected: () => this.#inBackground(this.#recover()),
      agentGone: (sessionId, why) => {
        this.#queue.agentGone(sessionId, why);
        this.execs.agentGone(sessionId);
        this.terminals.agentGone(sessionId, why);
      },
    });
    this.#idle = new IdleClock({
      sessions,
      profiles,
      lifecycle,
      records,
      live,
      now,
      log: log.room('idle'),
      canPause: () => engine.capabilities().pause !== 'none',
    });
  }

  /** Finds out what is, goes on with what was begun. Unfinished removals go on in the background. */
  async start(): Promise<void> {
    this.#options.reserve.ensure();
    await this.snapshots.start();
    this.upkeep.start();
    // Turns first: a session with a turn to go on with is live, and the first look must not take it for idle.
    this.#queue.recover();
    this.terminals.recover();
    await this.#reconciler.start();
    this.#inBackground(this.#recover());
    // A supervisor that was killed after the last turn of a throw-away did not come to put it away.
    for (const row of this.#options.sessions.all()) if (row.throwaway) this.#drained(row.id);
    this.#idle.start();
    this.limits.start();
  }

  /** Lets go: sandboxes, turns and terminals go on without us, execs end. */
  async close(): Promise<void> {
    await this.#idle.stop();
    await this.limits.close();
    await this.execs.close();
    await this.terminals.leave();
    await this.#queue.leave();
    await this.#reconciler.stop();
    await this.#lanes.drained();
    await Promise.allSettled(this.#background);
    await this.upkeep.close();
    await this.comparisons.close();
    await this.snapshots.close();
    await this.#sidecars.close();
    this.#observations.close();
  }

  find(ref: string): SessionRow {
    return this.#options.sessions.find(ref);
  }

  view(row: SessionRow): Session {
    return this.#views.of(row);
  }

  list(filter: SessionFilter): { sessions: Session[]; nextCursor: string | null } {
    return this.#views.list(filter);
  }

  /** `from`: the id of a snapshot. */
  async create(
    profileName: string,
    name: string | undefined,
    from: string | undefined,
    opId?: string,
  ): Promise<SessionRow> {
    const snapshot = from === undefined ? undefined : this.snapshots.find(from);
    const row = await this.#creation.create(profileName, { name, from: snapshot }, opId);
    this.#touched(row.id);
    if (snapshot !== undefined) await this.forks.filled(row.id);
    return row;
  }

  async fork(snapshot: SnapshotRow, name: string | undefined, opId?: string): Promise<SessionRow> {
    const row = await this.forks.fork(snapshot, name, opId);
    this.#touched(row.id);
    return row;
  }

  async startTurn(request: TurnRequest): Promise<{ turn: Turn; session: Session }> {
    const turn = await this.#requests.start(request);
    return {
      turn: this.#queue.view(this.#queue.get(turn.id)),
      session: this.view(this.#row(turn.sessionId)),
    };
  }

  get turns(): TurnQueue {
    return this.#queue;
  }

  resume(row: SessionRow, request: ResumeRequest): Promise<Resumed> {
    return this.#resumes.resume(row, request);
  }

  pause(row: SessionRow): Promise<SessionRow> {
    return this.#lifecycle.pause(row.id);
  }

  async stop(row: SessionRow, force: boolean): Promise<SessionRow> {
    if (this.#live.count(row.id) > 0) {
      if (!force) throw this.#liveConflict(row, 'stopped');
      await this.#quiet(row.id);
    }
    return this.#lifecycle.stop(row.id, 'stopped');
  }

  /** Stops every session that has containers; their workspaces stay. Returns how many. */
  async stopAll(): Promise<number> {
    const rows = this.#options.sessions.all(['active', 'idle', 'paused']);
    await Promise.all(rows.map((row) => this.stop(row, true)));
    return rows.length;
  }

  update(row: SessionRow, patch: SessionLabels): SessionRow {
    const data = Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined));
    if (Object.keys(data).length === 0) return row;
    return this.#records.change(row.id, data, 'updated', [{ type: 'session.updated', data }]);
  }

  /** As `delete`. The first answer to an `opId` comes before the question who is meant: that session may be gone by now. */
  async deleteNamed(ref: string, force: boolean, opId?: string): Promise<void> {
    const earlier = this.#options.operations.firstAnswer(opId, 'session.delete');
    if (earlier === null) await this.delete(this.find(ref), force, opId);
  }

  async delete(row: SessionRow, force: boolean, opId?: string): Promise<void> {
    if (!force) {
      throw new HoldfastError('confirmation_required', `Session ${row.name} is not deleted without a yes`, {
        why: 'its workspace and everything in it would go; only a last snapshot stays, for a week',
        next: 'repeat it with --force',
      });
    }
    await this.#removal.deleteSession(row.id, 'deleted', opId);
  }

  sessionsOf(profile: string): SessionRow[] {
    return this.#options.sessions.all().filter((row) => row.profile === profile && row.status !== 'deleted');
  }

  async clean(row: SessionRow, force: boolean, opId?: string): Promise<Removed> {
    if (!force) {
      throw new HoldfastError(
        'confirmation_required',
        `The workspace of ${row.name} is not emptied without a yes`,
        {
          why: 'every file in it would be gone for good',
          next: 'repeat it with --force',
        },
      );
    }
    const refuse = (): void => {
      if (this.#live.count(row.id) > 0) throw this.#liveConflict(row, 'cleaned');
    };
    refuse();
    return this.#removal.clean(row.id, refuse, opId);
  }

  async workspaceInfo(row: SessionRow): Promise<WorkspaceInfo & { snapshots: SnapshotUsage }> {
    const usage = await this.#lifecycle.withSidecar(row.id, (client) => client.workspaceUsage());
    const { engine, profiles } = this.#options;
    const spec = workspaceSpec(row);
    const path = engine.workspacePath(spec);
    if (usage.bytes !== row.workspaceBytes) {
      this.#records.change(row.id, { workspaceBytes: usage.bytes }, 'measured', [
        { type: 'workspace.measured', data: { bytes: usage.bytes } },
      ]);
    }
    return {
      sessionId: row.id,
      path,
      volume: engine.workspaceVolume(spec),
      ...usage,
      limit: profiles.get(row.profile)?.config.workspace?.limit ?? null,
      lastUsedAt: iso(row.lastActiveAt),
      snapshots: await this.upkeep.usage(row),
    };
  }

  /** What the rooms that work on files need of a session's sidecar. */
  readonly sidecarAccess: SidecarAccess = {
    ensure: (sessionId) => this.#lifecycle.withSidecar(sessionId, () => Promise.resolve()),
    hold: (sessionId) => this.#sidecars.hold(sessionId),
    dial: (sessionId) => this.#options.engine.dial(sessionId),
  };

  /** Goes on with what an earlier supervisor had begun; what cannot be finished now is tried again at the session's next use. */
  async #recover(): Promise<void> {
    await this.#removal.recover();
    for (const sessionId of this.restores.unfinished()) {
      await this.sidecarAccess.ensure(sessionId).catch((error: unknown) => {
        const why = HoldfastError.from(error).sentence;
        this.#options.log.warn('a restore stays unfinished', { session: sessionId, why });
      });
    }
  }

  #row(sessionId: string): SessionRow {
    const row = this.#records.peek(sessionId);
    if (row === null) throw new HoldfastError('not_found', `There is no session ${sessionId}`);
    return row;
  }

  #limitOf(sessionId: string): number | null {
    const row = this.#records.peek(sessionId);
    return row === null ? null : (this.#options.profiles.get(row.profile)?.config.workspace?.limit ?? null);
  }

  #liveConflict(row: SessionRow, what: string, option = '--force'): HoldfastError {
    return new HoldfastError('conflict', `Session ${row.name} is not ${what}`, {
      why: `${this.#live.describe(row.id)} still running in it`,
      next: `wait, cancel it, or repeat it with ${option}`,
      details: { live: this.#live.count(row.id) },
    });
  }

  async #quiet(sessionId: string): Promise<void> {
    await Promise.all([
      this.#queue.cancelAll(sessionId, QUIET_MS),
      this.execs.endAll(sessionId),
      this.terminals.endAll(sessionId),
    ]);
  }

  #drained(sessionId: string): void {
    const row = this.#records.peek(sessionId);
    if (row?.throwaway === false && row.status !== 'deleted') this.limits.look(sessionId, true);
    if (row?.throwaway !== true || row.status === 'deleted' || this.#live.count(sessionId) > 0) return;
    this.#inBackground(this.#removal.deleteSession(sessionId, 'its turn has ended'));
  }

  #touched(sessionId: string): void {
    const row = this.#records.peek(sessionId);
    if (row !== null && row.status !== 'deleted') this.#idle.touch(row);
  }

  #inBackground(work: Promise<void>): void {
    const guarded = work.catch((error: unknown) => {
      this.#options.log.warn('background work failed', { why: HoldfastError.from(error).sentence });
    });
    this.#background.add(guarded);
    void guarded.finally(() => this.#background.delete(guarded));
  }
}
