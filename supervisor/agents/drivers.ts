import { HoldfastError } from '../../protocol/errors.ts';
import type { AgentConfig } from '../../protocol/profile.ts';
import { commandDriver } from './command.ts';
import { handlerDriver } from './handler.ts';
import type { AgentDriver } from './driver.ts';

export function driverFor(agent: AgentConfig): AgentDriver {
  switch (agent.protocol) {
    case 'handler':
      return handlerDriver(agent);
    case 'command':
      return commandDriver(agent);
    case 'acp':
      throw new HoldfastError('not_supported', 'agent.protocol: acp is not in this version', {
        next: 'use `command` or `handler`',
      });
  }
}
