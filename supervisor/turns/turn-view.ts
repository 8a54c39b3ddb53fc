import type { Turn } from '../../protocol/entities.ts';
import { isoTime } from '../base/iso-time.ts';
import type { TurnSummary } from '../store/turns.ts';

/** `waitingFor` is not stored; see `TurnSchema`. */
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
    changes: turn.changes,
  };
}
