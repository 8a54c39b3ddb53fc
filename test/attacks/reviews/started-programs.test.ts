import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const PROGRAM = join(import.meta.dirname, '../../../scripts/holdfast.cjs');
const canTrace =
  process.platform === 'linux' && spawnSync('strace', ['-qq', '-o', '/dev/null', 'true']).status === 0;

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
});
afterAll(async () => {
  await home.dispose();
});

/** Starts `holdfast ARGS` under a trace, in `cwd` and with that folder first in PATH. */
function traced(trace: string, args: readonly string[], cwd: string) {
  const strace = ['-f', '-qq', '-s', '4096', '-e', 'trace=execve,execveat', '-o', trace];
  const child = spawn('strace', [...strace, '--', process.execPath, PROGRAM, ...args], {
    cwd,
    env: { ...process.env, HOLDFAST_HOME: home.path, PATH: `.:${process.env['PATH'] ?? ''}` },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (output += text));
  return { child, output: () => output };
}

/** Every program that was started, or that was tried. */
function programsIn(trace: string): { readonly path: string; readonly started: boolean }[] {
  return readFileSync(trace, 'utf8')
    .split('\n')
    .flatMap((line) => {
      const found = /execve(?:at)?\((?:[^"]*, )?"([^"]*)"/.exec(line);
      return found === null ? [] : [{ path: found[1] ?? '', started: line.endsWith(' = 0') }];
    });
}

/** What an agent would write so that a program of the person's, or of Holdfast, runs something. */
function hostileScript(mark: string): string {
  const program = `#!/bin/sh\\necho ran >> ${mark}\\n`;
  const names = ['git', 'node', 'sh', 'less', 'docker', 'diff', 'ssh', 'rg', 'evil', 'holdfast'];
  return [
    `for name in ${names.join(' ')}; do printf '${program}' > $name; chmod +x $name; done`,
    'mkdir -p .git/hooks .vscode bin; cp evil .git/hooks/post-index-change; cp evil bin/less',
    `printf '[core]\\n\\tfsmonitor = ./evil\\n\\tpager = ./evil\\n\\thooksPath = .git/hooks\\n[diff "x"]\\n\\ttextconv = ./evil\\n\\tcommand = ./evil\\n[filter "x"]\\n\\tsmudge = ./evil\\n\\tclean = ./evil\\n' > .git/config`,
    `echo 'ref: refs/heads/main' > .git/HEAD; mkdir -p .git/objects .git/refs`,
    `echo '* diff=x filter=x' > .gitattributes; echo 'node-options=--require ./evil.cjs' > .npmrc`,
    `echo 'require("fs").appendFileSync("${mark}", "ran")' > evil.cjs; cp evil.cjs index.js`,
    `echo '{"main":"./evil.cjs","type":"commonjs","scripts":{"preinstall":"./evil"}}' > package.json`,
    `echo '{}' > .vscode/tasks.json; echo 'export X=$(./evil)' > .bashrc; echo 'x' > .lesskey`,
    'printf "one\\ntwo\\n\\033]0;title\\007" > text.txt; printf "\\000\\001" > binary.dat',
    `: > '$(evil)'; : > '; evil'; : > '--output=evil'; ln -s evil link`,
  ].join('; ');
}

test.skipIf(!canTrace)(
  'whatever an agent wrote, reviewing it in its own folder starts nothing but ourselves (needs strace)',
  { timeout: 180_000 },
  async () => {
    const project = await writeProject(home.projects, {
      'holdfast.yaml':
        'name: hostile\nagent: { protocol: command, command: [sh] }\npersistence: persistent\n',
      'text.txt': 'one\n',
      'gone.txt': 'gone\n',
    });
    const mark = join(home.projects, 'mark');
    const ofSupervisor = join(home.projects, 'supervisor.trace');
    const supervisor = traced(ofSupervisor, ['supervisor', 'start'], project);
    await vi.waitFor(async () => expect(supervisor.output()).not.toBe(''), {
      timeout: 60_000,
      interval: 100,
    });
    await home.runOk(['deploy', project]);
    await home.runOk(['run', 'hostile', `rm gone.txt; ${hostileScript(mark)}`]);
    const { path: workspace } = z
      .object({ path: z.string() })
      .parse(await home.runJson(['workspace', 'info', 'hostile/default']));

    const session = 'hostile/default';
    const commands: readonly (readonly string[])[] = [
      ['review', session],
      ['review', 'diff', session],
      ['review', 'diff', session, 'text.txt'],
      ['review', 'accept', session, 'text.txt', '.gitattributes', '$(evil)', '; evil'],
      ['review', 'reject', session, 'evil.cjs', 'link'],
      ['review', 'undo', session],
      ['review', 'comment', session, 'text.txt:2', 'why?'],
      ['review', 'blame', session, 'text.txt'],
      ['review', 'accept', session, '--all'],
      ['session', 'show', session, '--conversation'],
      ['session', 'events', session],
      ['manifest', 'show', session],
      ['artifact', 'create', session, '--patch'],
    ];
    for (const [at, args] of commands.entries()) {
      const trace = join(home.projects, `command-${at}.trace`);
      const { child, output } = traced(trace, args, workspace);
      const [code] = (await once(child, 'close')) as [number | null];
      expect([args, code, code === 0 ? '' : output()]).toEqual([args, 0, '']);
      const programs = programsIn(trace);
      expect([args, programs.filter(({ path }) => path !== process.execPath)]).toEqual([args, []]);
      expect(programs.some(({ started }) => started)).toBe(true);
    }

    const served = programsIn(ofSupervisor);
    expect(served.filter(({ path }) => path !== process.execPath)).toEqual([]);
    expect(served.filter(({ started }) => started).length).toBeGreaterThan(1);
    expect(existsSync(mark) && readFileSync(mark, 'utf8')).toBe(false);
  },
);
