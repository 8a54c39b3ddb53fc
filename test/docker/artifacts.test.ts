import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const CreatedSchema = z.object({
  artifact: z
    .object({ id: z.string(), session: z.string(), sha256: z.string(), snapshot: z.string() })
    .loose(),
  leftOutPaths: z.array(z.string()),
});
const ListSchema = z.object({ artifacts: z.array(z.object({ id: z.string() }).loose()) });

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
});
afterAll(async () => {
  await home.dispose();
});

async function deploy(
  name: string,
  more: string,
  files: Readonly<Record<string, string>> = {},
): Promise<string> {
  const project = await writeProject(home.projects, {
    'holdfast.yaml': `name: ${name}\nagent: { protocol: command, command: [sh] }\n${more}`,
    ...files,
  });
  await home.runOk(['deploy', project]);
  return project;
}

const create = async (...options: string[]) =>
  CreatedSchema.parse(await home.runJson(['artifact', 'create', ...options]));
const idsOf = async (...session: string[]): Promise<string[]> =>
  ListSchema.parse(await home.runJson(['artifact', 'list', ...session])).artifacts.map(({ id }) => id);

describe('artifacts', () => {
  test('chosen files stay when the session, its workspace and its snapshots are gone', async () => {
    await deploy('kept', 'persistence: persistent\n', { '.gitignore': 'dist\n', 'README.md': 'read me\n' });
    await home.runOk([
      'run',
      'kept',
      [
        'mkdir -p dist/a .vscode',
        'printf one > dist/a/one; printf two > "dist/t w\\\\o"; echo {} > .vscode/tasks.json',
        'ln -s /etc/passwd dist/link; mkfifo dist/pipe; head -c 9000000 /dev/zero > dist/large',
        'echo "#!/bin/sh" > dist/run.sh; chmod +x dist/run.sh',
      ].join('; '),
    ]);
    const { artifact, leftOutPaths } = await create(
      'kept/default',
      '--paths',
      'dist',
      'README.md',
      '.vscode',
    );
    // Ignored files and unchanged ones as well, because they were chosen.
    expect(artifact).toMatchObject({
      kind: 'files',
      files: 6,
      leftOut: 2,
      sessionName: 'default',
      profile: 'kept',
    });
    expect(leftOutPaths).toEqual(['/workspace/dist/link', '/workspace/dist/pipe']);
    const events = await home.runOk([
      'session',
      'events',
      'kept/default',
      '--json',
      '--type',
      'artifact.created',
    ]);
    expect(events).toContain(artifact.id);

    await home.runOk(['session', 'delete', 'kept/default', '--force']);
    await home.runOk(['undeploy', 'kept', '--force']);
    await home.runOk(['gc']);
    expect(await idsOf(artifact.session)).toEqual([artifact.id]);

    const folder = join(home.projects, 'kept-files');
    const exported = await home.runJson(['artifact', 'export', artifact.id, '--dir', folder]);
    expect(exported).toMatchObject({
      files: 4,
      quarantined: [
        { path: '.vscode/tasks.json', risks: ['executes'] },
        { path: 'dist/run.sh', risks: ['executes'] },
      ],
      refused: [],
    });
    expect(await readFile(join(folder, 'dist/a/one'), 'utf8')).toBe('one');
    expect((await readFile(join(folder, 'dist/large'))).length).toBe(9_000_000);
    expect((await readdir(join(folder, 'dist'))).sort()).toEqual(['a', 'large', 't w\\o']);
    // Never into a folder that has something.
    expect((await home.run(['artifact', 'export', artifact.id, '--dir', folder])).code).toBe(1);

    const all = join(home.projects, 'all-files');
    await home.runOk(['artifact', 'export', artifact.id, '--dir', all, '--include-quarantined', '**']);
    const sums = join(home.projects, 'sums');
    await writeFile(sums, await home.runOk(['artifact', 'show', artifact.id, '--sums']));
    const checked = execFileSync('sha256sum', ['-c', '--strict', sums], { cwd: all, encoding: 'utf8' });
    expect(checked.match(/: OK$/gm)).toHaveLength(6);

    const manifest = join(home.projects, 'kept.manifest.json');
    await home.runOk(['artifact', 'show', artifact.id, '--manifest', manifest]);
    const [sum] = execFileSync('sha256sum', [sums], { encoding: 'utf8' }).split(' ');
    expect(await home.runJson(['manifest', 'verify', manifest])).toMatchObject({
      valid: true,
      statement: {
        subject: [{ name: 'files', digest: { sha256: sum } }],
        predicate: { reason: 'artifact', artifact: artifact.id, turns: { total: 1 } },
      },
    });

    await home.runOk(['artifact', 'rm', artifact.id]);
    expect(await idsOf()).not.toContain(artifact.id);
    expect((await home.run(['artifact', 'rm', artifact.id])).code).toBe(1);
    expect(existsSync(join(home.path, 'promoted', artifact.id))).toBe(false);
  });

  test('G10: a one-shot run keeps its results, and nothing else of it is left', async () => {
    await deploy('once', '', { 'input.txt': 'input\n' });
    const run = await home.run([
      ...['run', 'once', 'mkdir out; tr a-z A-Z < input.txt > out/report.txt', '--json'],
      ...['--artifact', 'out/*.txt'],
    ]);
    expect(run.code, run.stderr).toBe(0);
    const { artifact, sessionId } = z
      .object({ artifact: z.object({ id: z.string() }), sessionId: z.string() })
      .parse(JSON.parse(run.stdout));
    expect(await home.runJson(['session', 'list', '--search', sessionId])).toMatchObject({ sessions: [] });
    const folder = join(home.projects, 'once-files');
    await home.runOk(['artifact', 'export', artifact.id, '--dir', folder]);
    expect(await readFile(join(folder, 'out/report.txt'), 'utf8')).toBe('INPUT\n');

    // Where nothing could be kept the files stay in their session.
    const missed = await home.run(['run', 'once', 'echo text > other', '--json', '--artifact', 'out']);
    expect(missed.code).toBe(1);
    expect(missed.stderr).toContain('no file matches out');
    const { sessionId: left } = z.object({ sessionId: z.string() }).parse(JSON.parse(missed.stdout));
    expect(await home.runOk(['workspace', 'cat', left, 'other'])).toBe('text\n');
  });

  test('a patch has what changed, and after a review what was accepted', async () => {
    const project = await deploy('patched', 'persistence: persistent\n', {
      'a.txt': 'one\n',
      'b.txt': 'one\n',
    });
    const session = 'patched/default';
    await home.runOk([
      'run',
      'patched',
      'echo two > a.txt; echo two > b.txt; mkdir -p .git; echo x > .git/config',
    ]);
    const applied = async (...options: string[]): Promise<string> => {
      const { artifact } = await create(session, '--patch', ...options);
      const folder = join(home.projects, artifact.id);
      await home.runOk(['artifact', 'export', artifact.id, '--dir', folder]);
      return execFileSync('git', ['apply', '--numstat', join(folder, 'changes.patch')], {
        cwd: project,
        encoding: 'utf8',
      });
    };
    expect(await applied()).toBe('1\t1\ta.txt\n1\t1\tb.txt\n');
    expect(await applied('--paths', 'b.*')).toBe('1\t1\tb.txt\n');
    await home.runOk(['review', session]);
    const refused = await home.run(['artifact', 'create', session]);
    expect(refused.stderr).toContain('review accept');
    await home.runOk(['review', 'accept', session, 'a.txt']);
    expect(await applied()).toBe('1\t1\ta.txt\n');
    expect(await applied('--unreviewed')).toBe('1\t1\ta.txt\n1\t1\tb.txt\n');
    const { artifact } = await create(session, '--paths', 'a.txt', 'b.txt', '--name', 'of the review');
    const folder = join(home.projects, 'reviewed-files');
    await home.runOk(['artifact', 'export', artifact.id, '--dir', folder]);
    // The accepted tree has the base's content where nothing was accepted.
    expect(await readFile(join(folder, 'a.txt'), 'utf8')).toBe('two\n');
    expect(await readFile(join(folder, 'b.txt'), 'utf8')).toBe('one\n');
  });
});
