import { HoldfastError } from '../../protocol/errors.ts';
import { buildCompletionTree } from '../completion/tree.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import type { Registry } from '../registry.ts';
import { sanitizeLine } from '../render/text.ts';

const ANSWER_MS = 1500;
const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

export function registerCompletion(registry: Registry): void {
  const command = registry.command(registry.root, {
    usage: 'completion <shell>',
    description: 'print a completion script for bash, zsh or fish',
    examples: [
      'source <(holdfast completion bash)',
      'holdfast completion fish > ~/.config/fish/completions/holdfast.fish',
    ],
  });
  registry.setAction(command, async (context, _options, shell: string) => {
    const script = await scriptFor(shell, registry);
    if (context.json) await context.printJson({ shell, script });
    else await context.stdout.write(script);
    return undefined;
  });

  // The completion scripts call this. Prints nothing if no supervisor is running: completion must never start one.
  const words = registry.command(registry.root, {
    usage: '__complete <kind>',
    description: 'completion candidates, one per line',
    hidden: true,
  });
  registry.setAction(words, async (context, _options, kind: string) => {
    const found = await wordsOf(context, kind);
    // Skip names with characters that a terminal would interpret. Names cannot contain line breaks.
    const offered = found.filter((word) => word === sanitizeLine(word));
    if (context.json) await context.printJson({ words: offered });
    else await context.print(...offered);
    return undefined;
  });
}

async function scriptFor(shell: string, registry: Registry): Promise<string> {
  const tree = buildCompletionTree(registry);
  switch (shell as Shell) {
    case 'bash':
      return (await import('../completion/bash.ts')).bashScript(tree);
    case 'zsh':
      return (await import('../completion/zsh.ts')).zshScript(tree);
    case 'fish':
      return (await import('../completion/fish.ts')).fishScript(tree);
    default:
      throw new UsageError(`${sanitizeLine(shell)} is not supported; use one of ${SHELLS.join(', ')}`);
  }
}

async function wordsOf(context: Context, kind: string): Promise<string[]> {
  const options = { start: 'never', timeoutMs: ANSWER_MS } as const;
  try {
    if (kind === 'profile') {
      const { profiles } = await context.call('profile/list', {}, options);
      return profiles.map((profile) => profile.name);
    }
    if (kind === 'host') {
      const { HostList } = await import('../../hosts/base/host-list.ts');
      return new HostList(context.home).all().map((host) => host.name);
    }
    if (kind !== 'session') return [];
    const { sessions } = await context.call('session/list', { limit: 500 }, options);
    const names = sessions.map((session) => session.name);
    // A name that several profiles use needs its profile.
    return sessions.map(({ name, profile }) =>
      names.indexOf(name) === names.lastIndexOf(name) ? name : `${profile}/${name}`,
    );
  } catch (error) {
    if (error instanceof HoldfastError) return [];
    throw error;
  }
}
