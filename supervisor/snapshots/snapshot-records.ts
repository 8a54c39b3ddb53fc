import { type SnapshotReason, snapshotReasonRule } from '../../protocol/snapshot-reasons.ts';
import { MAX_MISSING_PATHS } from '../../protocol/snapshots.ts';
import type { Progress } from '../../protocol/wire/shapes.ts';
import type { Ids } from '../base/ids.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Operations } from '../store/operations.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { ScanAttempt } from './consistent-scans.ts';

/** What changed and was stored since the snapshot before. */
export type ScanTotals = Pick<SnapshotRow, 'changedFiles' | 'changedBytes' | 'newBytes'>;

export interface SnapshotRequest {
  readonly reason: SnapshotReason;
  readonly label?: string | undefined;
  readonly pinned?: boolean | undefined;
  /** Create no snapshot of an empty workspace: the result is null. */
  readonly skipIfEmpty?: boolean;
  readonly opId?: string | undefined;
  /** The turn that the snapshot belongs to. */
  readonly turnId?: string;
  /** Whether that turn has begun. Called when the snapshot is complete. */
  readonly isDuringTurn?: () => boolean;
  /** Fail with `sandbox_lost` unless the sidecar runs, instead of starting it. */
  readonly needsSidecar?: boolean;
  /** Called with the snapshot, in the transaction that records it. */
  readonly onRecord?: (row: SnapshotRow) => void;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

export interface CreatedSnapshot {
  readonly row: SnapshotRow;
  /** False: nothing had changed, and `row` is an earlier snapshot. */
  readonly created: boolean;
}

export interface SnapshotRecordsOptions {
  readonly snapshots: Snapshots;
  readonly events: EventLog;
  readonly operations: Operations;
  readonly ids: Ids;
  /** ms since 1970. */
  readonly now: () => number;
}

/** Rows of new snapshots and their events, and when an earlier snapshot serves as the new one. */
export class SnapshotRecords {
  readonly #options: SnapshotRecordsOptions;

  constructor(options: SnapshotRecordsOptions) {
    this.#options = options;
  }

  /**
   * Whether an earlier snapshot of the same tree answers this request. A manual snapshot records the history up to now,
   * because forks copy it: a turn that ended since counts as a change even if it left the files alone.
   */
  isReusable(newest: SnapshotRow, { reason, label, isDuringTurn }: SnapshotRequest): boolean {
    if (label !== undefined) return false;
    // The new snapshot is certainly from before the turn, and the earlier one is not.
    if (newest.duringTurn && isDuringTurn?.() !== true) return false;
    // The agent can have its own thinned out, and so must not take away what a turn or a person relies on.
    const { by } = snapshotReasonRule(reason);
    if (snapshotReasonRule(newest.reason).by === 'agent' && by !== 'agent') return false;
    if (by !== 'person') return true;
    const { sessionId, eventSeq } = newest;
    // The events since then were removed, and a turn can have been among them.
    if (eventSeq < this.#options.events.start(sessionId).seq) return false;
    return (
      this.#options.events.read(sessionId, { after: eventSeq, type: 'turn.ended', limit: 1 }).length === 0
    );
  }

  /** Reuses the newest snapshot because nothing changed. One that a person asks for is theirs from now on. */
  reuse(newest: SnapshotRow, { reason, pinned }: SnapshotRequest): SnapshotRow {
    return this.#options.snapshots.update(newest.id, {
      ...(pinned === undefined ? {} : { pinned }),
      ...(snapshotReasonRule(reason).by === 'person' ? { reason } : {}),
    });
  }

  /** In one transaction with the answer to the request's `opId`. */
  record({ opId, onRecord }: SnapshotRequest, write: () => CreatedSnapshot): CreatedSnapshot {
    const { operations, snapshots } = this.#options;
    const { result } = operations.runOnce(opId, 'snapshot.create', () => {
      const { row, created } = write();
      onRecord?.(row);
      return { id: row.id, created: created ? 'yes' : 'no' };
    });
    return { row: snapshots.getOrThrow(result.id), created: result.created === 'yes' };
  }

  /** Part of the caller's transaction. */
  insert(
    session: SessionRow,
    { reason, label, pinned, turnId, isDuringTurn }: SnapshotRequest,
    { scan, state, frozenMs }: ScanAttempt,
    totals: ScanTotals,
    newest: SnapshotRow | null,
  ): SnapshotRow {
    const { snapshots, events, ids, now } = this.#options;
    const { root, files, directories, bytes, scanMs } = scan;
    const row: SnapshotRow = {
      id: ids.next('snp'),
      sessionId: session.id,
      lineage: session.lineage,
      createdAt: now(),
      reason,
      label: label ?? null,
      pinned: pinned ?? false,
      base: newest?.id ?? null,
      root,
      stateRoot: state?.root ?? null,
      files,
      directories,
      bytes,
      ...totals,
      scanMs,
      frozenMs,
      eventSeq: events.head(session.id).seq,
      duringTurn: isDuringTurn?.() ?? false,
      missing: scan.missing + (state?.missing ?? 0),
      missingPaths: [...scan.missingPaths, ...(state?.missingPaths ?? [])].slice(0, MAX_MISSING_PATHS),
    };
    snapshots.insert(row);
    const data = {
      snapshotId: row.id,
      reason,
      label: row.label,
      root,
      files,
      bytes,
      changedFiles: totals.changedFiles,
      newBytes: totals.newBytes,
      frozenMs,
      ...(turnId === undefined ? {} : { turnId }),
      ...(row.duringTurn ? { duringTurn: true } : {}),
      ...(row.stateRoot === null ? {} : { stateRoot: row.stateRoot }),
      ...(row.missing > 0 ? { missing: row.missing, missingPaths: row.missingPaths } : {}),
    };
    events.append(session.id, [{ type: 'snapshot.created', data }]);
    return row;
  }
}
