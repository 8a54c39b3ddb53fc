import { AGENT_SETTING_LIMITS } from '../../protocol/agent-settings.ts';
import type { AgentSetting, AgentSettings } from '../../protocol/agent-settings.ts';
import type { AnsweredBy } from '../../protocol/agent-events.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { EventEntry } from '../../protocol/events.ts';
import type { EventLog } from '../history/event-log.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { AgentChoiceRow, AgentChoiceRows } from '../store/agent-choices.ts';
import type { AgentConversationRows } from '../store/agent-conversations.ts';
import type { Database } from '../store/database.ts';
import { type Setting, findValue, isModel } from './acp/settings.ts';
import { type AcpState, AcpStateSchema } from './acp/state.ts';

export interface AgentChoicesOptions {
  readonly database: Database;
  readonly rows: AgentChoiceRows;
  readonly conversationRows: Pick<AgentConversationRows, 'get'>;
  readonly records: SessionRecords;
  readonly events: EventLog;
  /** The agent of the session speaks the Agent Client Protocol. */
  readonly offersSettings: (sessionId: string) => boolean;
}

const NOTHING_KNOWN: AgentSettings = { known: false, settings: [] };

/** What agents let people choose, and what people chose. A choice is stored here; the conversation with the agent sets it. */
export class AgentChoices {
  readonly #options: AgentChoicesOptions;

  constructor(options: AgentChoicesOptions) {
    this.#options = options;
  }

  /** What the agent offers, as it said in its last turn. Errors: `not_found`. */
  list(sessionId: string): AgentSettings {
    const { model } = this.#options.records.get(sessionId);
    const state = this.#stateOf(sessionId);
    if (state === null) return NOTHING_KNOWN;
    const choices = this.#options.rows.listOf(sessionId);
    let left: number = AGENT_SETTING_LIMITS.values;
    const settings = offeredBy(state).map((setting) => {
      const { id, name, category } = setting;
      const values = setting.values.slice(0, left).map((one) => ({ ...one, name: cutName(one.name) }));
      left -= values.length;
      const value = valueIn(state, setting);
      const wanted = isModel(setting) ? modelOf(setting, model) : waitingChoice(state, choices, id);
      const chosen = wanted === value ? null : wanted;
      return { id, name: cutName(name), category, value, chosen, values };
    });
    return { known: true, settings };
  }

  /**
   * Stores a choice and its event. Errors: `not_found`; `not_supported` if the agent does not offer the setting or the value;
   * `invalid_state` if it has not said yet what it offers.
   */
  set(sessionId: string, option: string, wanted: string, client: string): AgentSetting {
    const { database, rows, records, events } = this.#options;
    const session = records.get(sessionId);
    if (!this.#options.offersSettings(sessionId)) throw notOffered('its agent has no settings');
    const state = this.#stateOf(sessionId);
    if (state === null) {
      throw new HoldfastError('invalid_state', 'This cannot be chosen yet', {
        why: 'the agent reports its settings in its first turn',
        next: 'send it a prompt first',
      });
    }
    const { settings } = this.list(sessionId);
    const setting =
      settings.find(({ id }) => id === option) ?? settings.find(({ category }) => category === option);
    if (setting === undefined) throw notOffered(`the agent has ${listed(settings.map(({ id }) => id))}`);
    const value = findValue(setting, wanted);
    if (value === undefined)
      throw notOffered(`for ${setting.id} the agent has ${listed(setting.values.map((one) => one.value))}`);
    const by: AnsweredBy = { kind: 'client', name: client.slice(0, 200) };
    const chosen: EventEntry = { type: 'agent.chosen', data: { option: setting.id, value, by } };
    // What waits, or is so already, is no other choice.
    if ((setting.chosen ?? setting.value) === value) return setting;
    database.transaction(() => {
      if (isModel(setting) && session.model !== value) {
        const updated: EventEntry = { type: 'session.updated', data: { model: value } };
        records.change(sessionId, { model: value }, 'updated', [chosen, updated]);
        return;
      }
      const [event] = events.append(sessionId, [chosen]);
      if (event !== undefined && !isModel(setting))
        rows.put(sessionId, { option: setting.id, value, revision: event.seq });
    });
    return this.list(sessionId).settings.find(({ id }) => id === setting.id) ?? setting;
  }

  /** For the next turn. */
  of(sessionId: string): AgentChoiceRow[] {
    return this.#options.rows.listOf(sessionId);
  }

  /** The session was deleted. */
  forget(sessionId: string): void {
    this.#options.rows.remove(sessionId);
  }

  /** Null until the agent has said what it offers. */
  #stateOf(sessionId: string): AcpState | null {
    const row = this.#options.conversationRows.get(sessionId);
    const { data } = AcpStateSchema.safeParse(row?.state);
    return data === undefined || data.conversationId === null ? null : data;
  }
}

/** What can be shown and chosen by its exact id: the agent may have written anything. Each id once. */
function offeredBy({ connection, offered }: AcpState): Setting[] {
  const settings = connection === null || connection.settings.length === 0 ? offered : connection.settings;
  return settings
    .filter(({ id, category }, at) => {
      const isFirst = settings.findIndex((one) => one.id === id) === at;
      return isFirst && isPlain(id) && (category === '' || isPlain(category));
    })
    .slice(0, AGENT_SETTING_LIMITS.settings)
    .map((setting) => ({ ...setting, values: setting.values.filter(({ value }) => isPlain(value)) }));
}

function isPlain(text: string): boolean {
  return text.length <= AGENT_SETTING_LIMITS.text && /^[^\p{C}]+$/u.test(text);
}

function cutName(name: string): string {
  return name.slice(0, AGENT_SETTING_LIMITS.name);
}

/** An agent that does not run is set to what it was set to before, when it is loaded. */
function valueIn({ connection, kept }: AcpState, { id, value }: Setting): string {
  const isRunning = connection !== null && connection.settings.length > 0;
  return isRunning ? value : (kept[id] ?? value);
}

function modelOf(setting: Setting, model: string | null): string | null {
  return model === null ? null : (findValue(setting, model) ?? null);
}

function waitingChoice({ taken }: AcpState, choices: readonly AgentChoiceRow[], id: string): string | null {
  const choice = choices.find(({ option }) => option === id);
  return choice === undefined || taken[id] === choice.revision ? null : choice.value;
}

function notOffered(why: string): HoldfastError {
  return new HoldfastError('not_supported', 'The agent does not offer this', {
    why,
    next: 'see `holdfast session settings`',
  });
}

function listed(values: readonly string[]): string {
  if (values.length === 0) return 'nothing to choose';
  return values.length <= 20 ? values.join(', ') : `${values.slice(0, 20).join(', ')} and others`;
}
