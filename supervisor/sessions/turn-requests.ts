import type { AttachmentRef } from '../../protocol/attachments.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { TurnRow } from '../store/turns.ts';
import type { StorageLimitGroup } from '../workspace/storage-limit-group.ts';
import type { StorageLimits } from '../workspace/storage-limits.ts';
import type { SessionCreation } from './session-creation.ts';
import type { Removal } from './removal.ts';
import type { SessionGate } from './session-gate.ts';
import type { TurnQueue } from '../turns/turn-queue.ts';

export interface TurnRequest {
  readonly session?: string | undefined;
  readonly profile?: string | undefined;
  readonly name?: string | undefined;
  readonly input: Buffer;
  readonly attachments?: readonly AttachmentRef[] | undefined;
  readonly timeoutMs?: number | undefined;
  readonly opId?: string | undefined;
}

export interface TurnEdit {
  readonly turn: string;
  readonly input: Buffer;
  /** Undefined: those that it has. */
  readonly attachments?: readonly AttachmentRef[] | undefined;
  readonly opId?: string | undefined;
}

export interface TurnRequestsOptions {
  readonly sessions: Sessions;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly creation: SessionCreation;
  readonly queue: TurnQueue;
  readonly limits: Pick<StorageLimits, 'requireSpace'>;
  readonly sandboxLimits: Pick<StorageLimitGroup, 'requireSpace'>;
  readonly removal: Pick<Removal, 'isDeleting'>;
  readonly gate: Pick<SessionGate, 'requireOpen'>;
  /** Starts to unpause a session. */
  readonly beginThaw: (sessionId: string) => void;
}

/** Accepts turns: the turn, the session that is created for it, and the result of its `opId` are one transaction. */
export class TurnRequests {
  readonly #options: TurnRequestsOptions;

  constructor(options: TurnRequestsOptions) {
    this.#options = options;
  }

  /** Returns the stored turn. A repeated `opId` returns the first one. */
  async start(request: TurnRequest): Promise<TurnRow> {
    const { operations, profiles, creation, queue, limits, sandboxLimits, beginThaw } = this.#options;
    const existing = this.#isRepeated(request) ? null : this.#find(request);
    if (existing !== null) {
      const what = `Session ${existing.name} accepts no turn`;
      await limits.requireSpace(existing.id, what);
      await sandboxLimits.requireSpace(existing.id, what);
    }
    const { result, replayed } = operations.runOnce(request.opId, 'turn.start', () => {
      // Looked up again: another request may have created the session, or it was deleted while it was measured.
      const row = this.#find(request) ?? this.#create(request);
      this.#requireNotDeleting(row);
      this.#options.gate.requireOpen(row.id, row.name);
      const { config } = profiles.getOrThrow(row.profile);
      const { input, timeoutMs, attachments } = request;
      return { turnId: queue.enqueue(row, config, input, timeoutMs, attachments).id };
    });
    const turn = queue.get(result.turnId);
    if (replayed) return turn;
    const row = this.#options.sessions.find(turn.sessionId);
    if (existing === null) await creation.createWorkspace(row);
    await queue.start(row.id);
    if (row.status === 'paused') beginThaw(row.id);
    return turn;
  }

  /** Replaces the input of a turn that waits. A repeated `opId` returns the turn as it is by then. */
  edit({ turn, input, attachments, opId }: TurnEdit): TurnRow {
    const { operations, queue } = this.#options;
    const { result } = operations.runOnce(opId, 'turn.edit', () => ({
      turnId: queue.edit(turn, input, attachments).id,
    }));
    return queue.get(result.turnId);
  }

  #isRepeated({ opId }: TurnRequest): boolean {
    return opId !== undefined && this.#options.operations.findReplay(opId, 'turn.start') !== null;
  }

  /** The session of the request; null when it has to be created. */
  #find(request: TurnRequest): SessionRow | null {
    const { sessions, profiles } = this.#options;
    if (request.session !== undefined) return sessions.find(request.session);
    if (request.profile === undefined) {
      throw new HoldfastError('invalid_params', 'A turn needs a session or a profile', {
        next: 'name one of them',
      });
    }
    const name = this.#nameFor(request);
    return name === undefined ? null : sessions.getByName(profiles.getOrThrow(request.profile).name, name);
  }

  #create(request: TurnRequest): SessionRow {
    const name = this.#nameFor(request);
    const profile = this.#options.profiles.getOrThrow(request.profile ?? '');
    return this.#options.creation.insert(profile, { name, throwaway: name === undefined });
  }

  /** Undefined: a single-turn session. */
  #nameFor({ name, profile }: TurnRequest): string | undefined {
    if (name !== undefined) return name;
    const { config } = this.#options.profiles.getOrThrow(profile ?? '');
    return config.persistence === 'persistent' ? 'default' : undefined;
  }

  #requireNotDeleting(row: SessionRow): void {
    if (!this.#options.removal.isDeleting(row.id)) return;
    throw new HoldfastError('conflict', `Session ${row.name} accepts no more turns`, {
      why: 'it is being deleted',
      next: 'use another session',
    });
  }
}
