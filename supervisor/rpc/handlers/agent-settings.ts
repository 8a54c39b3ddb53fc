import type { AGENT_SETTING_METHODS } from '../../../protocol/agent-settings.ts';
import type { Handlers } from '../../../protocol/wire/shapes.ts';
import type { AgentChoices } from '../../agents/agent-choices.ts';
import type { ClientNames } from '../client-names.ts';

export interface AgentSettingHandlersOptions {
  readonly agentChoices: AgentChoices;
  readonly clients: ClientNames;
  /** The id of the session that is meant. Errors: `not_found`, `ambiguous_name`. */
  readonly sessionId: (reference: string) => string;
}

/** The answers to `agent/*`. */
export function agentSettingHandlers<P extends object>({
  agentChoices,
  clients,
  sessionId,
}: AgentSettingHandlersOptions): Handlers<typeof AGENT_SETTING_METHODS, P> {
  return {
    'agent/settings': ({ session }) => agentChoices.list(sessionId(session)),
    'agent/set': ({ session, option, value }, { peer }) => ({
      setting: agentChoices.set(sessionId(session), option, value, clients.of(peer)),
    }),
  };
}
