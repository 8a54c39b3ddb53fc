import type { HoldfastError } from '../../protocol/errors.ts';
import type { Limit } from '../../sidecar/wire.ts';
import { addLimits } from '../agents/limits.ts';
import { turnError } from '../agents/driver.ts';
import type { TurnOutcome } from './turn-records.ts';

/** Why a turn is terminated before its process exits by itself. */
export type TerminationReason = 'cancelled' | 'timeout' | 'output_limit';

export function failedOutcome(failure: HoldfastError): TurnOutcome {
  return {
    status: 'failed',
    exitCode: null,
    output: null,
    error: { message: failure.message, data: failure.toData() },
  };
}

export function sandboxLostOutcome(why: string, limits: readonly Limit[] = []): TurnOutcome {
  return {
    status: 'failed',
    exitCode: null,
    output: null,
    error: turnError(
      'sandbox_lost',
      "The agent's container ended during the turn",
      addLimits({ why, next: 'run it again: the workspace is as the agent left it' }, limits),
    ),
  };
}

export function runDirectoryDamagedOutcome(why: string): TurnOutcome {
  return {
    status: 'failed',
    exitCode: null,
    output: null,
    error: turnError('agent_failed', 'The agent damaged its run directory', {
      why,
      next: 'programs must not change /run/holdfast; the next request is not affected',
    }),
  };
}

export function terminatedOutcome(ending: TerminationReason, exitCode: number | null): TurnOutcome {
  switch (ending) {
    case 'cancelled':
      return {
        status: 'cancelled',
        exitCode,
        output: null,
        error: turnError('cancelled', 'The turn was cancelled'),
      };
    case 'timeout':
      return {
        status: 'timeout',
        exitCode,
        output: null,
        error: turnError('timeout', 'The turn took longer than its timeout and was ended', {
          next: 'give it more time with --timeout, or `timeout` of the agent in holdfast.yaml',
        }),
      };
    case 'output_limit':
      return {
        status: 'failed',
        exitCode,
        output: null,
        error: turnError('output_limit', 'The turn wrote more output than it may and was ended', {
          next: 'write to files under /workspace, or raise limits.output in holdfast.yaml',
        }),
      };
  }
}

export function answerTooLargeOutcome(bytes: number, most: number): TurnOutcome {
  return {
    status: 'failed',
    exitCode: null,
    output: null,
    error: turnError('output_limit', `The handler's answer is ${String(bytes)} bytes`, {
      why: `an answer holds at most ${String(most)} bytes`,
      next: 'write it to a file under /workspace and return its path',
    }),
  };
}
