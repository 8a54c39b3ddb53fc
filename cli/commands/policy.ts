import {
  parseHostPattern,
  type Policy,
  type PolicyRule,
  type RuleScope,
  formatHostPattern,
} from '../../protocol/egress.ts';
import { explainSharedFront, explainWideWildcard } from '../../protocol/profile-validation.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import type { Registry } from '../registry.ts';
import { formatRelativeTime } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';

interface ScopeOptions {
  once?: boolean;
  session?: boolean;
  profile?: boolean;
  tcp?: boolean;
  ech?: boolean;
}

const ORIGIN: Record<PolicyRule['from'], string> = {
  once: 'next connection only',
  session: 'this session',
  profile: 'added to the profile',
  file: 'holdfast.yaml',
};

export function registerPolicy(registry: Registry): void {
  const group = registry.group('policy', 'show and change which hosts a sandbox may reach');
  const show = registry.command(group, {
    usage: 'show <session>',
    description: 'show the rules in order of precedence, and where each comes from',
    operands: ['session'],
  });
  registry.setAction(show, async (context, _options, session: string) => {
    const { policy } = await context.call('policy/show', { session });
    await printPolicy(context, policy);
    for (const { host, effect, tcp } of policy.rules) {
      const pattern = parseHostPattern(host);
      const shared = effect === 'deny' || tcp || 'refused' in pattern ? null : explainSharedFront(pattern);
      if (shared !== null) await context.printNote(`warning: the rule ${host} may reach more: ${shared}`);
    }
    return undefined;
  });

  for (const effect of ['allow', 'deny'] as const) {
    const leaf = registry
      .command(group, {
        usage: `${effect} <session> <host>`,
        description:
          effect === 'allow'
            ? 'allow connections to HOST or HOST:PORT (default ports 443 and 80); *.HOST matches all subdomains'
            : 'deny connections to HOST and close existing ones',
        operands: ['session'],
        examples:
          effect === 'allow'
            ? [
                'holdfast policy allow default api.example.com',
                "holdfast policy allow default '*.example.org:8443' --profile",
              ]
            : ['holdfast policy deny default api.example.com'],
      })
      .option('--session', 'for this session only (default)')
      .option('--profile', 'for every session of its profile; kept across deploys');
    if (effect === 'allow')
      leaf
        .option('--once', 'for the next connection only')
        .option('--tcp', 'carry any protocol, unread; otherwise only HTTP, and TLS that names the host')
        .option('--ech', 'carry TLS with Encrypted ClientHello, whose name nobody can check');
    registry.setAction(leaf, async (context, options: ScopeOptions, session: string, host: string) => {
      const params = {
        ...{ session, host: checked(host), scope: scopeOf(options) },
        ...(options.tcp === true ? { tcp: true as const } : {}),
        ...(options.ech === true ? { ech: 'allow' as const } : {}),
      };
      const { policy } = await context.call(`policy/${effect}`, params);
      await printPolicy(context, policy);
      const pattern = parseHostPattern(params.host);
      const wide = effect === 'deny' || 'refused' in pattern ? null : explainWideWildcard(pattern);
      if (wide !== null) await context.printNote(`warning: the rule ${params.host} is wide: ${wide}`);
      return undefined;
    });
  }
}

function checked(text: string): string {
  const pattern = parseHostPattern(text);
  if (!('refused' in pattern)) return formatHostPattern(pattern);
  throw new UsageError(`${JSON.stringify(text)} is not a valid host: ${pattern.refused}`);
}

function scopeOf({ once, session, profile }: ScopeOptions): RuleScope {
  if ([once, session, profile].filter((one) => one === true).length > 1)
    throw new UsageError('--once, --session and --profile cannot be combined');
  if (once === true) return 'once';
  return profile === true ? 'profile' : 'session';
}

function shownEffect({ effect, quiet, tcp, ech }: PolicyRule): string {
  if (quiet) return `${effect}, not reported`;
  if (tcp) return `${effect}, any protocol`;
  return ech ? `${effect}, with ECH` : effect;
}

async function printPolicy(context: Context, policy: Policy): Promise<void> {
  if (context.json) {
    await context.printJson(policy);
    return;
  }
  if (policy.rules.length === 0) {
    await context.print('No hosts are allowed: the sandbox has no network access.');
    return;
  }
  const { style } = context;
  const lines = formatTable(
    policy.rules,
    [
      { title: 'HOST', value: ({ host }) => host },
      {
        title: 'EFFECT',
        value: shownEffect,
        paint: ({ effect }) => (effect === 'allow' ? style.green : style.red),
      },
      { title: 'FROM', value: ({ from }) => ORIGIN[from] },
      {
        title: 'ADDED',
        value: ({ addedAt }) => (addedAt === null ? '' : formatRelativeTime(addedAt, context.io.now())),
      },
    ],
    { width: context.stdout.columns, header: style.dim },
  );
  await context.print(...lines);
}
