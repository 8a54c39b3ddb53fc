import type { SetupStatus } from '../../protocol/setup.ts';
import type { Registry } from '../registry.ts';
import { formatRelativeTime, formatSize } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';
import { sanitizeLines } from '../render/text.ts';

export function registerSetup(registry: Registry): void {
  const group = registry.group('setup', 'see how the images of profiles were prepared');

  const status = registry.command(group, {
    usage: 'status <profile>',
    description: 'list the setups of a profile: their state, their image and its size',
    operands: ['profile'],
    examples: ['holdfast setup status coder'],
  });
  registry.setAction(status, async (context, _options: object, profile: string) => {
    const { setups } = await context.call('setup/status', { profile });
    if (context.json) await context.printJson({ setups });
    else if (setups.length === 0) await context.print('It has had no setup.');
    else {
      const { style } = context;
      const now = context.io.now();
      await context.print(
        ...formatTable<SetupStatus>(
          setups,
          [
            { title: 'SETUP', value: ({ id }) => id },
            {
              title: 'STATE',
              value: ({ state, current }) => (current ? 'in use' : state),
              paint: ({ state }) =>
                state === 'failed' ? style.red : state === 'done' ? style.green : style.dim,
            },
            { title: 'STEP', value: ({ step }) => step },
            {
              title: 'SIZE',
              value: ({ bytes }) => (bytes === null ? '' : formatSize(bytes)),
              align: 'right',
            },
            { title: 'STARTED', value: ({ startedAt }) => formatRelativeTime(startedAt, now) },
            { title: 'WHY', value: ({ error }) => error?.message ?? '', shrinkPriority: 2 },
          ],
          { width: context.stdout.columns, header: style.dim },
        ),
      );
    }
    return undefined;
  });

  const log = registry.command(group, {
    usage: 'log <profile> [setup]',
    description: 'print what a setup of a profile printed; default: the newest',
    operands: ['profile'],
    examples: ['holdfast setup log coder'],
  });
  registry.setAction(log, async (context, _options: object, profile: string, id: string | undefined) => {
    const params = { profile, ...(id === undefined ? {} : { id }) };
    const { result, bytes } = await context.client().callWithBytes('setup/log', params);
    const text = bytes.toString('utf8');
    if (context.json) await context.printJson({ ...result, log: text });
    else await context.print(sanitizeLines(text));
    return undefined;
  });
  registry.registerUnavailable(group, ['run']);
}
