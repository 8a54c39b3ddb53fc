import type { HoldfastError } from '../../../protocol/errors.ts';
import { turnError } from '../driver.ts';
import { cutText } from './bounded-text.ts';
import type { AgentTurnOutcome } from './state.ts';
import { RPC_ERRORS, type RpcError } from './wire.ts';

const MESSAGE_CHARACTERS = 8000;

export const SUCCEEDED: AgentTurnOutcome = { status: 'succeeded', error: null };

export const CANCELLED: AgentTurnOutcome = {
  status: 'cancelled',
  error: turnError('cancelled', 'The turn was cancelled'),
};

/** How the agent says that it stopped. */
export function stoppedOutcome(reason: string, isCancelled: boolean): AgentTurnOutcome {
  switch (reason) {
    case 'cancelled':
      if (isCancelled) return CANCELLED;
      return {
        status: 'cancelled',
        error: turnError('cancelled', 'The agent ended its turn', {
          why: 'it ends its turn after a rejected permission, or for a reason of its own',
        }),
      };
    case 'max_tokens':
      return stopped('it reached the most tokens that its model may use', reason);
    case 'max_turn_requests':
      return stopped('it reached the most requests that it makes in one turn', reason);
    case 'refusal':
      return stopped('it refuses to continue', reason);
    default:
      return SUCCEEDED;
  }
}

function stopped(why: string, reason: string): AgentTurnOutcome {
  const next = 'what it did so far is in the workspace and in the conversation; prompt it again';
  return {
    status: 'failed',
    error: turnError('agent_failed', 'The agent stopped before it was done', {
      why,
      next,
      details: { reason },
    }),
  };
}

/** The agent refused a request of ours. */
export function refusedOutcome(what: string, { code, message }: RpcError): AgentTurnOutcome {
  const isAuth = code === RPC_ERRORS.authRequired;
  return {
    status: 'failed',
    error: turnError('agent_failed', `The agent refused ${what}: ${cutText(message, MESSAGE_CHARACTERS)}`, {
      ...(isAuth ? { why: 'it is not signed in' } : {}),
      next: isAuth
        ? 'give it a key or a model endpoint, as docs/agents.md describes'
        : 'see its error output with `holdfast turn show TURN` and `holdfast session events SESSION`',
      details: { code },
    }),
  };
}

export function silentOutcome(what: string, seconds: number): AgentTurnOutcome {
  return {
    status: 'failed',
    error: turnError('agent_failed', `The agent did not answer ${what} within ${seconds} s`, {
      next: 'does the command in holdfast.yaml speak the Agent Client Protocol on its standard input and output?',
    }),
  };
}

/** Its process ended. `errorOutput`: the end of what it wrote to its standard error. */
export function agentEndedOutcome(
  exitCode: number | null,
  command: string,
  errorOutput: string,
): AgentTurnOutcome {
  const reason =
    exitCode === 127
      ? `${command}, or a program that it started, was not found in the image`
      : exitCode === 126
        ? `${command}, or a program that it started, cannot be run`
        : exitCode === null || exitCode > 128
          ? 'something killed it'
          : `it ended with exit code ${exitCode}`;
  const tail = errorOutput.trim();
  return {
    status: 'failed',
    error: turnError('agent_failed', 'The agent ended during the turn', {
      why: tail === '' ? reason : `${reason}: ${cutText(tail, 2000)}`,
      next: 'the next prompt starts it again; its error output is in `holdfast session events SESSION`',
    }),
  };
}

/** It asks and asks, and reads no answer. */
export const UNREAD: AgentTurnOutcome = {
  status: 'failed',
  error: turnError('agent_failed', 'The agent does not read its input', {
    why: 'too many answers wait for it, so its process was ended',
    next: 'the next prompt starts it again',
    details: { unread: true },
  }),
};

/** A person stopped it at its budget. `use`: `it used 1,000 tokens`. */
export function stoppedAtBudgetOutcome(use: string): AgentTurnOutcome {
  return {
    status: 'cancelled',
    error: turnError('cancelled', 'The turn was stopped at its budget', {
      why: use,
      next: 'what it did so far is in the workspace and in the conversation; limits.tokens and limits.cost in holdfast.yaml set the budget',
    }),
  };
}

/** Beyond its budget it was told to stop, and went on. */
export const UNSTOPPABLE: AgentTurnOutcome = {
  status: 'failed',
  error: turnError('agent_failed', 'The agent went on beyond its budget', {
    why: 'it did not stop when asked to, so its process was ended',
    next: 'the next prompt starts it again',
  }),
};

export function interruptedOutcome(why: string): AgentTurnOutcome {
  return {
    status: 'interrupted',
    error: turnError('interrupted', 'The turn was interrupted', {
      why,
      next: 'look at the workspace, and prompt again: nothing is sent to an agent twice',
    }),
  };
}

export function failedOutcome(error: HoldfastError): AgentTurnOutcome {
  return { status: 'failed', error: { message: error.message, data: error.toData() } };
}
