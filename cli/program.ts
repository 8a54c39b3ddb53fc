import { Command } from 'commander';
import type { Argument } from 'commander';
import type { CliIo } from './io.ts';
import { Registry } from './registry.ts';
import type { Runner } from './registry.ts';
import { registerCheck } from './commands/check.ts';
import { registerCompletion } from './commands/completion.ts';
import { registerSearch } from './commands/conversation.ts';
import { registerConnect } from './commands/connect.ts';
import { registerEvents } from './commands/events.ts';
import { registerExec } from './commands/exec.ts';
import { registerHistory } from './commands/history.ts';
import { registerMemory } from './commands/memory.ts';
import { registerHandoff } from './commands/handoff.ts';
import { registerInit } from './commands/init.ts';
import { registerManifests } from './commands/manifest.ts';
import { registerArtifacts } from './commands/artifact.ts';
import { registerHosts } from './commands/hosts.ts';
import { registerPermissions } from './commands/permissions.ts';
import { registerPolicy } from './commands/policy.ts';
import { registerProfiles } from './commands/profiles.ts';
import { registerReview } from './commands/review.ts';
import { registerRun } from './commands/run.ts';
import { registerSetup } from './commands/setup.ts';
import { registerSecrets } from './commands/secrets.ts';
import { registerSessionMove } from './commands/session-move.ts';
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

const INTRODUCTION = `Persistent, safe, inspectable workspaces for AI coding agents. Each session owns a /workspace that outlives its containers. The supervisor starts automatically on first use.`;

const AFTER = `
Start here:
  $ holdfast init                         write a holdfast.yaml for the project in this folder
  $ holdfast deploy .                     deploy the profile in that folder
  $ holdfast run NAME 'Fix the tests'     run one turn and print what the agent answers
  $ holdfast session list                 list sessions

Exit codes: 0 success, 1 failure, 2 usage error, 130 cancelled. \`exec\` exits with the code of its command.
Environment: HOLDFAST_HOME selects the installation (default ~/.holdfast); NO_COLOR turns colours off;
HOLDFAST_PAGER, else PAGER, names the pager (--no-pager: none).`;

export const HEADINGS = {
  work: 'Work:',
  sessions: 'Sessions:',
  maintenance: 'Maintenance:',
} as const;

function argumentTerm(argument: Argument): string {
  const name = argument.name() + (argument.variadic ? '...' : '');
  return argument.required ? `<${name}>` : `[${name}]`;
}

/** Builds the whole command tree without connecting to anything. Calls `run` for the command that was typed. */
export function buildProgram(io: CliIo, run: Runner): Command {
  const style = createStyle(io.stdout.isTTY === true, io.env);
  const root = new Command('holdfast')
    .description(INTRODUCTION)
    .usage('COMMAND …')
    .version(versionLine(), '-V, --version', 'print the version')
    .helpOption('-h, --help', 'show help for a command')
    .helpCommand(false)
    // A command with commands and options of its own leaves their options to them.
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void io.stdout.write(text),
      writeErr: (text) => void io.stderr.write(text),
      // main.ts catches usage errors and prints them in the format of all errors.
      outputError: () => undefined,
      getOutHelpWidth: () => Math.min(io.stdout.columns ?? 100, 110),
      getErrHelpWidth: () => Math.min(io.stderr.columns ?? 100, 110),
      getOutHasColors: () => style.bold('') !== '',
      getErrHasColors: () => style.bold('') !== '',
    })
    .configureHelp({
      styleTitle: (text) => style.bold(text),
      // Every command has options, so `[options]` on each line would be noise.
      subcommandTerm: (command) =>
        [command.name(), ...command.registeredArguments.map(argumentTerm)].join(' '),
    })
    .addHelpText('after', AFTER);
  const registry = new Registry(root, run);
  root.commandsGroup(HEADINGS.work);
  registerInit(registry);
  registerProfiles(registry);
  registerRun(registry);
  registerTurns(registry);
  registerPermissions(registry);
  registerExec(registry);
  registerTerminals(registry);
  root.commandsGroup(HEADINGS.sessions);
  const session = registerSessions(registry);
  registerSessionMove(registry, session);
  registerEvents(registry, session);
  registerSearch(registry, session);
  registerHistory(registry);
  registerMemory(registry);
  registerWorkspace(registry);
  registerSnapshots(registry);
  registerReview(registry);
  registerCheck(registry);
  registerPolicy(registry);
  registerSecrets(registry);
  registerSetup(registry);
  registerHandoff(registry);
  registerArtifacts(registry);
  registerManifests(registry);
  root.commandsGroup(HEADINGS.maintenance);
  registerMaintenance(registry);
  registerHosts(registry);
  registerSupervisor(registry);
  registerConnect(registry);
  registerCompletion(registry);
  registerVersion(registry);
  root.addHelpCommand(
    new Command('help')
      .argument('[command]')
      .description('show help for a command')
      .helpGroup(HEADINGS.maintenance),
  );
  registry.registerUnavailable(root, ['retention', 'serve']);
  registry.registerUnavailable(session, ['undelete']);
  return root;
}
