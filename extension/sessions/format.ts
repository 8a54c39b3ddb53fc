import type { DispatchResult, Session, Turn } from '../../protocol/entities.ts';
import { sanitize } from '../base/sanitize.ts';
import { formatBytes, sessionTitle } from './listing.ts';

/** How a session came to its sandbox, for a person. */
export function formatDispatch({ case: how }: DispatchResult): string {
  switch (how) {
    case 'reuse':
      return 'reusing its sandbox';
    case 'unpause':
      return 'its sandbox was paused and goes on where it was';
    case 'reattach':
      return 'a new sandbox with the workspace as it was';
    case 'fresh':
      return 'a new sandbox with a new workspace';
    case 'create':
      return 'starting its sandbox';
    case 'resurrect':
      return 'it had expired; a new sandbox with the workspace as it was';
  }
}

/** What goes with a session that is deleted, and what stays. */
export function describeDeletion(
  { autoRemove, runningTurn, queuedTurns }: Pick<Session, 'autoRemove' | 'runningTurn' | 'queuedTurns'>,
  files: number,
  bytes: number,
): string {
  const held = `${files === 1 ? 'one file' : `${files.toLocaleString('en-US')} files`}, ${formatBytes(bytes)}`;
  const words = [`The workspace (${held}) will be deleted${autoRemove ? ' for good' : ''}.`];
  if (!autoRemove) words.push('A snapshot is kept for 7 days.');
  if (runningTurn !== null) words.push('The running turn is ended.');
  if (queuedTurns > 0)
    words.push(
      queuedTurns === 1 ? 'One waiting turn never runs.' : `${queuedTurns} waiting turns never run.`,
    );
  return words.join(' ');
}

/** Of several sessions that are deleted together: which, and what stays of them. */
export function describeDeletions(
  sessions: readonly Pick<Session, 'id' | 'name' | 'profile' | 'autoRemove' | 'runningTurn'>[],
): string {
  const names = sessions.slice(0, MOST_NAMES).map((session) => sanitize(sessionTitle(session), 60));
  if (sessions.length > MOST_NAMES) names.push(`and ${sessions.length - MOST_NAMES} more`);
  const words = [`${names.join(', ')}. Their workspaces will be deleted.`];
  if (sessions.some(({ autoRemove }) => !autoRemove)) words.push('A snapshot of each is kept for 7 days.');
  const running = sessions.filter(({ runningTurn }) => runningTurn !== null).length;
  if (running > 0)
    words.push(running === 1 ? 'A running turn is ended.' : `${running} running turns are ended.`);
  return words.join(' ');
}

const MOST_NAMES = 10;
const LONGEST_OUTPUT = 200;

/** How a turn has ended, on one line; what the agent gave is shown as text and must be made inert by whoever shows it. */
export function formatTurnEnd(turn: Turn): string {
  const { turnMs } = turn.timings;
  const time =
    turnMs === null
      ? ''
      : ` in ${turnMs < 1000 ? `${Math.round(turnMs)} ms` : `${(turnMs / 1000).toFixed(1)} s`}`;
  switch (turn.status) {
    case 'succeeded': {
      const output = turn.output === null ? '' : `: ${JSON.stringify(turn.output).slice(0, LONGEST_OUTPUT)}`;
      return `The turn succeeded${time}${output}`;
    }
    case 'failed':
      return `The turn failed${time}: ${turn.error?.message ?? `it ended with ${turn.exitCode ?? 'no exit code'}`}`;
    case 'cancelled':
      return 'The turn was cancelled';
    case 'timeout':
      return `The turn took too long and was ended${time}`;
    case 'interrupted':
      return `The turn was interrupted: ${turn.error?.message ?? 'its sandbox was lost'}`;
    case 'queued':
    case 'running':
      return `The turn is ${turn.status}`;
  }
}
