import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { launchScript, workerCommand } from '../../../sidecar/turns/launch-script.ts';
import { turnLaunch } from '../../fixtures/sidecar/turns.ts';

const PLACES = { runtime: '/opt/holdfast', code: '/agent' };

/** What a shell makes of it: the arguments and one variable, NUL after each. */
function throughShell(script: string, variable: string): string[] {
  const shell = `${script}\nexec printf '%s\\0' "$${variable}" "$@"`;
  return execFileSync('sh', ['-c', shell], { encoding: 'utf8' }).split('\0').slice(0, -1);
}

test('every argument and value reaches the program as it was, whatever is in it', () => {
  const nasty = [
    '',
    ' ',
    "'",
    "'\\''",
    '"',
    '$HOME `id` $(id)',
    'a\nb\r\t',
    '-n',
    '\\',
    '*',
    '\u0001\u007f\u0081',
    'ü🦀',
    '--',
    '#',
    '!x',
  ];
  const script = launchScript(turnLaunch({ env: { ODD: nasty.join('|') } }), ['program', ...nasty]);
  expect(throughShell(script, 'ODD')).toEqual([nasty.join('|'), 'program', ...nasty]);
});

test('what no program can be given is refused with the reason', () => {
  const refused =
    (argv: string[], env: Record<string, string> = {}) =>
    () =>
      launchScript(turnLaunch({ env }), argv);
  expect(refused([])).toThrow(expect.objectContaining({ code: 'invalid_params' }));
  expect(refused(['a\0b'])).toThrow(expect.objectContaining({ why: 'it has a NUL byte' }));
  expect(refused(['a', 'x'.repeat(128 * 1024)])).toThrow(/Argument 1/);
  expect(refused(['a'], { 'A B': '1' })).toThrow(/"A B"/);
  expect(refused(['a'], { HOLDFAST_TURN: '1' })).toThrow(
    expect.objectContaining({ why: 'the prefix is reserved' }),
  );
  expect(refused(['a', ...Array.from({ length: 16 }, () => 'x'.repeat(100_000))])).toThrow(
    expect.objectContaining({ code: 'invalid_params' }),
  );
  expect(refused(['a', 'x'.repeat(128 * 1024 - 1)])).not.toThrow();
});

test('a handler is a file below the deployed code, of a kind that has a worker', () => {
  expect(workerCommand('a/agent.py', PLACES)).toEqual([
    'python3',
    '/opt/holdfast/worker.py',
    '/agent/a/agent.py',
  ]);
  for (const name of ['agent.js', 'agent.mjs', 'agent.cjs']) {
    expect(workerCommand(name, PLACES)).toEqual(['node', '/opt/holdfast/worker.mjs', `/agent/${name}`]);
  }
  for (const name of ['', '/etc/x.py', '../x.py', 'a/../../x.py', 'a//x.py', 'agent.rb', 'agent']) {
    expect(() => workerCommand(name, PLACES)).toThrow(expect.objectContaining({ code: 'invalid_params' }));
  }
});
