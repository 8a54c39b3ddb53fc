import type { HydrationState, Session } from '../../protocol/entities.ts';
import type { SessionMove } from '../../protocol/move-state.ts';
import { isoTime } from '../base/iso-time.ts';
import type { SessionRow } from '../store/sessions.ts';

/** The state of a session that is not in its row. */
export interface DerivedSessionState {
  readonly hydration: HydrationState | null;
  readonly move: SessionMove | null;
  readonly engineReachable: boolean;
  readonly runningTurn: string | null;
  readonly queuedTurns: number;
  readonly waiting: number;
  readonly lastPrompt: string | null;
  readonly lastSeq: number;
}

export function sessionView(row: SessionRow, derived: DerivedSessionState): Session {
  return {
    id: row.id,
    name: row.name,
    profile: row.profile,
    status: row.status,
    persistent: row.persistent,
    autoRemove: row.throwaway,
    createdAt: isoTime(row.createdAt),
    author: row.author,
    lineage: row.lineage,
    origin: { kind: row.began, snapshotId: row.origin },
    lastActiveAt: isoTime(row.lastActiveAt),
    expiresAt: row.expiresAt === null ? null : isoTime(row.expiresAt),
    pinned: row.pinned,
    starred: row.starred,
    archived: row.archived,
    tags: row.tags,
    model: row.model,
    workspaceBytes: row.workspaceBytes,
    backing: row.backing,
    about: row.about,
    ...derived,
  };
}
