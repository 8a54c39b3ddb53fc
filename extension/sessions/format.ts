import type { DispatchResult, Session, Turn } from '../../protocol/entities.ts';
import { formatBytes, formatCount, formatDuration } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from './listing.ts';

const MAX_NAMES = 10;
const MAX_OUTPUT_CHARACTERS = 200;

/** How a session got its sandbox. */
export function formatDispatch({ case: how }: DispatchResult): string {
  switch (how) {
    case 'reuse':
      return 'reusing its sandbox';
    case 'unpause':
      return 'resumed its paused sandbox';
    case 'reattach':
      return 'new sandbox, same workspace';
    case 'fresh':
      return 'new sandbox, new workspace';
    case 'create':
      return 'starting sandbox';
    case 'resurrect':
      return 'the session had expired; new sandbox, same workspace';
  }
}

/** What is deleted with a session, and what is kept. */
export function describeDeletion(
  { autoRemove, runningTurn, queuedTurns }: Pick<Session, 'autoRemove' | 'runningTurn' | 'queuedTurns'>,
  files: number,
  bytes: number,
): string {
  const size = `${formatCount(files, 'file')}, ${formatBytes(bytes)}`;
  const sentences = [`The workspace (${size}) will be deleted${autoRemove ? ' permanently' : ''}.`];
  if (!autoRemove) sentences.push('A snapshot is kept for 7 days.');
  if (runningTurn !== null) sentences.push('The running turn will be cancelled.');
  if (queuedTurns > 0) sentences.push(`${formatCount(queuedTurns, 'queued turn')} will not run.`);
  return sentences.join(' ');
}

/** The same for several sessions: their names, and what is kept of them. */
export function describeDeletions(
  sessions: readonly Pick<Session, 'id' | 'name' | 'profile' | 'autoRemove' | 'runningTurn'>[],
): string {
  const names = sessions.slice(0, MAX_NAMES).map((session) => sanitize(sessionTitle(session), 60));
  if (sessions.length > MAX_NAMES) names.push(`and ${sessions.length - MAX_NAMES} more`);
  const sentences = [`${names.join(', ')}. Their workspaces will be deleted.`];
  if (sessions.some(({ autoRemove }) => !autoRemove))
    sentences.push('A snapshot of each is kept for 7 days.');
  const running = sessions.filter(({ runningTurn }) => runningTurn !== null).length;
  if (running > 0) sentences.push(`${formatCount(running, 'running turn')} will be cancelled.`);
  return sentences.join(' ');
}

/** How a turn ended, on one line. It contains text of the agent: the caller must sanitize it. */
export function formatTurnEnd(turn: Turn): string {
  const { turnMs } = turn.timings;
  const time = turnMs === null ? '' : ` in ${formatDuration(turnMs)}`;
  switch (turn.status) {
    case 'succeeded': {
      const output =
        turn.output === null ? '' : `: ${JSON.stringify(turn.output).slice(0, MAX_OUTPUT_CHARACTERS)}`;
      return `The turn succeeded${time}${output}`;
    }
    case 'failed':
      return `The turn failed${time}: ${turn.error?.message ?? `exit code ${turn.exitCode ?? 'unknown'}`}`;
    case 'cancelled':
      return 'The turn was cancelled';
    case 'timeout':
      return `The turn timed out${time === '' ? '' : ` after${time.slice(3)}`}`;
    case 'interrupted':
      return `The turn was interrupted: ${turn.error?.message ?? 'its sandbox was lost'}`;
    case 'queued':
    case 'running':
      return `The turn is ${turn.status}`;
  }
}

/** What a person should know about the snapshot before their turn; null where it is complete. */
export function formatTurnSnapshot({ snapshot, error }: Pick<Turn, 'snapshot' | 'error'>): string | null {
  // The error of the turn already says it.
  if (snapshot === null || error?.data.code === 'snapshot_required') return null;
  const { state, duringTurn, missing, failure } = snapshot;
  if (state === 'failed') {
    if (failure?.code === 'cancelled') return null;
    return `no snapshot was created before it: ${failure?.why ?? 'the reason is not known'}`;
  }
  const parts = [
    missing > 0 ? `its snapshot lacks ${formatCount(missing, 'file')} that could not be read` : '',
    state === 'taking' || duringTurn ? 'its snapshot was completed after it had started' : '',
  ].filter((part) => part !== '');
  return parts.length === 0 ? null : parts.join('; ');
}
