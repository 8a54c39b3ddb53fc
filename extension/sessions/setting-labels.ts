import type { AgentSetting } from '../../protocol/agent-settings.ts';
import { MAX_PICKS } from '../../webview/messages.ts';
import type { Picker } from '../../webview/messages.ts';
import { sanitize } from '../base/sanitize.ts';

/** What people choose beside the prompt, in this order. */
const PICKED = ['mode', 'model'] as const;
const MAX_NAME = 60;

/** The mode and the model of an agent, where there is something to choose, with the agent's own names. */
export function pickersOf(settings: readonly AgentSetting[]): Picker[] {
  return PICKED.flatMap((what) => {
    const setting =
      settings.find(({ category }) => category === what) ?? settings.find(({ id }) => id === what);
    return setting === undefined || setting.values.length < 2 ? [] : [pickerOf(what, setting)];
  });
}

/** The value that counts for the next prompt is always among the options. */
function pickerOf(what: Picker['what'], { value, chosen, values }: AgentSetting): Picker {
  const current = chosen ?? value;
  const options = values
    .filter((one, at) => at < MAX_PICKS - 1 || one.value === current)
    .map((one) => ({ value: one.value, name: nameOf(one.name, one.value) }));
  if (!options.some((one) => one.value === current))
    options.unshift({ value: current, name: nameOf('', current) });
  return { what, value: current, options };
}

function nameOf(name: string, value: string): string {
  return sanitize(name, MAX_NAME).trim() || sanitize(value, MAX_NAME);
}
