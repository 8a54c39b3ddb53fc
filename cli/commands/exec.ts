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
      description: "run a command in the agent's container, in /workspace; exits with its exit code",
      operands: ['session', 'none'],
      examples: [
        'holdfast exec default -- ls -la',
        'holdfast exec -t default -- sh                         an interactive shell',
        `tar c data | holdfast exec default -- tar x            standard input is passed through`,
      ],
    })
    .option('-t, --tty', 'allocate a terminal')
    .option('--no-stdin', 'do not pass standard input')
    .option('--env <name=value>', 'set an environment variable; repeatable', environment)
    .option('--cwd <dir>', 'working directory (default: /workspace)');
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
