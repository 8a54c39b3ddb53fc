import { HoldfastError } from '../../protocol/errors.ts';
import type { ProcessLaunch, TerminalLaunch, TurnLaunch } from '../wire.ts';

/** The kernel's limit for one argument or one NAME=VALUE, including the NUL. */
const ARGUMENT_BYTES = 128 * 1024;
/** Limit for all arguments and variables together. The kernel's own limit is 2 MiB including the pointers. */
const TOTAL_BYTES = 1536 * 1024;
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** Names that guest/turn.sh reserves for itself. */
const RESERVED = /^(hf_|HOLDFAST_)/;

/** Quotes text so that the shell reads exactly this string. */
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
      why: `it has ${bytes} bytes; the limit is ${ARGUMENT_BYTES - 1}`,
      next: 'pass it on stdin or in a file',
    });
  }
  return text;
}

/** Paths in the agent's container. */
export interface AgentPaths {
  readonly runtime: string;
  readonly code: string;
}

/** The command that runs a handler, chosen by the file's extension. */
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
    why: 'its name must end in .py, .js, .mjs or .cjs',
    next: 'use agent.protocol: command for other programs',
  });
}

/** The script that guest/turn.sh sources before it execs the program. `argv` is the command, or the worker's. */
export function launchScript(launch: TurnLaunch, argv: readonly string[]): string {
  if (argv.length === 0) throw new HoldfastError('invalid_params', 'There is no command to run');
  return programScript(launch.freshTmp ? ['hf_fresh_tmp=1'] : [], launch.env, argv);
}

/** The script that guest/terminal.sh sources. */
export function terminalScript({ argv, env, cwd, columns, rows }: TerminalLaunch): string {
  const settings = [
    `hf_cwd=${quoted(checked(cwd, 'The working directory'))}`,
    `hf_columns=${columns}`,
    `hf_rows=${rows}`,
  ];
  return programScript(settings, env, argv);
}

/** The script that guest/process.sh sources. */
export function processScript({ argv, env, cwd }: ProcessLaunch): string {
  return programScript([`hf_cwd=${quoted(checked(cwd, 'The working directory'))}`], env, argv);
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
          why: RESERVED.test(name) ? 'the prefix is reserved' : 'a name may have only letters, digits and _',
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
