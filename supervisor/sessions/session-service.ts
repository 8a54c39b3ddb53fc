import type { Session, Turn, WorkspaceInfo } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { ProfileNameSchema } from '../../protocol/profile.ts';
import type { SnapshotUsage } from '../../protocol/snapshots.ts';
import type { Engine } from '../engine/port.ts';
import type { SnapshotCallOptions } from '../snapshots/connection.ts';
import type { Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SessionFilter, SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import type { IdleTimer } from '../sandboxes/idle-timer.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { Hydration } from '../snapshots/hydration.ts';
import type { SnapshotMaintenance } from '../snapshots/maintenance.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { TurnChangeRecords } from '../snapshots/turn-changes.ts';
import type { TurnQueue } from '../turns/turn-queue.ts';
import type { Forks } from './forks.ts';
import type { Removal, Removed } from './removal.ts';
import type { SessionCreation } from './session-creation.ts';
import type { SessionGate } from './session-gate.ts';
import type { SessionViews } from './session-views.ts';
import type { Resumed, ResumeRequest, SessionResume } from './session-resume.ts';
import { workspaceSpec } from '../sandboxes/sandbox-spec.ts';
import type { TurnEdit, TurnRequest, TurnRequests } from './turn-requests.ts';
import { isoTime } from '../base/iso-time.ts';

export interface SessionServiceOptions {
  readonly sessions: Sessions;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly engine: Pick<Engine, 'workspacePath' | 'workspaceVolume'>;
  readonly records: SessionRecords;
  readonly views: SessionViews;
  readonly creation: SessionCreation;
  readonly forks: Forks;
  readonly removal: Removal;
  readonly resume: SessionResume;
  readonly requests: TurnRequests;
  readonly queue: TurnQueue;
  readonly activeWork: ActiveWork;
  readonly lifecycle: Lifecycle;
  readonly idleTimer: Pick<IdleTimer, 'reschedule'>;
  readonly snapshotService: SnapshotService;
  readonly turnChanges: Pick<TurnChangeRecords, 'finishSnapshot'>;
  readonly hydration: Hydration;
  readonly maintenance: Pick<SnapshotMaintenance, 'usage'>;
  readonly gate: Pick<SessionGate, 'movedError' | 'stateOf'>;
  /** Ends every turn, exec and terminal of a session. */
  readonly drain: (sessionId: string, why: string) => Promise<void>;
}

/** What clients may change about a session. */
export interface SessionPatch {
  readonly name?: string | undefined;
  readonly pinned?: boolean | undefined;
  readonly starred?: boolean | undefined;
  readonly archived?: boolean | undefined;
  readonly tags?: string[] | undefined;
  readonly model?: string | null | undefined;
}

/** What clients may ask of sessions. */
export class SessionService {
  readonly #options: SessionServiceOptions;

  constructor(options: SessionServiceOptions) {
    this.#options = options;
  }

  /** Errors: `not_found`, which says where a session has moved; `ambiguous_name`. */
  find(ref: string): SessionRow {
    const { sessions, gate } = this.#options;
    let row: SessionRow;
    try {
      row = sessions.find(ref);
    } catch (error) {
      const isGone = error instanceof HoldfastError && error.code === 'not_found';
      throw (isGone ? gate.movedError(ref) : null) ?? error;
    }
    // Its workspace is about to be deleted.
    const left = gate.stateOf(row.id)?.state === 'left' ? gate.movedError(row.id) : null;
    if (left !== null) throw left;
    return row;
  }

  /**
   * As `find`, and the name of a persistent profile stands for its session `default` when no session has that name. For requests that
   * only read; a request that deletes names the session itself.
   */
  findOrDefault(ref: string): SessionRow {
    const { sessions, profiles } = this.#options;
    try {
      return this.find(ref);
    } catch (error) {
      const profile = ProfileNameSchema.safeParse(ref).success ? profiles.get(ref) : null;
      if (!(error instanceof HoldfastError) || error.code !== 'not_found' || profile === null) throw error;
      const row = sessions.getByName(ref, 'default');
      if (row !== null) return row;
      throw new HoldfastError('not_found', `The profile ${ref} has no session named default`, {
        why:
          profile.config.persistence === 'persistent'
            ? 'its first turn without --session creates it'
            : 'it is ephemeral: each turn without --session has a session of its own',
        next: `see \`holdfast session list --profile ${ref}\``,
        cause: error,
      });
    }
  }

  view(row: SessionRow): Session {
    return this.#options.views.of(row);
  }

  list(filter: SessionFilter): { sessions: Session[]; nextCursor: string | null } {
    return this.#options.views.list(filter);
  }

  /** `from`: the id of a snapshot. */
  async create(
    profileName: string,
    name: string | undefined,
    from: string | undefined,
    opId?: string,
  ): Promise<SessionRow> {
    const snapshot = from === undefined ? undefined : this.#options.snapshotService.find(from);
    const row = await this.#options.creation.create(profileName, { name, from: snapshot }, opId);
    this.#options.idleTimer.reschedule(row.id);
    if (snapshot !== undefined) this.#options.hydration.start(row.id);
    return row;
  }

  async fork(snapshot: SnapshotRow, name: string | undefined, opId?: string): Promise<SessionRow> {
    const row = await this.#options.forks.fork(snapshot, name, opId);
    this.#options.idleTimer.reschedule(row.id);
    return row;
  }

  /** Settles when the workspace has all files of the snapshot that it begins with. */
  async waitUntilHydrated(sessionId: string, options: SnapshotCallOptions): Promise<void> {
    const { hydration } = this.#options;
    if (hydration.stateOf(sessionId) !== null) await hydration.waitFor(sessionId, options);
  }

  async startTurn(request: TurnRequest): Promise<{ turn: Turn; session: Session }> {
    const { requests, queue } = this.#options;
    const turn = await requests.start(request);
    return {
      turn: queue.view(queue.get(turn.id)),
      session: this.view(this.#row(turn.sessionId)),
    };
  }

  editTurn(edit: TurnEdit): Turn {
    const { requests, queue } = this.#options;
    return queue.view(requests.edit(edit));
  }

  resume(row: SessionRow, request: ResumeRequest): Promise<Resumed> {
    return this.#options.resume.resume(row, request);
  }

  pause(row: SessionRow): Promise<SessionRow> {
    return this.#options.lifecycle.pause(row.id);
  }

  async stop(row: SessionRow, force: boolean): Promise<SessionRow> {
    const { activeWork, drain, lifecycle, turnChanges } = this.#options;
    if (!force) activeWork.requireIdle(row, 'stopped');
    else if (activeWork.count(row.id) > 0) await drain(row.id, 'its session was stopped');
    await turnChanges.finishSnapshot(row.id);
    return lifecycle.stop(row.id, 'stopped');
  }

  /** Stops every session that has containers. Workspaces stay. Returns the number of sessions. */
  async stopAll(): Promise<number> {
    const rows = this.#options.sessions.all(['active', 'idle', 'paused']);
    await Promise.all(rows.map((row) => this.stop(row, true)));
    return rows.length;
  }

  update(row: SessionRow, patch: SessionPatch): SessionRow {
    const data = Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined));
    if (Object.keys(data).length === 0) return row;
    return this.#options.records.change(row.id, data, 'updated', [{ type: 'session.updated', data }]);
  }

  /** As `delete`, by name. A repeated `opId` is answered first, because its session is gone by then. */
  async deleteNamed(ref: string, force: boolean, opId?: string): Promise<void> {
    const earlier = this.#options.operations.findResult(opId, 'session.delete');
    if (earlier === null) await this.delete(this.find(ref), force, opId);
  }

  async delete(row: SessionRow, force: boolean, opId?: string): Promise<void> {
    if (!force) {
      throw new HoldfastError('confirmation_required', `Session ${row.name} is not deleted without a yes`, {
        why: 'its workspace would be deleted with everything in it; only a last snapshot is kept, for a week',
        next: 'repeat it with --force',
      });
    }
    await this.#options.removal.deleteSession(row.id, 'deleted', opId);
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
          why: 'every file in it would be deleted permanently',
          next: 'repeat it with --force',
        },
      );
    }
    const requireIdle = (): void => this.#options.activeWork.requireIdle(row, 'cleaned');
    requireIdle();
    await this.#options.turnChanges.finishSnapshot(row.id);
    return this.#options.removal.clean(row.id, requireIdle, opId);
  }

  async workspaceInfo(row: SessionRow): Promise<WorkspaceInfo & { snapshots: SnapshotUsage }> {
    const usage = await this.#options.lifecycle.withSidecar(row.id, (client) => client.workspaceUsage());
    const { engine, profiles } = this.#options;
    const spec = workspaceSpec(row);
    const path = engine.workspacePath(spec);
    if (usage.bytes !== row.workspaceBytes) {
      this.#options.records.change(row.id, { workspaceBytes: usage.bytes }, 'measured', [
        { type: 'workspace.measured', data: { bytes: usage.bytes } },
      ]);
    }
    return {
      sessionId: row.id,
      path,
      volume: engine.workspaceVolume(spec),
      ...usage,
      limit: profiles.get(row.profile)?.config.workspace?.limit ?? null,
      lastUsedAt: isoTime(row.lastActiveAt),
      snapshots: await this.#options.maintenance.usage(row),
    };
  }

  #row(sessionId: string): SessionRow {
    const row = this.#options.records.peek(sessionId);
    if (row === null) throw new HoldfastError('not_found', `There is no session ${sessionId}`);
    return row;
  }
}
