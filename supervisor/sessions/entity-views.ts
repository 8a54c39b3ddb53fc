import type { HydrationState, Session, Turn } from '../../protocol/entities.ts';
import type { Terminal } from '../../protocol/terminals.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { TerminalRow } from '../store/terminals.ts';
import type { TurnSummary } from '../store/turns.ts';

export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

/** What of a session is not in its row. */
export interface DerivedSessionState {
  readonly hydration: HydrationState | null;
  readonly engineReachable: boolean;
  readonly runningTurn: string | null;
  readonly queuedTurns: number;
  readonly lastPrompt: string | null;
  readonly lastSeq: number;
}

export function sessionView(row: SessionRow, around: DerivedSessionState): Session {
  return {
    id: row.id,
    name: row.name,
    profile: row.profile,
    status: row.status,
    persistent: row.persistent,
    autoRemove: row.throwaway,
    createdAt: isoTime(row.createdAt),
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
    ...around,
  };
}

/** `waitingFor` is not in its row: see `TurnSchema`. */
export function turnView(turn: TurnSummary, ahead: number, waitingFor: Turn['waitingFor']): Turn {
  return {
    turnId: turn.id,
    sessionId: turn.sessionId,
    status: turn.status,
    createdAt: isoTime(turn.createdAt),
    startedAt: turn.startedAt === null ? null : isoTime(turn.startedAt),
    endedAt: turn.endedAt === null ? null : isoTime(turn.endedAt),
    ahead,
    waitingFor,
    sandbox: turn.dispatchCase === null ? null : { case: turn.dispatchCase, reused: turn.reused ?? false },
    output: turn.output,
    outputArtifact: turn.outputArtifact,
    exitCode: turn.exitCode,
    error: turn.error,
    bytes: { stdout: turn.stdoutBytes, stderr: turn.stderrBytes, result: turn.resultBytes },
    timings: {
      queuedMs: turn.queuedMs,
      dispatchMs: turn.dispatchMs,
      turnMs: turn.turnMs,
      workerStartMs: turn.workerStartMs,
    },
    worker: turn.workerId === null ? null : { id: turn.workerId, reused: turn.workerReused ?? false },
    snapshot: turn.snapshot,
  };
}

export function terminalView(row: TerminalRow): Terminal {
  return {
    terminalId: row.id,
    sessionId: row.sessionId,
    status: row.endedAt === null ? 'running' : 'ended',
    command: row.command,
    cwd: row.cwd,
    createdAt: isoTime(row.createdAt),
    endedAt: row.endedAt === null ? null : isoTime(row.endedAt),
    exitCode: row.exitCode,
    why: row.why,
  };
}
