import type { Dispatched, Turn } from '../../protocol/entities.ts';

/** How a session came to its sandbox, for a person. */
export function dispatchWords({ case: how }: Dispatched): string {
  switch (how) {
    case 'reuse':
      return 'its sandbox was still running';
    case 'unpause':
      return 'its sandbox was paused and goes on where it was';
    case 'reattach':
      return 'a new sandbox with the workspace as it was';
    case 'fresh':
      return 'a new sandbox with a new workspace';
    case 'create':
      return 'its first sandbox';
    case 'resurrect':
      return 'it had expired; a new sandbox with the workspace as it was';
  }
}

const LONGEST_OUTPUT = 200;

/** How a turn has ended, on one line; what the agent gave is shown as text and must be made inert by whoever shows it. */
export function turnWords(turn: Turn): string {
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
