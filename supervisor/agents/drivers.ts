import { isUtf8 } from 'node:buffer';
import { HoldfastError } from '../../protocol/errors.ts';
import type { AgentConfig } from '../../protocol/profile.ts';
import { runsAs } from '../../protocol/turn-kinds.ts';
import { commandDriver } from './command.ts';
import { handlerDriver } from './handler.ts';
import type { AgentDriver } from './driver.ts';

/** An agent that speaks the Agent Client Protocol takes text. */
function requireText(input: Buffer): void {
  if (isUtf8(input)) return;
  throw new HoldfastError('invalid_params', 'The prompt is not text', {
    why: 'it is not UTF-8',
    next: 'put the data into a file in the workspace and name it in the prompt',
  });
}

export function driverFor(agent: AgentConfig): AgentDriver {
  if (runsAs(agent, 'worker')) return handlerDriver(agent);
  if (runsAs(agent, 'program')) return commandDriver(agent);
  return { kind: agent.protocol, runs: 'conversation', command: agent.command, validateInput: requireText };
}
