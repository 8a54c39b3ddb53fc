import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const MadeSchema = z.object({
  commit: z.string(),
  folder: z.string(),
  handoff: z.string(),
  branch: z.string(),
});

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
});
afterAll(async () => {
  await home.dispose();
});

test('what the agent changed through its shell becomes a commit on the deployed one, and goes again', async () => {
  const project = await writeProject(home.projects, {
    'holdfast.yaml':
      'name: handed\nagent: { protocol: command, command: [sh] }\npersistence: persistent\nworkspace: { ignore: ["*.mp4"] }\n',
    '.gitignore': 'node_modules\n',
    'src/a.txt': 'one\n',
    'film.mp4': 'film\n',
  });
  const git = (...command: string[]): string =>
    execFileSync('git', ['-c', 'user.name=A', '-c', 'user.email=a@example.org', ...command], {
      cwd: project,
      encoding: 'utf8',
    });
  git('init', '-q', '-b', 'main');
  git('config', 'user.name', 'A');
  git('config', 'user.email', 'a@example.org');
  git('add', '.');
  git('commit', '-q', '-m', 'first');
  const head = git('rev-parse', 'HEAD').trim();
  await home.runOk(['deploy', project]);
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
