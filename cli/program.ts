import { Command } from 'commander';
import type { Argument } from 'commander';
import type { CliIo } from './io.ts';
import { Registry } from './registry.ts';
import type { Runner } from './registry.ts';
import { registerCompletion } from './commands/completion.ts';
import { registerConnect } from './commands/connect.ts';
import { registerEvents } from './commands/events.ts';
import { registerExec } from './commands/exec.ts';
import { registerPolicy } from './commands/policy.ts';
import { registerProfiles } from './commands/profiles.ts';
import { registerRun } from './commands/run.ts';
import { registerSessions } from './commands/sessions.ts';
import { registerSnapshots } from './commands/snapshots.ts';
import { registerSupervisor } from './commands/supervisor.ts';
import { registerTerminals } from './commands/terminals.ts';
import { registerTurns } from './commands/turns.ts';
import { registerMaintenance } from './commands/maintenance.ts';
import { registerVersion } from './commands/version.ts';
import { registerWorkspace } from './commands/workspace.ts';
import { createStyle } from './render/style.ts';
import { versionLine } from './version.ts';

const INTRODUCTION = `Keeps an AI agent's working state safe and in reach: every session owns a /workspace that outlives its sandbox.
The supervisor starts by itself at first use.`;

const AFTER = `
Start here:
  $ holdfast deploy examples/counter      read its holdfast.yaml, publish its code
  $ holdfast run counter '{}'             one turn; prints what the agent returns
  $ holdfast session list                 what there is, and since when

Exit codes: 0 done, 1 it failed, 2 usage, 130 cancelled. \`exec\` passes on the code of what it ran.
Environment: HOLDFAST_HOME (default ~/.holdfast) separates installations; NO_COLOR switches colours off.`;

export const HEADINGS = {
  work: 'Work:',
  sessions: 'Sessions:',
  maintenance: 'Upkeep:',
} as const;

function argumentTerm(argument: Argument): string {
  const name = argument.name() + (argument.variadic ? '...' : '');
  return argument.required ? `<${name}>` : `[${name}]`;
}

/** The whole command tree. Building it talks to nobody; \`run\` is called for the command that was typed. */
export function buildProgram(io: CliIo, run: Runner): Command {
  const style = createStyle(io.stdout.isTTY === true, io.env);
  const root = new Command('holdfast')
    .description(INTRODUCTION)
    .usage('COMMAND …')
    .version(versionLine(), '-V, --version', 'print the version')
    .helpOption('-h, --help', 'say what a command does')
    .helpCommand(false)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void io.stdout.write(text),
      writeErr: (text) => void io.stderr.write(text),
      // Complaints are worded by whoever catches them.
      outputError: () => undefined,
      getOutHelpWidth: () => Math.min(io.stdout.columns ?? 100, 110),
      getErrHelpWidth: () => Math.min(io.stderr.columns ?? 100, 110),
      getOutHasColors: () => style.bold('') !== '',
      getErrHasColors: () => style.bold('') !== '',
    })
    .configureHelp({
      styleTitle: (text) => style.bold(text),
      // Every command has options; saying so on each line says nothing.
      subcommandTerm: (command) =>
        [command.name(), ...command.registeredArguments.map(argumentTerm)].join(' '),
    })
    .addHelpText('after', AFTER);
  const registry = new Registry(root, run);
  root.commandsGroup(HEADINGS.work);
  registerProfiles(registry);
  registerRun(registry);
  registerTurns(registry);
  registerExec(registry);
  registerTerminals(registry);
  root.commandsGroup(HEADINGS.sessions);
  const session = registerSessions(registry);
  registerEvents(registry, session);
  registerWorkspace(registry);
  registerSnapshots(registry);
  registerPolicy(registry);
  root.commandsGroup(HEADINGS.maintenance);
  registerMaintenance(registry);
  registerSupervisor(registry);
  registerConnect(registry);
  registerCompletion(registry);
  registerVersion(registry);
  root.addHelpCommand(
    new Command('help')
      .argument('[command]')
      .description('say what a command does')
      .helpGroup(HEADINGS.maintenance),
  );
  registry.registerUnavailable(root, [
    'memory',
    'manifest',
    'review',
    'handoff',
    'secret',
    'retention',
    'host',
  ]);
  return root;
}
