import type { Command } from 'commander';
import type { AgentSetting } from '../../protocol/agent-settings.ts';
import type { Context } from '../context.ts';
import type { Registry } from '../registry.ts';
import { formatTable } from '../render/table.ts';
import { sanitizeLine } from '../render/text.ts';

const MAX_SHOWN_VALUES = 20;

export function registerAgentSettings(registry: Registry, group: Command): void {
  const settings = registry.command(group, {
    usage: 'settings <session>',
    description: 'list the settings that the agent offers, such as its model and mode',
    operands: ['session'],
  });
  registry.setAction(settings, async (context, _options, session: string) => {
    const found = await context.call('agent/settings', { session });
    if (context.json) await context.printJson(found);
    else if (!found.known) await context.print('The agent reports its settings in its first turn.');
    else if (found.settings.length === 0) await context.print('The agent offers no settings.');
    else await context.print(...table(context, found.settings));
    return undefined;
  });

  const set = registry.command(group, {
    usage: 'set <session> <option> <value>',
    description:
      'set a setting of the agent, such as its mode: at once during a turn, otherwise with the next prompt',
    operands: ['session'],
    examples: ['holdfast session set coder/default mode plan'],
  });
  registry.setAction(set, async (context, _options, session: string, option: string, value: string) => {
    const { setting } = await context.call('agent/set', { session, option, value });
    if (context.json) await context.printJson({ setting });
    else {
      const when = setting.chosen === null ? '' : ', as soon as the agent can take it';
      await context.print(
        `${sanitizeLine(setting.id)}: ${sanitizeLine(setting.chosen ?? setting.value)}${when}`,
      );
    }
    return undefined;
  });
}

function table(context: Context, settings: readonly AgentSetting[]): string[] {
  return formatTable<AgentSetting>(
    settings,
    [
      { title: 'SETTING', value: ({ id }) => id },
      { title: 'VALUE', value: ({ value }) => value },
      { title: 'NEXT', value: ({ chosen }) => chosen ?? '' },
      {
        title: 'VALUES',
        value: ({ values }) =>
          values
            .slice(0, MAX_SHOWN_VALUES)
            .map(({ value }) => value)
            .join(', '),
        shrinkPriority: 1,
      },
    ],
    { width: context.stdout.columns, header: context.style.dim },
  );
}
