import type { Permission } from '../../protocol/permissions.ts';
import type { Context } from '../context.ts';
import { ANSWERS } from '../conversation/permission-questions.ts';
import { UsageError } from '../failure.ts';
import { positiveInteger } from '../option-values.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { formatRelativeTime } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';
import { sanitizeLine } from '../render/text.ts';

interface ListOptions {
  all?: boolean;
  limit?: number;
}

export function registerPermissions(registry: Registry): void {
  const group = registry.group('permission', 'answer what agents ask');

  const list = registry
    .command(group, {
      usage: 'list [session]',
      description: 'list the open questions of agents, oldest first',
      operands: ['session'],
    })
    .option('--all', 'include answered ones')
    .option('--limit <n>', 'maximum number of results (1 to 500)', positiveInteger(500));
  registry.setAction(list, async (context, options: ListOptions, session: string | undefined) => {
    const { permissions } = await context.call('permission/list', {
      ...(session === undefined ? {} : { session }),
      ...(options.all === true ? { all: true } : {}),
      ...(options.limit === undefined ? {} : { limit: options.limit }),
    });
    if (context.json) await context.printJson({ permissions });
    else if (permissions.length === 0) await context.print('No agent waits for an answer.');
    else await context.print(...table(context, permissions));
    return undefined;
  });

  const answer = registry.command(group, {
    usage: 'answer <permission> <answer>',
    description: 'answer a permission: allow, always, reject, or the id of one of its options',
    examples: ['holdfast permission answer perm-abcdefghijklmnop allow'],
  });
  registry.setAction(answer, async (context, _options, id: string, given: string) => {
    const params = { permission: checkedId(id), answer: kindOf(given), opId: newOpId() };
    const { permission } = await context.call('permission/answer', params);
    if (context.json) await context.printJson({ permission });
    else await context.print(`${permission.id}: ${sanitizeLine(permission.answer?.name ?? 'not answered')}`);
    return undefined;
  });
}

function kindOf(answer: string): string {
  return Object.hasOwn(ANSWERS, answer) ? ANSWERS[answer as keyof typeof ANSWERS] : answer;
}

function checkedId(id: string): string {
  if (/^perm-[a-z2-7]{16}$/.test(id)) return id;
  throw new UsageError(
    `${sanitizeLine(id)} is not the id of a permission; see \`holdfast permission list\``,
    'invalid_params',
  );
}

function table(context: Context, permissions: readonly Permission[]): string[] {
  const { style } = context;
  const now = context.io.now();
  return formatTable<Permission>(
    permissions,
    [
      { title: 'PERMISSION', value: ({ id }) => id },
      {
        title: 'SESSION',
        value: ({ profile, sessionName }) => `${profile}/${sessionName}`,
        shrinkPriority: 2,
      },
      { title: 'ASKED', value: ({ askedAt }) => formatRelativeTime(new Date(askedAt).toISOString(), now) },
      { title: 'KIND', value: ({ kind }) => kind, paint: () => style.cyan },
      { title: 'TITLE', value: ({ title }) => title, shrinkPriority: 1 },
      {
        title: 'ANSWER',
        value: (one) => (one.answeredAt === null ? '' : (one.answer?.name ?? 'turn ended')),
      },
    ],
    { width: context.stdout.columns, header: style.dim },
  );
}
