// Handing 1,000 changed files over beside `git format-patch | git am`, and reviewing them: node bench/handoff.ts [--json] [--rounds N]
import { execFile, execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import type { Result } from '../protocol/methods.ts';
import { deployOver } from '../test/setup/deploy.ts';
import { Installation } from './installation.ts';
import { interleave, median, Report, timed } from './measure.ts';

const run = promisify(execFile);
const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 7 : Number(process.argv[wanted + 1]);
const FILES = 5000;
const CHANGED = 1000;
const LINES = 100;
/** The line that the agent changes in each of its files. */
const CHANGED_LINE = 50;
const PROGRAM = join(import.meta.dirname, '../dist/holdfast.cjs');
const GIT_ENV = {
  PATH: process.env['PATH'] ?? '',
  HOME: '/nonexistent',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_AUTHOR_NAME: 'Bench',
  GIT_AUTHOR_EMAIL: 'bench@example.org',
  GIT_COMMITTER_NAME: 'Bench',
  GIT_COMMITTER_EMAIL: 'bench@example.org',
};
const MadeSchema = z.object({ files: z.int(), tree: z.string() });

const pathOf = (n: number): string => `src/d${n % 50}/e${n % 7}/file${n}.ts`;
const lineOf = (file: number, line: number): string =>
  `line ${line} of file ${file}, with some ordinary words in it\n`;
/** The same change, made by the agent. */
const CHANGE = `
for n in range(0, ${FILES}, ${FILES / CHANGED}):
    path = '/workspace/src/d%d/e%d/file%d.ts' % (n % 50, n % 7, n)
    with open(path) as f: lines = f.readlines()
    lines[${CHANGED_LINE}] = 'changed in file %d\\n' % n
    with open(path, 'w') as f: f.writelines(lines)
`;

const git = (cwd: string, ...command: string[]): string =>
  execFileSync('git', command, {
    cwd,
    env: GIT_ENV,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    maxBuffer: 2 ** 30,
  }).trim();

async function writeFiles(folder: string, isChanged: boolean): Promise<void> {
  for (let n = 0; n < FILES; n += 1) {
    if (isChanged && n % (FILES / CHANGED) !== 0) continue;
    const lines = Array.from({ length: LINES }, (_, at) =>
      isChanged && at === CHANGED_LINE ? `changed in file ${n}\n` : lineOf(n, at),
    );
    await mkdir(join(folder, pathOf(n), '..'), { recursive: true });
    await writeFile(join(folder, pathOf(n)), lines.join(''));
  }
}

const installation = await Installation.open();
const { client, agentImage } = installation;
const top = await mkdtemp(join(tmpdir(), 'holdfast-bench-handoff-'));
const [repository, beside] = [join(top, 'repository'), join(top, 'beside')];
const report = new Report('Handing 1,000 changed files of 5,000 over', {
  git: git(tmpdir(), '--version').replace('git version ', ''),
  image: agentImage,
});

/** The whole command, as a person runs it in the repository: with the start of its process. */
async function holdfast(...command: string[]): Promise<string> {
  const env = { ...GIT_ENV, HOLDFAST_HOME: installation.home };
  const { stdout } = await run(process.execPath, [PROGRAM, ...command], { cwd: repository, env });
  return stdout;
}

try {
  await mkdir(repository);
  git(repository, 'init', '-q', '-b', 'main');
  await writeFiles(repository, false);
  await writeFile(
    join(repository, 'holdfast.yaml'),
    'name: bench-handoff\nagent: { protocol: command, command: [python3, "-"] }\npersistence: persistent\n',
  );
  git(repository, 'add', '-A');
  git(repository, 'commit', '-q', '-m', 'base');
  git(top, 'clone', '-q', repository, beside);
  await deployOver(client, repository);
  const session = (await client.call('session/create', { profile: 'bench-handoff' })).session.id;
  const { turn } = await client.call('turn/start', { session, prompt: CHANGE });
  await client.call('turn/wait', { turn: turn.turnId });

  await writeFiles(beside, true);
  git(beside, 'checkout', '-q', '-b', 'changed');
  git(beside, 'commit', '-q', '-a', '-m', 'changed');
  const tree = git(beside, 'rev-parse', 'changed^{tree}');
  git(beside, 'checkout', '-q', 'main');

  const handOff = async (to: string): Promise<number> => {
    let stdout = '';
    const ms = await timed(async () => (stdout = await holdfast('handoff', session, '--to', to, '--json')));
    const made = MadeSchema.parse(JSON.parse(stdout));
    if (made.files !== CHANGED || made.tree !== tree)
      throw new Error(`${made.files} files in tree ${made.tree}`);
    await holdfast('handoff', 'undo');
    return ms;
  };
  /** Applies the change in a checkout of `main`, which `prepare` makes, and puts the checkout back. How long both took, ms. */
  const gitAm = async (cwd: string, prepare?: readonly [string, ...string[]]): Promise<number> => {
    const ms = await timed(async () => {
      if (prepare !== undefined) await run(prepare[0], prepare.slice(1), { env: GIT_ENV });
      await run('sh', ['-c', 'git format-patch --stdout main..changed | git am -q'], { cwd, env: GIT_ENV });
    });
    if (git(cwd, 'rev-parse', 'HEAD^{tree}') !== tree) throw new Error('git am made another tree');
    if (prepare === undefined) git(cwd, 'reset', '-q', '--hard', 'HEAD^');
    else git(beside, 'worktree', 'remove', '--force', cwd);
    return ms;
  };
  const samples = await interleave(rounds, {
    worktree: () => handOff('worktree'),
    branch: () => handOff('branch'),
    am: () => gitAm(beside),
    worktreeAm: () => {
      const folder = join(top, 'worktree');
      return gitAm(folder, ['git', '-C', beside, 'worktree', 'add', '-q', '--detach', folder, 'main']);
    },
  });
  // Each beside what makes the same: `git am` alone writes the changed files only, and a new worktree has all of them.
  const am = 'git format-patch | git am';
  for (const [name, of, peer, peerOf] of [
    ['a handoff into a new worktree', samples.worktree, `git worktree add, ${am}`, samples.worktreeAm],
    ['a handoff to a new branch', samples.branch, am, samples.am],
  ] as const) {
    report.add({ name, ours: median(of), unit: 'ms', target: { atMost: 3000 }, samples: rounds });
    report.add({
      name: `${name}, beside git`,
      ours: median(of),
      unit: 'ms',
      peer: { name: peer, value: median(peerOf) },
      ratio: median(of) / median(peerOf),
      target: { atMost: 2 },
      samples: rounds,
    });
  }
  report.add({
    name: 'a handoff into a new worktree, beside git in a checkout that is there',
    ours: median(samples.worktree),
    unit: 'ms',
    peer: { name: am, value: median(samples.am) },
    ratio: median(samples.worktree) / median(samples.am),
    samples: rounds,
  });

  const path = `/workspace/${pathOf(0)}`;
  const showHunk = async (): Promise<Result<'review/file'>> =>
    await client.call('review/file', { session, path });
  const first = await timed(() => client.call('review/open', { session }));
  const seen = await showHunk();
  const hunk = seen.hunks[0]?.id;
  if (hunk === undefined || seen.hunks.length !== 1) throw new Error(`${seen.hunks.length} hunks`);
  const reviewing = await interleave(rounds, {
    open: () => timed(() => client.call('review/open', { session })),
    list: () =>
      timed(async () => {
        const { review } = await client.call('review/files', { session });
        if (review.counts.files !== CHANGED) throw new Error(`${review.counts.files} files`);
      }),
    diff: () => {
      git(beside, 'diff', '--numstat', 'main', 'changed');
      return undefined;
    },
    accept: async () => {
      const decisions = [{ path, seen: seen.file.id, hunks: [hunk] }];
      const ms = await timed(() => client.call('review/decide', { session, verdict: 'accept', decisions }));
      await client.call('review/undo', { session });
      return ms;
    },
  });
  const numstat = { name: 'git diff --numstat of the same change', value: median(reviewing.diff) };
  report.add({
    name: 'a review, opened for the first time',
    ours: first,
    unit: 'ms',
    peer: numstat,
    samples: 1,
  });
  report.add({
    name: 'the review, opened again',
    ours: median(reviewing.open),
    unit: 'ms',
    peer: numstat,
    ratio: median(reviewing.open) / numstat.value,
    samples: rounds,
  });
  report.add({
    name: 'the first page of its files',
    ours: median(reviewing.list),
    unit: 'ms',
    samples: rounds,
  });
  report.add({ name: 'one hunk accepted', ours: median(reviewing.accept), unit: 'ms', samples: rounds });
} finally {
  await installation.dispose();
  await rm(top, { recursive: true, force: true });
}
if (!report.finish()) process.exitCode = 1;
