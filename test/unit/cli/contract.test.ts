import { PassThrough } from 'node:stream';
import type { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { buildProgram } from '../../../cli/program.ts';
import { CHANGE_KINDS } from '../../../protocol/snapshots.ts';
import { DISPATCH_CASES, SESSION_STATUSES } from '../../../protocol/entities.ts';
import { runToEnd } from '../../fixtures/cli/cli-run.ts';

/**
 * What scripts and other programs rely on. Renaming or removing anything in this file breaks them. Adding is fine.
 * Each line: a command, its operands, its options.
 */
const COMMANDS: readonly (readonly [command: string, operands: string, ...options: string[]])[] = [
  ['deploy', '<dir>', '--remove-secret-files'],
  ['undeploy', '<profile>', '--force'],
  ['profiles', ''],
  ['run', '<profile> <input>', '--attach', '--session', '--timeout', '--no-wait', '--artifact'],
  ['prompt', '<session> [text]', '--no-wait'],
  ['permission list', '[session]', '--all', '--limit'],
  ['permission answer', '<permission> <answer>'],
  ['exec', '<session> <command...>', '-t'],
  ['turn show', '<turn>'],
  ['turn changes', '<turn>'],
  ['turn edit', '<turn> <prompt>'],
  ['turn cancel', '<turn>'],
  ['turn wait', '<turn>'],
  ['session create', '<profile>', '--name', '--from'],
  ['session list', '', ...['--status', '--search', '--pinned', '--archived', '--tag', '--limit', '--cursor']],
  ['session show', '<session>', '--conversation', '--no-pager'],
  ['session search', '<text>', '--session', '--limit'],
  ['session pause', '<session>'],
  ['session stop', '<session>', '--memory'],
  ['session resume', '<session>', '--from', '--preview'],
  ['session reset', '<session>'],
  [
    'session update',
    '<session>',
    ...['--name', '--pin', '--unpin', '--star', '--unstar', '--archive', '--unarchive', '--tag', '--model'],
  ],
  ['session delete', '<session>', '--force'],
  ['session move', '<session>', '--to', '--name', '--profile', '--wait', '--abort'],
  ['session events', '<session>', '--after', '--follow', '--type', '--no-pager'],
  ['history cut', '<session>', '--before', '--keep', '--dry-run', '--force'],
  ['memory show', '<session>'],
  ['memory set', '<session> [text]'],
  ['memory history', '<session>'],
  ['workspace info', '<session>'],
  ['workspace du', '<session> [path]'],
  ['workspace clean', '<session>', '--force'],
  ['workspace ls', '<session> [path]'],
  ['workspace cat', '<session> <paths...>'],
  ['workspace put', '<session> <paths...>'],
  ['workspace rm', '<session> <paths...>'],
  ['workspace search', '<session> <pattern> [path]'],
  ['snapshot create', '<session>', '--label'],
  ['snapshot list', '<session>', '--graph'],
  ['snapshot show', '<snapshot>'],
  ['snapshot verify', '<snapshot>'],
  ['snapshot delete', '<snapshot>'],
  ['snapshot diff', '<a> <b>', '--stat', '--patch'],
  ['snapshot restore', '<session> <snapshot>', '--path', '--preview'],
  ['snapshot fork', '<snapshot>', '--name'],
  ['snapshot export', '<snapshot> <file>'],
  ['snapshot import', '<profile> <file>', '--name', '--key', '--wait'],
  ['review', '<session>', '--base', '--no-pager'],
  ['review diff', '<session> [path]', '--no-pager'],
  ['review accept', '<session> [paths...]', '--all'],
  ['review reject', '<session> [paths...]', '--all'],
  ['review withdraw', '<session> <paths...>'],
  ['review undo', '<session>'],
  ['review comment', '<session> [place] [text]', '--side', '--send', '--remove'],
  ['review blame', '<session> <file>', '--no-pager'],
  ['check', '<session> [name]', '--accepted', '--again', '--list'],
  ['policy show', '<session>'],
  ['policy allow', '<session> <host>'],
  ['policy deny', '<session> <host>'],
  ['secret set', '<name>', '--profile', '--expires'],
  ['secret list', ''],
  ['secret login', '<preset>'],
  ['secret rm', '<name>', '--profile'],
  ['setup run', '<profile>', '--remove-secret-files'],
  ['setup status', '<profile>'],
  ['setup log', '<profile> [setup]'],
  ['terminal open', '<session> [command...]'],
  ['terminal list', '[session]'],
  ['terminal attach', '<terminal>'],
  ['terminal close', '<terminal>'],
  [
    'handoff',
    '<session>',
    ...['--to', '--paths', '--message', '--branch', '--dir', '--output', '--onto', '--include-quarantined'],
    ...['--repository', '--unreviewed', '--preview'],
  ],
  ['handoff undo', '[handoff]', '--force', '--repository'],
  ['manifest show', '<session>', '--id', '--output'],
  ['manifest list', '<session>'],
  ['manifest verify', '<file-or-session>', '--key'],
  ['manifest diff', '<a> [b]'],
  ['manifest key', ''],
  ['artifact create', '<session>', '--paths', '--patch', '--name', '--unreviewed'],
  ['artifact list', '[session]'],
  ['artifact show', '<artifact>', '--files', '--sums', '--manifest'],
  ['artifact export', '<artifact>', '--dir', '--paths', '--include-quarantined'],
  ['artifact rm', '<artifacts...>'],
  ['gc', '', '--dry-run'],
  ['doctor', ''],
  ['purge', '', '--force'],
  ['supervisor start', ''],
  ['supervisor stop', ''],
  ['supervisor status', ''],
  ['supervisor logs', ''],
  ['connect', ''],
  ['host add', '<name> <destination>'],
  ['host list', ''],
  ['host rm', '<name>'],
  ['host doctor', '<name>'],
  ['host update', '<name>'],
  ['profiles', '', '--host'],
];

/** Commands that later versions will have: until then they fail with `not_supported`. */
const PLANNED: readonly string[] = [
  'session undelete default',
  'retention plan',
  'retention apply',
  'serve --port 1',
];

const io = {
  stdin: new PassThrough(),
  stdout: new PassThrough(),
  stderr: new PassThrough(),
  env: {},
  cwd: '/',
  supervisorCommand: ['holdfast'],
  connectorCommand: ['holdfast'],
  now: () => 0,
  onSignal: () => () => undefined,
};
const program = buildProgram(io, () => Promise.resolve());

function find(path: string): Command | undefined {
  return path
    .split(' ')
    .reduce<Command | undefined>(
      (command, name) => command?.commands.find((one) => one.name() === name),
      program,
    );
}

function operandsOf(command: Command): string {
  return command.registeredArguments
    .map((operand) => {
      const name = `${operand.name()}${operand.variadic ? '...' : ''}`;
      return operand.required ? `<${name}>` : `[${name}]`;
    })
    .join(' ');
}

describe('the contract of the command line', () => {
  test.each(COMMANDS)('%s %s', (path, operands, ...options) => {
    const command = find(path);
    expect(command, path).toBeDefined();
    if (command === undefined) return;
    expect(operandsOf(command)).toBe(operands);
    const available = command.options.flatMap(({ long, short }) => [long, short]);
    expect(available).toEqual(expect.arrayContaining([...options, '--home']));
  });

  test.each(PLANNED)('%s is planned and fails with not_supported', async (line) => {
    const { code, stdout, stderr } = await runToEnd(line.split(' '), { home: '/nonexistent/home' });
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/^error not_supported: /);
  });

  test('the values of documents', () => {
    expect(SESSION_STATUSES).toEqual([
      'created',
      'active',
      'idle',
      'paused',
      'resumable',
      'expired',
      'deleted',
    ]);
    expect([...DISPATCH_CASES].sort()).toEqual([
      'create',
      'fresh',
      'reattach',
      'resurrect',
      'reuse',
      'unpause',
    ]);
    expect([...CHANGE_KINDS].sort()).toEqual([
      'added',
      'deleted',
      'mode',
      'modified',
      'renamed',
      'typechange',
    ]);
  });
});
