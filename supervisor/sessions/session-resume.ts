import type { ResumeSource } from '../../protocol/snapshots.ts';
import { type ChangeRequest, type Restores, requirePersistent } from '../snapshots/restores.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { SessionMemory } from '../conversation/session-memory.ts';
import type { Operations } from '../store/operations.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { ReadySandbox } from '../sandboxes/dispatches.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import { CLEAN, CleanedSchema, type Removal, type StartedOver } from './removal.ts';

export interface ResumeRequest extends ChangeRequest {
  readonly from: ResumeSource;
  readonly opId?: string | undefined;
}

export interface Resumed {
  readonly ready: ReadySandbox;
  /** The snapshot before the change of the workspace; null without a change, or if it failed and was forced. */
  readonly undo: string | null;
}

export interface ResumesOptions {
  readonly operations: Operations;
  readonly lifecycle: Lifecycle;
  readonly removal: Removal;
  readonly restores: Restores;
  readonly snapshots: SnapshotService;
  readonly sessionMemory: Pick<SessionMemory, 'show'>;
  /** Prepares again what workspaces of the profile begin with, where that can have changed since. */
  readonly renewTemplate: (profile: string, request: ChangeRequest) => Promise<void>;
}

/** Resumes a session with its files as they are, with an empty workspace, with its memory alone, or from a snapshot. */
export class SessionResume {
  readonly #options: ResumesOptions;

  constructor(options: ResumesOptions) {
    this.#options = options;
  }

  async resume(session: SessionRow, request: ResumeRequest): Promise<Resumed> {
    const undo = await this.#prepare(session, request);
    return { ready: await this.#options.lifecycle.dispatch(session.id), undo };
  }

  async #prepare(session: SessionRow, request: ResumeRequest): Promise<string | null> {
    const { restores, snapshots } = this.#options;
    const { from } = request;
    switch (from) {
      case 'files':
        return null;
      case 'clean':
        requirePersistent(session, 'reset');
        if (this.#options.operations.findResult(request.opId, CLEAN) === null)
          await this.#options.renewTemplate(session.profile, request);
        return await this.#reset(session, request);
      case 'memory':
        return await this.#reset(session, request, () => ({
          memory: this.#options.sessionMemory.show(session.id)?.version ?? null,
        }));
      default: {
        const snapshot = snapshots.find(from.slice('snapshot:'.length), session.id);
        return (await restores.restore(session, { ...request, snapshot, path: null, withState: false })).undo;
      }
    }
  }

  /** `startOver`: asked for once nothing runs in the session any more. */
  async #reset(
    session: SessionRow,
    request: ResumeRequest,
    startOver?: () => StartedOver,
  ): Promise<string | null> {
    const { operations, restores, removal } = this.#options;
    const { opId } = request;
    const earlier = operations.findResult(opId, CLEAN);
    if (earlier !== null) return CleanedSchema.parse(earlier.result).undo;
    return await restores.changeWorkspace(session, 'before-reset', 'reset', request, async (row, undo) => {
      await removal.resetLocked(row.id, undo?.id ?? null, { opId, startedOver: startOver?.() });
      return undo?.id ?? null;
    });
  }
}
