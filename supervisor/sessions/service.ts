import type { Session, Turn, WorkspaceInfo } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { driverFor } from '../agents/drivers.ts';
import type { Log } from '../daemon/logs.ts';
import type { Engine } from '../engine/port.ts';
import { failpoint } from '../failpoints.ts';
import type { EventLog } from '../history/events.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import type { Database } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import type { Operations, Replay } from '../store/operations.ts';
import type { ProfileRow, Profiles } from '../store/profiles.ts';
import type { Reserve } from '../store/reserve.ts';
import type { SessionFilter, SessionRow, Sessions } from '../store/sessions.ts';
import type { Turns } from '../store/turns.ts';
import type { SidecarAccess } from '../workspace/files-connections.ts';
import { Seeding } from '../workspace/seed.ts';
import { StorageLimits } from '../workspace/storage-limits.ts';
import { Changes } from './changes.ts';
import { Execs } from './execs.ts';
import { IdleClock } from './idle-clock.ts';
import { idleTimes } from './idle.ts';
import type { Ids } from './ids.ts';
import { Lanes } from './lanes.ts';
import { Lifecycle, type Ready } from './lifecycle.ts';
import { LiveThings } from './live.ts';
import { Observations } from './observations.ts';
import { Reconciler } from './reconciler.ts';
import { SessionRecords } from './records.ts';
import { Removal, type Removed } from './removal.ts';
import { Sidecars } from './sidecars.ts';
import { workspaceSpec } from './spec.ts';
import { TurnQueue } from './turn-queue.ts';
import { TurnRecords } from './turn-records.ts';
import { iso, sessionView } from './view.ts';

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
  readonly reserve: Reserve;
  readonly home: Pick<Home, 'deploy'>;
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

export interface TurnRequestInput {
  readonly session?: string | undefined;
  readonly profile?: string | undefined;
  readonly name?: string | undefined;
  readonly input: Buffer;
  readonly timeoutMs?: number | undefined;
  readonly opId?: string | undefined;
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
  readonly #seeding: Seeding;
  readonly #background = new Set<Promise<void>>();
  readonly changes = new Changes();
  readonly execs: Execs;
  readonly limits: StorageLimits;

  constructor(options: SessionServiceOptions) {
    this.#options = options;
    const { database, sessions, turns, profiles, operations, events, output, engine, ids, log, now } =
      options;
    const records = new SessionRecords(database, sessions, events, now);
    const lanes = this.#lanes;
    const live = new LiveThings((sessionId) => this.#touched(sessionId));
    const sidecars = new Sidecars(engine, now);
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
    this.#seeding = seeding;
    const lifecycle = new Lifecycle({
      seeding,
      engine,
      records,
      profiles,
      sidecars,
      observations,
      lanes,
      live,
      now,
      finishEarlier: (sessionId) => this.#removal.finishInLane(sessionId),
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
      profileOf: (turn) => this.#profile(records.get(turn.sessionId).profile).config,
      drained: (sessionId) => this.#drained(sessionId),
    });
    this.execs = new Execs({ engine, lifecycle, records, events, live, ids, now, log: log.room('execs') });
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
        this.limits.forget(sessionId);
      },
      seedNever: (sessionId) => {
        seeding.drop(sessionId);
        this.limits.forget(sessionId);
      },
    });
    this.limits = new StorageLimits({
      limitOf: (sessionId) => {
        const row = records.peek(sessionId);
        return row === null ? null : (profiles.get(row.profile)?.config.workspace?.limit ?? null);
      },
      lastOf: (sessionId) => records.peek(sessionId)?.workspaceBytes ?? null,
      measure: (sessionId) => lifecycle.withSidecar(sessionId, (client) => client.workspaceUsage()),
      biggest: (sessionId, limit) =>
        lifecycle.withSidecar(sessionId, (client) => client.biggestFolders(limit)),
      record: (sessionId, bytes, told) =>
        void records.change(sessionId, { workspaceBytes: bytes }, 'measured', told),
      busy: () => live.sessions(),
      log: log.room('limits'),
    });
    this.#reconciler = new Reconciler({
      engine,
      observations,
      sessions,
      records,
      sidecars,
      lanes,
      live,
      log: log.room('reconcile'),
      reconnected: () => this.#inBackground(this.#removal.recover()),
      agentGone: (sessionId, why) => {
        this.#queue.agentGone(sessionId, why);
        this.execs.agentGone(sessionId);
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
    // Turns first: a session with a turn to go on with is live, and the first look must not take it for idle.
    this.#queue.recover();
    await this.#reconciler.start();
    this.#inBackground(this.#removal.recover());
    // A supervisor that was killed after the last turn of a throw-away did not come to put it away.
    for (const row of this.#options.sessions.all()) if (row.throwaway) this.#drained(row.id);
    this.#idle.start();
    this.limits.start();
  }

  /** Lets go: sandboxes and turns go on without us, execs end. */
  async close(): Promise<void> {
    await this.#idle.stop();
    await this.limits.close();
    await this.execs.close();
    await this.#queue.leave();
    await this.#reconciler.stop();
    await this.#lanes.drained();
    await Promise.allSettled(this.#background);
    await this.#sidecars.close();
    this.#observations.close();
  }

  find(ref: string): SessionRow {
    return this.#options.sessions.find(ref);
  }

  view(row: SessionRow): Session {
    const { turns, profiles } = this.#options;
    return this.#view(row, profiles.get(row.profile), {
      running: turns.runningOf(row.id)?.id ?? null,
      queued: turns.queuedOf(row.id),
    });
  }

  list(filter: SessionFilter): { sessions: Session[]; nextCursor: string | null } {
    const { sessions, turns, profiles, engine } = this.#options;
    const page = sessions.list(filter);
    const live = turns.live();
    const deployed = new Map(profiles.list().map((profile) => [profile.name, profile]));
    const { reachable } = engine.status();
    const none = { running: null, queued: 0 };
    return {
      sessions: page.rows.map((row) =>
        this.#view(row, deployed.get(row.profile) ?? null, live.get(row.id) ?? none, reachable),
      ),
      nextCursor: page.nextCursor,
    };
  }

  #view(
    row: SessionRow,
    profile: ProfileRow | null,
    turns: { readonly running: string | null; readonly queued: number },
    engineReachable = this.#options.engine.status().reachable,
  ): Session {
    const expires = row.status !== 'deleted' && profile !== null;
    return sessionView(
      { ...row, expiresAt: expires ? row.lastActiveAt + idleTimes(profile.config).expire : row.expiresAt },
      {
        engineReachable,
        runningTurn: turns.running,
        queuedTurns: turns.queued,
        lastSeq: this.#options.events.last(row.id).seq,
      },
    );
  }

  create(profileName: string, name: string | undefined, opId?: string): Promise<SessionRow> {
    return this.#create(this.#profile(profileName), name, false, opId);
  }

  async #create(
    profile: ProfileRow,
    name: string | undefined,
    throwaway: boolean,
    opId?: string,
  ): Promise<SessionRow> {
    const { engine } = this.#options;
    const { result, replayed } = this.#once(opId, 'session.create', () => ({
      sessionId: this.#insert(profile, name, throwaway).id,
    }));
    const row = this.#row(result.sessionId);
    if (replayed) return row;
    await failpoint('create.after-row');
    await engine.createWorkspace(workspaceSpec(row)).catch((error: unknown) => {
      // Made anew at the first dispatch: a session can be created while the engine is away.
      this.#options.log.info('workspace is made later', {
        session: row.id,
        why: HoldfastError.from(error).sentence,
      });
    });
    await failpoint('create.after-workspace');
    this.#idle.touch(row);
    return row;
  }

  /** Does `act` and remembers its answer under the `opId`, in one transaction: after a crash both are there or neither. */
  #once<T extends Record<string, string>>(
    opId: string | undefined,
    kind: 'session.create' | 'turn.start',
    act: () => T,
  ): { result: T; replayed: boolean } {
    const { database, operations } = this.#options;
    if (opId === undefined) return { result: database.transaction(act), replayed: false };
    return database.transaction(() => {
      const begun = operations.begin({ opId, kind, sessionId: null, data: {} });
      if ('replay' in begun) {
        if ('error' in begun.replay) throw begun.replay.error;
        return { result: begun.replay.result as T, replayed: true };
      }
      const result = act();
      operations.finish(begun.operation, result);
      return { result, replayed: false };
    });
  }

  #insert(profile: ProfileRow, name: string | undefined, throwaway: boolean): SessionRow {
    const { sessions, events, engine, ids, now } = this.#options;
    const id = ids.next('ses');
    const owner = this.#owner();
    const persistent = profile.config.persistence === 'persistent';
    const at = now();
    const backing =
      profile.config.workspace?.backing ?? (engine.capabilities().localPaths ? 'directory' : 'volume');
    sessions.insert({
      ...UNMARKED,
      id,
      name: name ?? id,
      profile: profile.name,
      status: 'created',
      persistent,
      throwaway,
      backing,
      ...owner,
      createdAt: at,
      lastActiveAt: at,
      statusSince: at,
    });
    this.#seeding.intend(id, profile.config);
    events.append(id, [
      {
        type: 'session.created',
        data: { name: name ?? id, profile: profile.name, persistent, throwaway, backing, ...owner },
      },
    ]);
    return this.#row(id);
  }

  /** The session that a turn by profile goes to, made if it is not there. */
  async #sessionFor(request: TurnRequestInput): Promise<SessionRow> {
    if (request.session !== undefined) return this.find(request.session);
    if (request.profile === undefined) {
      throw new HoldfastError('invalid_params', 'A turn needs a session or a profile', {
        next: 'name one of them',
      });
    }
    const profile = this.#profile(request.profile);
    const name = request.name ?? (profile.config.persistence === 'persistent' ? 'default' : undefined);
    if (name === undefined) return this.#create(profile, undefined, true);
    const there = this.#options.sessions.byName(profile.name, name);
    if (there !== null) return there;
    try {
      return await this.#create(profile, name, false);
    } catch (error) {
      // Two first requests at once: the other one made it.
      const now = this.#options.sessions.byName(profile.name, name);
      if (now === null) throw error;
      return now;
    }
  }

  async startTurn(request: TurnRequestInput): Promise<{ turn: Turn; session: Session }> {
    const earlier =
      request.opId === undefined ? null : this.#options.operations.answered(request.opId, 'turn.start');
    // Before a session is made for it: a request that was answered, or that the agent cannot take, makes none.
    if (earlier === null && request.profile !== undefined) {
      driverFor(this.#profile(request.profile).config.agent).checkInput(request.input);
    }
    const row = earlier === null ? await this.#sessionFor(request) : this.#rowOf(earlier);
    if (earlier === null) await this.limits.demand(row.id, `Session ${row.name} takes no turn`);
    if (earlier === null && this.#removal.isDeleting(row.id)) {
      throw new HoldfastError('conflict', `Session ${row.name} takes no more turns`, {
        why: 'it is being deleted',
        next: 'use another session',
      });
    }
    const { result, replayed } = this.#once(request.opId, 'turn.start', () => ({
      turnId: this.#queue.enqueue(row, this.#profile(row.profile).config, request.input, request.timeoutMs)
        .id,
    }));
    const turn = this.#queue.get(result.turnId);
    if (!replayed) {
      await this.#queue.kick(row.id);
      if (row.status === 'paused') this.#inBackground(this.#wake(row.id));
    }
    return { turn: this.#queue.view(turn), session: this.view(this.#row(turn.sessionId)) };
  }

  /** The session of a turn that was started before. */
  #rowOf(replay: Replay): SessionRow {
    if ('error' in replay) throw replay.error;
    return this.#row(this.#queue.get((replay.result as { turnId: string }).turnId).sessionId);
  }

  /** A message to a paused session wakes it, also where its paused turn must end before the new one can run. */
  async #wake(sessionId: string): Promise<void> {
    await this.#lifecycle.thaw(sessionId);
  }

  get turns(): TurnQueue {
    return this.#queue;
  }

  async resume(row: SessionRow): Promise<Ready> {
    return this.#lifecycle.dispatch(row.id);
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
    const earlier = opId === undefined ? null : this.#options.operations.answered(opId, 'session.delete');
    if (earlier === null) await this.delete(this.find(ref), force, opId);
    else if ('error' in earlier) throw earlier.error;
  }

  async delete(row: SessionRow, force: boolean, opId?: string): Promise<void> {
    if (!force) {
      throw new HoldfastError('confirmation_required', `Session ${row.name} is not deleted without a yes`, {
        why: 'its workspace and everything in it would be gone for good',
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

  async workspaceInfo(row: SessionRow): Promise<WorkspaceInfo> {
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
    };
  }

  /** What the rooms that work on files need of a session's sidecar. */
  readonly sidecarAccess: SidecarAccess = {
    ensure: (sessionId) => this.#lifecycle.withSidecar(sessionId, () => Promise.resolve()),
    hold: (sessionId) => this.#sidecars.hold(sessionId),
    dial: (sessionId) => this.#options.engine.dial(sessionId),
  };

  #owner(): { uid: number; gid: number } {
    const uid = process.getuid?.() ?? 1000;
    // Where the engine's files are not ours, the image's own user is the one with a passwd line.
    if (!this.#options.engine.capabilities().localPaths) return { uid: 1000, gid: 1000 };
    if (uid !== 0) return { uid, gid: process.getgid?.() ?? uid };
    const own = this.#options.sessions.allocateUid();
    return { uid: own, gid: own };
  }

  #profile(name: string): ProfileRow {
    const profile = this.#options.profiles.get(name);
    if (profile !== null) return profile;
    const names = this.#options.profiles.list().map((one) => one.name);
    throw new HoldfastError('not_found', `There is no profile ${name}`, {
      why: names.length === 0 ? 'nothing is deployed yet' : `deployed are: ${names.slice(0, 20).join(', ')}`,
      next: 'deploy it with `holdfast deploy DIR`',
    });
  }

  #row(sessionId: string): SessionRow {
    const row = this.#records.peek(sessionId);
    if (row === null) throw new HoldfastError('not_found', `There is no session ${sessionId}`);
    return row;
  }

  #liveConflict(row: SessionRow, what: string): HoldfastError {
    return new HoldfastError('conflict', `Session ${row.name} is not ${what}`, {
      why: `${this.#live.describe(row.id)} still running in it`,
      next: 'wait, cancel it, or repeat it with --force',
      details: { live: this.#live.count(row.id) },
    });
  }

  async #quiet(sessionId: string): Promise<void> {
    await Promise.all([this.#queue.cancelAll(sessionId, QUIET_MS), this.execs.endAll(sessionId)]);
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

/** What a new session is not yet. */
const UNMARKED = {
  generation: 0,
  codeVersion: null,
  expiresAt: null,
  deletedAt: null,
  pinned: false,
  starred: false,
  archived: false,
  tags: [],
  model: null,
  about: null,
  workspaceBytes: null,
} satisfies Partial<SessionRow>;
