import { Option } from 'commander';
import type { Command } from 'commander';
import type { Context } from './context.ts';
import { notInThisVersion, withNames } from './failure.ts';

/** Options that every command has. */
export interface CommonOptions {
  readonly json?: boolean;
  readonly home?: string;
  /** Another machine, by its name in the list of hosts. */
  readonly host?: string;
}

/** What a command does. Resolves with the exit code; undefined means 0. */
export type Action<Operands extends readonly unknown[], Options> = (
  context: Context,
  options: Options & CommonOptions,
  ...operands: Operands
) => Promise<number | undefined>;

/** Which candidates shell completion offers for an operand. The supervisor provides names of sessions and profiles. */
export type OperandKind = 'session' | 'profile' | 'host' | 'directory' | 'none';

export interface CommandOptions {
  /** As commander has it: `run <profile> <input>`. */
  readonly usage: string;
  readonly description: string;
  readonly examples?: readonly string[];
  readonly operands?: readonly OperandKind[];
  /** For commands that stream raw bytes and have no JSON document to print. */
  readonly withoutJson?: boolean;
  /** For commands that concern only this machine. */
  readonly withoutHost?: boolean;
  readonly hidden?: boolean;
}

/** Runs the action of the command that was parsed. */
export type Runner = (
  options: CommonOptions,
  act: (context: Context) => Promise<number | undefined>,
) => Promise<void>;

/** The command tree while it is being built. Every group registers its commands here. */
export class Registry {
  readonly root: Command;
  readonly #run: Runner;
  readonly #operands = new WeakMap<Command, readonly OperandKind[]>();

  constructor(root: Command, run: Runner) {
    this.root = root;
    this.#run = run;
  }

  group(name: string, description: string, heading?: string): Command {
    const group = this.root
      .command(name)
      .description(description)
      .helpCommand('help [command]', 'show help for a command');
    if (heading !== undefined) group.helpGroup(heading);
    return group;
  }

  command(parent: Command, options: CommandOptions): Command {
    const command = parent
      .command(options.usage, { hidden: options.hidden ?? false })
      .description(options.description);
    if (options.withoutJson !== true) command.option('--json', 'print only JSON on standard output');
    command.option('--home <dir>', 'the installation to use (default: $HOLDFAST_HOME or ~/.holdfast)');
    if (options.withoutHost !== true)
      command.addOption(new Option('--host <name>', 'the machine to use (see `holdfast host list`)'));
    if (options.examples !== undefined) {
      command.addHelpText(
        'after',
        `\nExamples:\n${options.examples.map((line) => `  $ ${line}`).join('\n')}`,
      );
    }
    this.#operands.set(command, options.operands ?? []);
    return command;
  }

  /** How shell completion completes each operand of a command. */
  operandsOf(command: Command): readonly OperandKind[] {
    return this.#operands.get(command) ?? [];
  }

  /** Sets what a command does. Commander passes the operands, then the options, then the command itself. */
  setAction<Operands extends readonly unknown[], Options>(
    command: Command,
    action: Action<Operands, Options>,
  ): void {
    command.action(async (...given: unknown[]) => {
      const options = given.at(-2) as Options & CommonOptions;
      const operands = given.slice(0, -2) as unknown as Operands;
      const named = { SESSION: this.#sessionOf(command, operands) };
      await this.#run(options, async (context) => {
        try {
          return await action(context, options, ...operands);
        } catch (error) {
          throw withNames(error, named, context.host);
        }
      });
    });
  }

  /** What the person called the session of a command. */
  #sessionOf(command: Command, operands: readonly unknown[]): string | undefined {
    const name = operands[this.operandsOf(command).indexOf('session')];
    return typeof name === 'string' ? name : undefined;
  }

  /** Registers commands that a later version will have. Running one fails with `not_supported`. */
  registerUnavailable(parent: Command, names: readonly string[]): void {
    for (const name of names) {
      const command = parent
        .command(name, { hidden: true })
        .description('not available in this version')
        .allowUnknownOption()
        .allowExcessArguments()
        .helpOption(false)
        .argument('[words...]');
      command.action(() => {
        throw notInThisVersion([...pathOf(parent), name].join(' '));
      });
    }
  }
}

/** `session create` → ['session', 'create'], without the program's own name. */
export function pathOf(command: Command): string[] {
  const parent = command.parent;
  return parent === null ? [] : [...pathOf(parent), command.name()];
}
