import type { Command } from 'commander';
import { pathOf } from '../registry.ts';
import type { OperandKind, Registry } from '../registry.ts';

/** One command, as the completion scripts need it. */
export interface CompletionNode {
  /** Words after the program's name; empty for the program itself. */
  readonly path: readonly string[];
  readonly description: string;
  readonly subcommands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly {
    readonly flag: string;
    readonly description: string;
    readonly takesValue: boolean;
    /** What its value is: a kind of name, or one of these words. */
    readonly value: OperandKind | readonly string[];
  }[];
  /** What its operands are, in order. */
  readonly operands: readonly OperandKind[];
}

/** The command tree as a flat list, the program first, without hidden commands and options. */
export function buildCompletionTree(registry: Registry): CompletionNode[] {
  const nodes: CompletionNode[] = [];
  const visit = (command: Command) => {
    const help = command.createHelp();
    const subcommands = help
      .visibleCommands(command)
      .filter((one) => one.parent === command && one.name() !== 'help');
    nodes.push({
      path: pathOf(command),
      description: command.description(),
      subcommands: subcommands.map((one) => ({
        name: one.name(),
        description: firstWords(one.description()),
      })),
      options: help.visibleOptions(command).flatMap((option) => {
        const takesValue = option.required || option.optional;
        return [option.long, option.short]
          .filter((flag): flag is string => typeof flag === 'string')
          .map((flag) => ({
            ...{ flag, description: firstWords(option.description), takesValue },
            value:
              option.argChoices ??
              (option.flags.includes('<host>') ? 'host' : VALUES[option.long ?? '']) ??
              'none',
          }));
      }),
      operands: registry.operandsOf(command),
    });
    for (const one of subcommands) visit(one);
  };
  visit(registry.root);
  return nodes;
}

/** Options whose values are names that a supervisor or the list of hosts knows, and folders. Others are completed as files. */
const VALUES: Readonly<Record<string, OperandKind>> = {
  '--host': 'host',
  '--session': 'session',
  '--profile': 'profile',
  '--home': 'directory',
  '--repository': 'directory',
};

/** The beginning of a description, without characters that need escaping in a shell script. */
function firstWords(description: string): string {
  return (description.split(/[;:(]/)[0] ?? '').replaceAll(/[^A-Za-z0-9 ,./_-]/g, '').trim();
}
