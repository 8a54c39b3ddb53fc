import { HoldfastError } from '../../protocol/errors.ts';
import type { TerminalLaunch, TurnLaunch } from '../wire.ts';

/** The kernel's limit for one argument or one NAME=VALUE, with its NUL. */
const ARGUMENT_BYTES = 128 * 1024;
/** All of them together; the kernel's own limit is 2 MiB with the pointers. */
const TOTAL_BYTES = 1536 * 1024;
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** What guest/turn.sh keeps for itself. */
const RESERVED = /^(hf_|HOLDFAST_)/;

/** Text that the shell reads as this very string, whatever is in it. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function checked(text: string, what: string): string {
  if (text.includes('\0')) {
    throw new HoldfastError('invalid_params', `${what} cannot be passed to a program`, {
      why: 'it has a NUL byte',
    });
  }
  const bytes = Buffer.byteLength(text);
  if (bytes >= ARGUMENT_BYTES) {
    throw new HoldfastError('invalid_params', `${what} cannot be passed to a program`, {
      why: `it has ${bytes} bytes, and at most ${ARGUMENT_BYTES - 1} are possible`,
      next: 'pass it on stdin or in a file',
    });
  }
  return text;
}

/** Where things are in the agent's container. */
export interface AgentPaths {
  readonly runtime: string;
  readonly code: string;
}

/** The program that runs a handler, by its file. */
export function workerCommand(entry: string, { runtime, code }: AgentPaths): string[] {
  const path = `${code}/${entry}`;
  const parts = entry.split('/');
  if (entry.startsWith('/') || parts.includes('..') || parts.includes('')) {
    throw new HoldfastError('invalid_params', `${entry} cannot be a handler`, {
      why: 'it is not a path below the deployed code',
    });
  }
  if (entry.endsWith('.py')) return ['python3', `${runtime}/worker.py`, path];
  if (/\.[mc]?js$/.test(entry)) return ['node', `${runtime}/worker.mjs`, path];
  throw new HoldfastError('invalid_params', `${entry} cannot be a handler`, {
    why: 'its name ends neither in .py nor in .js, .mjs or .cjs',
    next: 'use agent.protocol: command for other programs',
  });
}

/** What guest/turn.sh reads before it becomes the program. `argv` is the command, or the worker's. */
export function launchScript(launch: TurnLaunch, argv: readonly string[]): string {
  if (argv.length === 0) throw new HoldfastError('invalid_params', 'There is no command to run');
  return programScript(launch.freshTmp ? ['hf_fresh_tmp=1'] : [], launch.env, argv);
}

/** What guest/terminal.sh reads. */
export function terminalScript({ argv, env, cwd, columns, rows }: TerminalLaunch): string {
  const settings = [
    `hf_cwd=${quoted(checked(cwd, 'The working directory'))}`,
    `hf_columns=${columns}`,
    `hf_rows=${rows}`,
  ];
  return programScript(settings, env, argv);
}

function programScript(
  settings: readonly string[],
  env: Readonly<Record<string, string>>,
  argv: readonly string[],
): string {
  const lines = [...settings];
  for (const [name, value] of Object.entries(env)) {
    if (!NAME.test(name) || RESERVED.test(name)) {
      throw new HoldfastError(
        'invalid_params',
        `The environment variable ${JSON.stringify(name)} cannot be set`,
        {
          why: RESERVED.test(name) ? 'names that begin so are ours' : 'names have letters, digits and _ only',
        },
      );
    }
    lines.push(`export ${name}=${quoted(checked(value, `The environment variable ${name}`))}`);
  }
  lines.push(`set -- ${argv.map((argument, at) => quoted(checked(argument, `Argument ${at}`))).join(' ')}`);
  const script = `${lines.join('\n')}\n`;
  if (Buffer.byteLength(script) > TOTAL_BYTES) {
    throw new HoldfastError('invalid_params', 'The command cannot be run', {
      why: `its arguments and environment together have more than ${TOTAL_BYTES} bytes`,
      next: 'pass it on stdin or in a file',
    });
  }
  return script;
}
