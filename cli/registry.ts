import { Option } from 'commander';
import type { Command } from 'commander';
import type { Context } from './context.ts';
import { EXIT, notInThisVersion } from './failure.ts';

/** Options that every command has. */
export interface CommonOptions {
  readonly json?: boolean;
  readonly home?: string;
}

/** What a command does with its operands and options; the exit code, 0 when it returns nothing. */
export type Action<Operands extends readonly unknown[], Options> = (
  context: Context,
  options: Options & CommonOptions,
  ...operands: Operands
) => Promise<number | undefined>;

/** What kind of word completes an operand; the supervisor knows the words. */
export type OperandKind = 'session' | 'profile' | 'directory' | 'none';

export interface CommandOptions {
  /** As commander has it: `run <profile> <input>`. */
  readonly usage: string;
  readonly description: string;
  readonly examples?: readonly string[];
  readonly operands?: readonly OperandKind[];
  /** A bridge of raw bytes has no JSON of its own to print. */
  readonly withoutJson?: boolean;
  readonly hidden?: boolean;
}

/** Runs an action for the command line that was parsed. */
export type Runner = (
  options: CommonOptions,
  act: (context: Context) => Promise<number | undefined>,
) => Promise<void>;

/** The command tree while it is being built: every group registers its leaves here. */
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
      .helpCommand('help [command]', 'say what a command does');
    if (heading !== undefined) group.helpGroup(heading);
    return group;
  }

  command(parent: Command, options: CommandOptions): Command {
    const command = parent
      .command(options.usage, { hidden: options.hidden ?? false })
      .description(options.description);
    if (options.withoutJson !== true)
      command.option('--json', 'print JSON and nothing else on standard output');
    command.option('--home <dir>', 'the installation to use (default: $HOLDFAST_HOME or ~/.holdfast)');
    // Parses so that it can be refused by name instead of as a typing mistake.
    command.addOption(new Option('--host <name>').hideHelp());
    if (options.examples !== undefined) {
      command.addHelpText(
        'after',
        `\nExamples:\n${options.examples.map((line) => `  $ ${line}`).join('\n')}`,
      );
    }
    this.#operands.set(command, options.operands ?? []);
    return command;
  }

  /** What the operands of a leaf are completed with. */
  operandsOf(command: Command): readonly OperandKind[] {
    return this.#operands.get(command) ?? [];
  }

  /** Binds a leaf to what it does. Commander gives the operands, then the options, then the command itself. */
  setAction<Operands extends readonly unknown[], Options>(
    command: Command,
    action: Action<Operands, Options>,
  ): void {
    command.action(async (...given: unknown[]) => {
      const options = given.at(-2) as Options & CommonOptions & { readonly host?: string };
      const operands = given.slice(0, -2) as unknown as Operands;
      if (options.host !== undefined) throw notInThisVersion('--host');
      await this.#run(options, (context) => action(context, options, ...operands));
    });
  }

  /** A command of the contract that this version does not have: typing it says so. */
  registerUnavailable(parent: Command, names: readonly string[]): void {
    for (const name of names) {
      const command = parent
        .command(name, { hidden: true })
        .description('not in this version')
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

/** `session create` → ['session', 'create']; the program's own name is left out. */
export function pathOf(command: Command): string[] {
  const parent = command.parent;
  return parent === null ? [] : [...pathOf(parent), command.name()];
}

export const DONE = EXIT.done;
