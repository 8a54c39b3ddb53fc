import { describe, expect, test } from 'vitest';
import { runToEnd } from '../../fixtures/cli/cli-run.ts';

const nowhere = '/nonexistent/home';

describe('a command line that is wrong ends with 2 and says how', () => {
  test.each([
    [['sesion', 'list'], /^error usage: unknown command 'sesion'; did you mean session\?/],
    [['session', 'lst'], /unknown command 'lst'; did you mean list\?/],
    [['run', 'counter'], /^error usage: missing required argument 'input'/],
    [['run', 'counter', '{}', '--sesion', 'x'], /unknown option '--sesion'; did you mean --session\?/],
    [['run', 'counter', '{}', '--timeout', 'soon'], /--timeout.*a number of seconds/],
    [['session', 'list', '--status', 'asleep'], /Allowed values: created, active/],
    [['session', 'list', '--limit', '0'], /--limit.*from 1 to 1000/],
    [['session', 'show', 'a', 'b'], /too many arguments/],
    [
      ['--host', 'far', 'profiles'],
      /--host stands behind the command, as in `holdfast session list --host far`/,
    ],
    [['--home=/x', 'profiles'], /--home stands behind the command, as in `holdfast session list --home=\/x`/],
    [['--json', 'profiles'], /--json stands behind the command, as in `holdfast session list --json`/],
    [['session', 'update', 'a'], /no change was given/],
    [['session', 'update', 'a', '--pin', '--unpin'], /cannot be used with/],
    [
      ['session', 'resume', 'a', '--from', 'yesterday'],
      /--from cannot be yesterday; use files, clean, memory or snapshot:ID/,
    ],
    [['exec', '-t', 'a', '--', 'sh'], /-t needs a terminal/],
    [['session', 'create', 'p', '--from', 'clean'], /--from cannot be clean; use snapshot:ID/],
    [['session', 'resume', 'a', '--from', 'snapshot:x'], /^error invalid_params: x is not a snapshot id/],
    [['snapshot', 'show', 'turn-1'], /^error invalid_params: turn-1 is not a snapshot id/],
    [['snapshot', 'update', 'snp-aaaaaaaaaaaaaaaa'], /no change was given/],
    [['snapshot', 'list', 'a', '--reason', 'fun'], /--reason.*Allowed values: manual, start, before-turn/],
    [['turn', 'wait', 'turn-1'], /^error invalid_params: turn-1 is not a turn id/],
    [['completion', 'tcsh'], /bash, zsh, fish/],
  ])('%j', async (argv, said) => {
    const { code, stdout, stderr } = await runToEnd(argv, { home: nowhere });
    expect(stderr).toMatch(said);
    expect({ code, stdout, lines: stderr.split('\n').length }).toEqual({ code: 2, stdout: '', lines: 2 });
  });

  test('a group alone shows its commands on standard error', async () => {
    const { code, stdout, stderr } = await runToEnd(['session'], { home: nowhere });
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('resume <session>');
  });

  test.each([
    ['session', 'undelete', 'a'],
    ['session', 'undelete', 'a', '--json'],
    ['retention', 'plan', '--to', 'branch'],
    ['retention', 'plan'],
    ['serve', '--port', '1'],
  ])('a command of a later version is refused by its name: %s %s', async (...argv) => {
    const { code, stdout, stderr } = await runToEnd(argv, { home: nowhere });
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/^error not_supported: `.*` is not available in this version/);
  });
});

describe('signing in with an account', () => {
  test.each([
    ['claude', 'Claude Code', /Anthropic’s terms/, 'ANTHROPIC_API_KEY'],
    ['anthropic', 'Claude Code', /Anthropic’s terms/, 'ANTHROPIC_API_KEY'],
    ['codex', 'Codex', /ChatGPT account is for OpenAI’s own client/, 'OPENAI_API_KEY'],
    ['gemini', 'Gemini CLI', /Google’s terms forbid/, 'GEMINI_API_KEY'],
    ['opencode', 'OpenCode', /no sign-in of its own/, 'ANTHROPIC_API_KEY'],
    ['qwen', 'Qwen Code', /ended the sign-in/, 'OPENAI_API_KEY'],
  ])('to %s is refused in one sentence, with what to do instead', async (name, title, why, secret) => {
    const { code, stdout, stderr } = await runToEnd(['secret', 'login', name], { home: nowhere });
    expect({ code, stdout, lines: stderr.split('\n').length }).toEqual({ code: 1, stdout: '', lines: 2 });
    expect(stderr).toContain(`error not_supported: Holdfast cannot sign in to ${title}`);
    expect(stderr).toMatch(why);
    expect(stderr).toMatch(
      new RegExp(`get a key at https://[^ ]+ and set it with .holdfast secret set ${secret}`),
    );
  });

  test('to what is no preset names the presets', async () => {
    const { code, stderr } = await runToEnd(['secret', 'login', 'nobody'], { home: nowhere });
    expect(code).toBe(2);
    expect(stderr).toContain('choose one of claude, codex, gemini, opencode, qwen');
  });
});

describe('help', () => {
  test('lists the available commands and no others', async () => {
    const { code, stdout, stderr } = await runToEnd(['--help'], { home: nowhere });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    for (const word of ['deploy', 'run', 'prompt', 'exec', 'session', 'workspace', 'doctor', 'Start here']) {
      expect(stdout).toContain(word);
    }
    expect(stdout).toContain('snapshot');
    expect(stdout).not.toMatch(/__complete|retention/);
  });

  test.each([
    ['help', 'run'],
    ['run', '--help'],
  ])('%s %s says the same', async (...argv) => {
    const { code, stdout } = await runToEnd(argv, { home: nowhere });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^Usage: holdfast run \[options\] <profile> <input>/);
  });

  test('of a command has examples', async () => {
    const { code, stdout } = await runToEnd(['exec', '--help'], { home: nowhere });
    expect(code).toBe(0);
    expect(stdout).toContain('$ holdfast exec -t default -- sh');
  });

  test.each([['version'], ['--version'], ['-V']])('%s', async (word) => {
    const { code, stdout } = await runToEnd([word], { home: nowhere });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^holdfast \d+\.\d+\.\d+ \(build [0-9a-f]{16}\)\n$/);
  });
});
