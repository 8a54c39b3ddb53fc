import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { newOpId } from '../op-id.ts';
import { positiveInteger, wholeNumber } from '../option-values.ts';
import type { Registry } from '../registry.ts';
import { formatRelativeTime, formatSize } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';
import { sanitizeLines } from '../render/text.ts';
import { readInput } from '../turn-input.ts';

const PAGE = 50;

export function registerMemory(registry: Registry): void {
  const group = registry.group('memory', 'what a session remembers beyond one conversation');
  const show = registry
    .command(group, {
      usage: 'show <session>',
      description: 'print the memory of a session',
      operands: ['session'],
    })
    .option('--version <n>', 'an earlier version', positiveInteger(Number.MAX_SAFE_INTEGER));
  registry.setAction(show, async (context, options: { version?: number }, session: string) => {
    const { memory } = await context.call('memory/show', {
      session,
      ...(options.version === undefined ? {} : { version: options.version }),
    });
    if (context.json) await context.printJson({ memory });
    else if (memory === null) await context.printHint('The session has no memory');
    else await printText(context, memory.text);
    return undefined;
  });

  const set = registry
    .command(group, {
      usage: 'set <session> [text]',
      description:
        'replace the memory of a session by a text of at most 8 KiB; - or nothing reads standard input',
      operands: ['session'],
      examples: [
        "holdfast memory set default 'Use tabs. Next: the importer.'",
        'holdfast memory set default - < notes.md',
      ],
    })
    .option('--if-version <n>', 'only if this is the newest version (0: there is none)', wholeNumber);
  registry.setAction(
    set,
    async (context, options: { ifVersion?: number }, session: string, text: string | undefined) => {
      const bytes = await readInput(context.io, text ?? '-');
      if (!bytes.equals(Buffer.from(bytes.toString('utf8'))))
        throw new UsageError('the memory must be text in UTF-8');
      const { memory } = await context.call('memory/set', {
        session,
        text: bytes.toString('utf8'),
        opId: newOpId(),
        ...(options.ifVersion === undefined ? {} : { ifVersion: options.ifVersion }),
      });
      if (context.json) await context.printJson({ memory });
      else await context.print(`The memory has version ${memory.version} (${formatSize(memory.bytes)})`);
      return undefined;
    },
  );

  const history = registry
    .command(group, {
      usage: 'history <session>',
      description: 'list the versions of the memory, newest first',
      operands: ['session'],
    })
    .option('--before <n>', 'only versions before this one', positiveInteger(Number.MAX_SAFE_INTEGER));
  registry.setAction(history, async (context, options: { before?: number }, session: string) => {
    const page = await context.call('memory/history', {
      session,
      limit: PAGE,
      ...(options.before === undefined ? {} : { before: options.before }),
    });
    if (context.json) {
      await context.printJson(page);
      return undefined;
    }
    if (page.versions.length === 0) await context.printHint('The session has no memory');
    else {
      const { style } = context;
      await context.print(
        ...formatTable(
          page.versions,
          [
            { title: 'VERSION', value: ({ version }) => String(version), align: 'right' },
            { title: 'WRITTEN', value: ({ at }) => formatRelativeTime(at, context.io.now()) },
            { title: 'BY', value: ({ author }) => author },
            { title: 'SIZE', value: ({ bytes }) => formatSize(bytes), align: 'right' },
          ],
          { width: context.stdout.columns, header: style.dim },
        ),
      );
    }
    if (page.before !== null) await context.printHint(`Earlier ones: --before ${page.before}`);
    return undefined;
  });
}

async function printText(context: Context, text: string): Promise<void> {
  const shown = context.stdout.isTTY ? sanitizeLines(text) : text;
  await context.stdout.write(shown === '' || shown.endsWith('\n') ? shown : `${shown}\n`);
}
