import { randomUUID } from 'node:crypto';
import type { Command } from 'commander';
import type { SetupStatus } from '../../protocol/setup.ts';
import type { Context } from '../context.ts';
import type { Registry } from '../registry.ts';
import { formatRelativeTime, formatSize } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';
import { sanitizeLines } from '../render/text.ts';

/** Of `deploy` too. */
export const REMOVE_SECRET_FILES = 'remove files in which a secret of the setup is found, and keep the rest';

export function registerSetup(registry: Registry): void {
  const group = registry.group('setup', 'prepare the images of profiles, and see how it went');

  registerRun(registry, group);

  const status = registry.command(group, {
    usage: 'status <profile>',
    description: 'list the setups of a profile: their state, their image and its size',
    operands: ['profile'],
    examples: ['holdfast setup status coder'],
  });
  registry.setAction(status, async (context, _options: object, profile: string) => {
    const { setups } = await context.call('setup/status', { profile });
    if (context.json) await context.printJson({ setups });
    else if (setups.length === 0) await context.print('The profile has had no setup.');
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
    description: 'print the output of a setup; default: the newest',
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
}

function registerRun(registry: Registry, group: Command): void {
  const run = registry
    .command(group, {
      usage: 'run <profile>',
      description: 'run the setup of a profile again; its sandboxes then start from the new image',
      operands: ['profile'],
      examples: ['holdfast setup run coder'],
    })
    .option('--remove-secret-files', REMOVE_SECRET_FILES);
  registry.setAction(run, async (context, options: { removeSecretFiles?: boolean }, profile: string) => {
    const setup = await runSetup(context, profile, options.removeSecretFiles === true);
    if (context.json) await context.printJson({ setup });
    else {
      const size = setup.bytes === null ? '' : ` (${formatSize(setup.bytes)} more than its base)`;
      await context.print(`${context.style.bold(profile)} starts from ${setup.image ?? ''}${size}`);
    }
    return undefined;
  });
}

/** Shows the output while it runs, on standard error, so that standard output has the result alone. */
async function runSetup(context: Context, profile: string, removeSecretFiles: boolean): Promise<SetupStatus> {
  const output = randomUUID();
  const peer = await context.client().peer();
  const decoder = new TextDecoder();
  let writing = Promise.resolve();
  const stop = peer.onNotification('setup/output', (params, bytes) => {
    if (params.output !== output || context.json) return;
    // No more comes than a log keeps. What is installed decides what is printed.
    const text = sanitizeLines(decoder.decode(bytes, { stream: true }));
    context.progress.hide();
    writing = writing.then(() => context.stderr.write(text)).then(() => undefined);
    writing.catch(() => undefined);
  });
  try {
    const stage = `Running the setup of ${profile}`;
    const params = { profile, output, ...(removeSecretFiles ? { removeSecretFiles } : {}) };
    const { setup } = await context.call('setup/run', params, { stage });
    await writing;
    return setup;
  } finally {
    stop();
  }
}
