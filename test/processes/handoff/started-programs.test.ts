import { fork, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import type { HandoffConnection } from '../../../handoff/changes.ts';
import type { TracedClientOptions } from '../../fixtures/handoff/traced-client.ts';
import {
  type Files,
  GIT_ENV,
  handedOverSession,
  PersonsRepository,
} from '../../fixtures/handoff/handoff-fixture.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

const CLIENT = join(import.meta.dirname, '../../fixtures/handoff/traced-client.ts');
const canTrace =
  process.platform === 'linux' && spawnSync('strace', ['-qq', '-o', '/dev/null', 'true']).status === 0;
const GIT_PROGRAMS = realpathSync(
  spawnSync('git', ['--exec-path'], { encoding: 'utf8', env: GIT_ENV }).stdout.trim(),
);

/** A program that leaves a mark where it runs. */
const marks = (mark: string): { readonly run: string } => ({
  run: `#!/bin/sh\necho ran >> ${mark}\n/bin/cat\n`,
});

/** What an agent would write so that git, or a program that starts git, runs something. */
function hostile(mark: string): Files {
  const program = marks(mark);
  const config = `[core]\n\tfsmonitor = ${mark}.sh\n\thooksPath = hooks\n\tpager = ./evil\n\tsshCommand = ./evil\n[filter "agents"]\n\tclean = ./evil\n\tsmudge = ./evil\n\trequired = true\n[diff "agents"]\n\ttextconv = ./evil\n\tcommand = ./evil\n[alias]\n\tstatus = !./evil\n`;
  const repository = {
    HEAD: 'ref: refs/heads/main\n',
    config: `${config}[core]\n\tbare = true\n`,
    'objects/info/alternates': '/etc\n',
    'refs/heads/main': `${'1'.repeat(40)}\n`,
    'hooks/post-checkout': program,
    'hooks/reference-transaction': program,
  };
  const below = (folder: string): Files =>
    Object.fromEntries(Object.entries(repository).map(([path, file]) => [`${folder}/${path}`, file]));
  const attributes = '* filter=agents diff=agents merge=agents\n* filter=theirs diff=theirs merge=theirs\n';
  return {
    a: 'changed\n',
    'b.dat': 'data\n',
    evil: program,
    git: program,
    node: program,
    sh: program,
    cat: program,
    'git-status': program,
    'tools/smudge': program,
    '.gitattributes': attributes,
    'sub/.gitattributes': attributes,
    'sub/file': 'text\n',
    '.gitconfig': config,
    '.gitmodules': '[submodule "m"]\n\tpath = m\n\turl = ext::sh -c ./evil%\n\tupdate = !./evil\n',
    '.lfsconfig': '[lfs]\n\turl = ext::./evil\n',
    '.husky/post-checkout': program,
    '.vscode/tasks.json': '{}',
    'package.json': '{"scripts":{"postinstall":"./evil"}}',
    ...below('.git'),
    ...below('.GIT'),
    ...below('git~1'),
    ...below('.g\xe2\x80\x8cit'),
    ...below('bare'),
    ...below('bare.git'),
    'nested/.git': 'gitdir: ../bare\n',
    'linked/.git': { link: '../bare' },
  };
}

/** A person's repository with programs of its own, which no handoff starts because of what an agent wrote. */
function prepared() {
  const repository = new PersonsRepository();
  const mark = join(temporaryDirectory(), 'mark');
  const own = join(temporaryDirectory(), 'own');
  writeFileSync(own, `#!/bin/sh\necho own >> ${mark}\n/bin/cat\n`);
  writeFileSync(`${mark}.sh`, `#!/bin/sh\necho own >> ${mark}\n`);
  chmodSync(own, 0o755);
  chmodSync(`${mark}.sh`, 0o755);
  const before = { a: '1\n', 'b.dat': 'data\n', 'sub/file': 'text\n' };
  const head = repository.commit(before);
  repository.git('config', 'core.fsmonitor', `${mark}.sh`);
  for (const name of ['clean', 'smudge']) repository.git('config', `filter.theirs.${name}`, own);
  for (const name of ['diff.theirs.textconv', 'diff.theirs.command', 'merge.theirs.driver', 'core.pager'])
    repository.git('config', name, own);
  const hooks = join(repository.folder, '.git/hooks');
  mkdirSync(hooks, { recursive: true });
  for (const hook of ['post-checkout', 'pre-commit', 'reference-transaction', 'post-index-change']) {
    writeFileSync(join(hooks, hook), `#!/bin/sh\necho hook >> ${mark}\n`);
    chmodSync(join(hooks, hook), 0o755);
  }
  return { repository, mark, head, before };
}

/** Runs the client under a trace. Resolves with every program that it or git started or tried to start. */
async function programsOf(
  connection: HandoffConnection,
  options: TracedClientOptions,
): Promise<{ readonly path: string; readonly started: boolean }[]> {
  const trace = join(temporaryDirectory(), 'trace');
  const client = fork(CLIENT, [JSON.stringify(options)], {
    execPath: 'strace',
    execArgv: [
      ...['-f', '-qq', '-s', '4096', '-e', 'trace=execve,execveat', '-o', trace],
      ...['--', process.execPath],
    ],
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  client.on('message', ({ id, method, params }: { id: number; method: never; params: never }) => {
    void connection.callWithBytes(method, params).then(
      ({ result, bytes }) =>
        client.connected && client.send({ id, result, bytes: bytes.toString('base64') }, () => undefined),
      (error: unknown) => client.connected && client.send({ id, error: String(error) }, () => undefined),
    );
  });
  const code = await new Promise((resolve) => client.on('exit', resolve));
  expect(code).toBe(0);
  return readFileSync(trace, 'utf8')
    .split('\n')
    .flatMap((line) => {
      const found = /execve(?:at)?\((?:[^"]*, )?"([^"]*)"/.exec(line);
      return found === null ? [] : [{ path: found[1] ?? '', started: line.endsWith(' = 0') }];
    });
}

test.skipIf(!canTrace)(
  'whatever an agent wrote, a handoff and its undo start nothing but git (needs strace)',
  { timeout: 120_000 },
  async () => {
    const { repository, mark, head, before } = prepared();
    const { connection } = await handedOverSession(before, hostile(mark), { head });
    // The client stands in the repository, and looks for git there first.
    const env = { ...GIT_ENV, PATH: `.::${GIT_ENV['PATH']}` };
    const targets = ['worktree', 'branch', 'tree', 'patch', 'dir'] as const;
    const programs = await programsOf(connection, { folder: repository.folder, env, targets });
    const isExpected = (path: string): boolean =>
      path === process.execPath || path.endsWith('/git') || dirname(path) === GIT_PROGRAMS;
    const started = programs.filter((one) => one.started).map(({ path }) => path);
    expect(started.filter((path) => !isExpected(path))).toEqual([]);
    expect(started.length).toBeGreaterThan(50);
    const top = dirname(repository.folder);
    expect(programs.filter(({ path }) => !path.startsWith('/') || path.startsWith(top))).toEqual([]);
    expect(existsSync(mark) && readFileSync(mark, 'utf8')).toBe(false);
    expect(readFileSync(join(top, 'handed-over/a'), 'utf8')).toBe('changed\n');
  },
);
