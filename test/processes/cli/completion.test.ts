// Completion in the shells themselves, where they are installed. A program of this name in the PATH stands for holdfast.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { HostList } from '../../../hosts/base/host-list.ts';
import { runToEnd } from '../../fixtures/cli/cli-run.ts';
import { profile, session } from '../../fixtures/cli/fake-supervisor.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

const NOWHERE = '/nonexistent/home';

function directory(): string {
  const path = mkdtempSync(join(tmpdir(), 'holdfast-cli-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

describe('candidates', () => {
  test('come from a running supervisor; ambiguous names include the profile', async () => {
    const { home } = await startFakeSupervisor({
      'session/list': () => ({
        sessions: [
          session({ name: 'a b' }),
          session({ name: 'default' }),
          session({ name: 'default', profile: 'other' }),
          session({ name: 'evil\u001b[2J' }),
        ],
        nextCursor: null,
      }),
      'profile/list': () => ({ profiles: [profile()] }),
    });
    expect((await runToEnd(['__complete', 'session'], { home })).stdout).toBe(
      'a b\ncounter/default\nother/default\n',
    );
    expect((await runToEnd(['__complete', 'profile'], { home })).stdout).toBe('counter\n');
  });

  test('without a supervisor there are none and no error, and none is started; hosts need none', async () => {
    expect(await runToEnd(['__complete', 'session'], { home: NOWHERE })).toEqual({
      code: 0,
      stdout: '',
      stderr: '',
    });
    const home = directory();
    new HostList(home).add('far', 'ssh://me@far.example.com', new Date(0));
    expect((await runToEnd(['__complete', 'host'], { home })).stdout).toBe('far\n');
  });
});

type Complete = (...words: string[]) => string[];

/** A folder with the script of a shell, and a program that knows sessions, profiles and hosts. */
async function givenShell(shell: string, names: readonly string[]) {
  const path = directory();
  const { stdout } = await runToEnd(['completion', shell], { home: NOWHERE });
  writeFileSync(join(path, 'script'), stdout);
  writeFileSync(
    join(path, 'holdfast'),
    `#!/bin/sh\ncase "$2" in\nsession) cat <<'EOF'\n${names.join('\n')}\nEOF\n;;\nprofile) echo coder;;\nhost) echo far;;\nesac\n`,
    { mode: 0o755 },
  );
  const env = { PATH: `${path}:${process.env['PATH'] ?? ''}`, HOME: path, XDG_CONFIG_HOME: path };
  const run = (args: readonly string[]): string[] =>
    execFileSync(shell, args, { encoding: 'utf8', env, cwd: path, stdio: ['ignore', 'pipe', 'ignore'] })
      .split('\n')
      .filter((word) => word !== '');
  return { path, run };
}

const SHELLS: Readonly<
  Record<string, (run: (args: readonly string[]) => string[], path: string) => Complete>
> = {
  bash:
    (run, path) =>
    (...words) =>
      run([
        ...['--norc', '-c'],
        `source ${path}/script; COMP_WORDS=(holdfast "$@"); COMP_CWORD=$#; _holdfast; printf '%s\\n' "\${COMPREPLY[@]}"`,
        ...['bash', ...words],
      ]),
  // Without a terminal: the two builtins that show candidates print them.
  zsh:
    (run, path) =>
    (...words) =>
      run([
        ...['-f', '-c'],
        [
          'compdef() { :; }',
          `source ${path}/script`,
          'words=(holdfast "$@") CURRENT=$#words PREFIX=$words[-1]',
          'offer() { for one in "$@"; do [[ $one == "$PREFIX"* ]] && print -r -- "$one"; done; true; }',
          '_describe() { offer "${(@)${(@P)2}%%:*}"; }',
          'compadd() { if [[ $1 == -a ]]; then offer "${(@P)2}"; else shift; offer "$@"; fi; }',
          '_files() { print -r -- "files $*"; }',
          '_holdfast',
        ].join('\n'),
        ...['zsh', ...words],
      ]),
  fish:
    (run, path) =>
    (...words) =>
      run([
        ...['--no-config', '-c'],
        `source ${path}/script; complete -C "holdfast $argv[1]"`,
        words.map((word) => word.replaceAll(' ', '\\ ')).join(' '),
      ]).map((line) => line.split('\t')[0] ?? ''),
};

const isInstalled = (shell: string): boolean => spawnSync(shell, ['-c', 'true']).status === 0;

describe.each(Object.entries(SHELLS))('in %s', (shell, completeIn) => {
  test.skipIf(!isInstalled(shell))(
    `commands, options, names and values are completed, and names are not evaluated (needs ${shell})`,
    async () => {
      const marker = join(tmpdir(), `holdfast-evaluated-${String(process.pid)}-${shell}`);
      const evil = `it's $(touch ${marker})`;
      const { run, path } = await givenShell(shell, ['default', evil, 'draft']);
      const complete = completeIn(run, path);
      expect(complete('ses')).toEqual(['session']);
      expect(complete('session', 're').toSorted()).toEqual(['reset', 'resume']);
      expect(complete('run', '--s')).toEqual(['--session']);
      expect(complete('session', 'show', 'd').toSorted()).toEqual(['default', 'draft']);
      expect(complete('session', 'update', '--name', 'x', 'dr')).toEqual(['draft']);
      expect(complete('session', 'show', 'it')).toHaveLength(1);
      // A group that is a command itself.
      expect(complete('review', 'd').toSorted()).toEqual(['default', 'diff', 'draft']);
      expect(complete('session', 'list', '--host', '')).toEqual(['far']);
      expect(complete('host', 'doctor', 'f')).toEqual(['far']);
      expect(complete('snapshot', 'import', 'c')).toEqual(['coder']);
      expect(complete('session', 'list', '--profile', 'co')).toEqual(['coder']);
      expect(complete('handoff', 'default', '--to', 'wor')).toEqual(['worktree']);
      expect(complete('session', 'move', 'draft', '--to', 'f')).toEqual(['far']);
      expect(spawnSync('test', ['-e', marker]).status).toBe(1);
    },
  );
});

test('the scripts contain every command but those of later versions', async () => {
  for (const shell of Object.keys(SHELLS)) {
    const { stdout } = await runToEnd(['completion', shell], { home: NOWHERE });
    for (const word of ['deploy', 'session', 'resume', 'workspace', 'supervisor'])
      expect(stdout).toContain(word);
    expect(stdout).not.toContain('undelete');
  }
});
