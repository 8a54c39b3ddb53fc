import { z } from 'zod';
import { SessionRefSchema } from './ids.ts';

export const AGENT_SETTING_LIMITS = {
  /** Settings of an agent. */
  settings: 32,
  /** Values of all its settings together; those beyond are left out. */
  values: 400,
  /** Characters of an id and of a value. What is longer is not offered. */
  text: 200,
  /** Characters of a name. */
  name: 100,
} as const;

const text = z.string().max(AGENT_SETTING_LIMITS.text);
const name = z.string().max(AGENT_SETTING_LIMITS.name);

/** A setting that the agent of a session offers, such as its mode or its model. The names are the agent's own: show them sanitized. */
export const AgentSettingSchema = z.object({
  id: text,
  name,
  /** `mode`, `model` or another of the Agent Client Protocol's; empty for none. */
  category: name,
  /** As the agent has it. */
  value: z.string().max(500),
  /** Chosen by a person, and not set yet; null when nothing waits. */
  chosen: text.nullable(),
  values: z.array(z.object({ value: text, name })).max(AGENT_SETTING_LIMITS.values),
});
export type AgentSetting = z.infer<typeof AgentSettingSchema>;

export const AgentSettingsSchema = z.object({
  /** The agent has said what it offers. It says so in its first turn. */
  known: z.boolean(),
  settings: z.array(AgentSettingSchema).max(AGENT_SETTING_LIMITS.settings),
});
export type AgentSettings = z.infer<typeof AgentSettingsSchema>;

export const AGENT_SETTING_METHODS = {
  /** What the agent of the session lets people choose. Starts nothing. */
  'agent/settings': {
    params: z.object({ session: SessionRefSchema }),
    result: AgentSettingsSchema,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Chooses a value. It is set at once while a turn runs, otherwise with the next prompt, and again whenever the agent is started again or loaded. `option` is the id or the category of a
   * setting, `value` the id or the name of one of its values. Fails with `not_supported` where the agent does not offer it, and with
   * `invalid_state` before the agent has said what it offers.
   */
  'agent/set': {
    params: z.object({
      session: SessionRefSchema,
      option: text.min(1),
      value: text.min(1),
    }),
    result: z.object({ setting: AgentSettingSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;
