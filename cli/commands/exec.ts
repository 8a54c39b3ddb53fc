import { environment } from '../option-values.ts';
import type { Registry } from '../registry.ts';

interface ExecOptions {
  tty?: boolean;
  stdin: boolean;
  env?: Record<string, string>;
  cwd?: string;
}

export function registerExec(registry: Registry): void {
  const command = registry
    .command(registry.root, {
      usage: 'exec <session> <command...>',
      description: 'run a command beside the agent, in /workspace; passes on its input, output and exit code',
      operands: ['session', 'none'],
      examples: [
        'holdfast exec default -- ls -la',
        'holdfast exec -t default -- sh                         a shell in a terminal',
        `tar c data | holdfast exec default -- tar x            standard input goes in as it is`,
      ],
    })
    .option('-t, --tty', 'give it a terminal')
    .option('--no-stdin', 'give it no standard input')
    .option('--env <name=value>', 'a variable of its environment; may be repeated', environment)
    .option('--cwd <dir>', 'where it runs (default: /workspace)');
  registry.setAction(command, async (context, options: ExecOptions, session: string, words: string[]) => {
    const { execute } = await import('../exec.ts');
    return execute(context, {
      session,
      command: words,
      tty: options.tty === true,
      stdin: options.stdin,
      env: options.env ?? {},
      cwd: options.cwd,
    });
  });
}
