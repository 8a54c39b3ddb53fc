import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const MadeSchema = z.object({
  commit: z.string(),
  folder: z.string(),
  handoff: z.string(),
  branch: z.string(),
  manifest: z.string(),
});

const ManifestsSchema = z.object({
  manifests: z.array(z.object({ id: z.string(), reason: z.string(), snapshot: z.string().nullable() })),
});

const ReviewedSchema = z.object({
  review: z.object({ base: z.object({ spec: z.string() }) }),
  files: z.array(z.object({ path: z.string(), kind: z.string() })),
});

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
});
afterAll(async () => {
  await home.dispose();
});

/** A deployed project with one commit. */
async function deployed(name: string, files: Readonly<Record<string, string>>) {
  const project = await writeProject(home.projects, {
    'holdfast.yaml': `name: ${name}\nagent: { protocol: command, command: [sh] }\npersistence: persistent\nworkspace: { ignore: ["*.mp4"] }\n`,
    ...files,
  });
  const git = (...command: string[]): string =>
    execFileSync('git', command, { cwd: project, encoding: 'utf8' });
  git('init', '-q', '-b', 'main');
  git('config', 'user.name', 'A');
  git('config', 'user.email', 'a@example.org');
  git('add', '.');
  git('commit', '-q', '-m', 'first');
  await home.runOk(['deploy', project]);
  return { project, git, head: git('rev-parse', 'HEAD').trim() };
}

test('what the agent changed through its shell becomes a commit on the deployed one, and goes again', async () => {
  const { project, git, head } = await deployed('handed', {
    '.gitignore': 'node_modules\n',
    'src/a.txt': 'one\n',
    'film.mp4': 'film\n',
  });
  await home.runOk([
    'run',
    'handed',
    'echo two > src/a.txt; echo new > src/b.txt; mkdir -p .vscode node_modules/x; echo {} > .vscode/tasks.json; echo x > node_modules/x/x',
  ]);

  const session = 'handed/default';
  const made = MadeSchema.loose().parse(await home.runJson(['handoff', session, '--repository', project]));
  expect(made).toMatchObject({
    to: 'worktree',
    base: { kind: 'seeded', commit: head },
    files: 2,
    quarantined: [{ path: '.vscode/tasks.json', risks: ['executes'] }],
    ignored: 1,
    refused: [],
  });
  expect(git('diff', '--name-status', head, made.commit)).toBe('M\tsrc/a.txt\nA\tsrc/b.txt\n');
  expect(await readFile(join(made.folder, 'src/a.txt'), 'utf8')).toBe('two\n');
  expect(git('rev-parse', `${made.commit}^`).trim()).toBe(head);
  expect(git('status', '--porcelain')).toBe('');

  const kept = async () => ManifestsSchema.parse(await home.runJson(['manifest', 'list', session])).manifests;
  // Those of the sandbox and of the snapshot come by themselves, a moment later.
  await vi.waitFor(
    async () => {
      const reasons = (await kept()).map(({ reason }) => reason);
      expect(reasons).toEqual(expect.arrayContaining(['resume', 'snapshot', 'handoff']));
    },
    { timeout: 60_000, interval: 200 },
  );
  const ofSnapshot = (await kept()).find(({ snapshot }) => snapshot !== null);
  const shown = await home.runJson(['manifest', 'show', session, '--id', ofSnapshot?.id ?? '']);
  expect(shown).toMatchObject({
    statement: {
      predicate: { reason: 'snapshot', snapshot: { id: ofSnapshot?.snapshot }, base: { commit: head } },
    },
  });
  await home.runOk(['manifest', 'diff', session]);

  expect(git('log', '-1', '--format=%B', made.commit)).toContain(`Holdfast-Manifest: ${made.manifest}`);
  const file = join(home.projects, 'handed.manifest.json');
  const key = join(home.projects, 'key.pem');
  await writeFile(key, await home.runOk(['manifest', 'key']));
  await home.runOk(['manifest', 'show', session, '--id', made.manifest, '--output', file]);
  expect(await home.runJson(['manifest', 'verify', file, '--key', key])).toMatchObject({
    valid: true,
    statement: {
      subject: [
        { name: 'tree', digest: { gitTree: git('rev-parse', `${made.commit}^{tree}`).trim() } },
        { name: 'commit', digest: { gitCommit: made.commit } },
      ],
      predicate: {
        id: made.manifest,
        handoff: made.handoff,
        base: { commit: head, branch: 'main', exact: true },
        turns: { total: 1, listed: [{ status: 'succeeded' }] },
        handoffs: { listed: [{ step: 'approved', quarantined: 1 }] },
      },
    },
  });
  expect(await home.runJson(['manifest', 'verify', session])).toMatchObject({ valid: true });

  expect(await home.runJson(['handoff', 'undo', '--repository', project])).toMatchObject({
    handoff: made.handoff,
    undone: true,
    recorded: true,
  });
  expect(git('branch', '--list').trim()).toBe('* main');
  const events = await home.runOk(['session', 'events', session, '--json']);
  const types = events
    .trim()
    .split('\n')
    .map((line) => z.object({ type: z.string() }).parse(JSON.parse(line)).type);
  expect(types.filter((type) => type.startsWith('handoff.'))).toEqual([
    'handoff.approved',
    'handoff.made',
    'handoff.undone',
  ]);
});

test('after a review a commit has exactly what was accepted, and the next one what was accepted since', async () => {
  const { project, git, head } = await deployed('reviewed', { 'a.txt': 'one\n', 'b.txt': 'one\n' });
  const session = 'reviewed/default';
  const handOff = async (...options: string[]) =>
    MadeSchema.loose().parse(
      await home.runJson(['handoff', session, '--repository', project, '--to', 'worktree', ...options]),
    );
  await home.runOk(['run', 'reviewed', 'echo two > a.txt; echo two > b.txt; echo new > c.txt']);
  await home.runOk(['review', session]);
  const refused = await home.run(['handoff', session, '--repository', project]);
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain('holdfast review accept default --all');
  await home.runOk(['review', 'accept', session, 'a.txt']);
  await home.runOk(['review', 'reject', session, 'b.txt']);
  const preview = await home.run(['handoff', session, '--repository', project, '--preview']);
  expect(preview.stderr).toContain('Handing off what you accepted; 1 change not accepted stays behind');

  const first = await handOff();
  expect(git('diff', '--name-status', head, first.commit)).toBe('M\ta.txt\n');
  await home.runOk(['handoff', 'undo', '--repository', project]);
  const again = await handOff();
  expect(git('rev-parse', `${again.commit}^{tree}`)).toBe(git('rev-parse', `${first.commit}^{tree}`));

  await home.runOk(['prompt', session, 'echo three >> a.txt']);
  await home.runOk(['review', session]);
  await home.runOk(['review', 'accept', session, '--all']);
  const next = await handOff('--onto', again.branch);
  expect(git('diff', '--name-status', again.commit, next.commit)).toBe('M\ta.txt\nA\tc.txt\n');
  expect(await readFile(join(next.folder, 'a.txt'), 'utf8')).toBe('two\nthree\n');
});

test('a review against the commit that is checked out knows what came since the deploy, and is handed over onto it', async () => {
  const { project, git } = await deployed('headed', {
    '.gitignore': 'made\n',
    '.holdfastignore': 'secrets/\n',
    'secrets/old.key': 'left out by the deploy\n',
    'a.txt': 'one\n',
    'b.txt': 'one\n',
    'film.mp4': 'left out of the workspace\n',
  });
  const session = 'headed/default';
  await home.runOk(['run', 'headed', 'echo agent > a.txt; echo new > c.txt; mkdir made; echo made > made/x']);
  // The person goes on meanwhile.
  await writeFile(join(project, 'b.txt'), 'two\n');
  await writeFile(join(project, 'd.txt'), 'mine\n');
  await writeFile(join(project, 'secrets/new.key'), 'for nobody else\n');
  git('add', '.');
  git('commit', '-q', '-m', 'second');
  const head = git('rev-parse', 'HEAD').trim();
  const { stderr } = await home.run(['review', session, '--base', 'head', '--repository', project]);
  expect(stderr).toContain('Sending 2 files (9 B) of the commit to the supervisor on this machine');
  const reviewed = ReviewedSchema.parse(
    await home.runJson(['review', session, '--base', 'head', '--repository', project]),
  );
  expect(reviewed.review.base).toMatchObject({ spec: `head:${head}` });
  expect(Object.fromEntries(reviewed.files.map(({ path, kind }) => [path, kind]))).toEqual({
    '/workspace/a.txt': 'modified',
    '/workspace/b.txt': 'modified',
    '/workspace/c.txt': 'added',
    '/workspace/d.txt': 'deleted',
    '/workspace/made/x': 'added',
  });
  const diff = await home.runOk(['review', 'diff', session, 'b.txt', '--no-pager']);
  expect(diff).toContain('-two');
  await home.runOk(['gc']);
  await home.runOk(['review', 'accept', session, 'a.txt', 'c.txt']);
  const made = MadeSchema.loose().parse(await home.runJson(['handoff', session, '--repository', project]));
  expect(git('rev-parse', `${made.commit}^`).trim()).toBe(head);
  expect(git('diff', '--name-status', head, made.commit)).toBe('M\ta.txt\nA\tc.txt\n');
});
