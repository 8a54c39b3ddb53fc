import { execFileSync } from 'node:child_process';
import { chmod, mkdir, open, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { writeProject } from '../setup/profiles.ts';

const PROFILE = (name: string, more = ''): string =>
  `name: ${name}\nagent: { protocol: command, command: [sh] }\npersistence: persistent\n${more}`;
const RunSchema = z.object({ sessionId: z.string(), status: z.literal('succeeded') });

describe('a new workspace', () => {
  let home: TestHome;
  beforeAll(async () => {
    home = await TestHome.create();
  });
  afterAll(async () => {
    await home.dispose();
  });
  const tree = async (profile: string) =>
    (await home.runOk(['run', profile, 'find . -mindepth 1 | sort'])).trim().split('\n');

  test('holds the project without ignored files, with modes and links; a redeploy changes nothing, a clean fills it again', async () => {
    const project = await writeProject(home.projects, {
      'holdfast.yaml': PROFILE('seeded', 'workspace: { ignore: ["*.mp4"] }\n'),
      '.gitignore': 'node_modules\n',
      'src/main.txt': 'hello',
      'src/film.mp4': 'large',
      'node_modules/x/index.js': 'x',
      'run.sh': 'echo ran',
    });
    await chmod(join(project, 'run.sh'), 0o755);
    await symlink('src/main.txt', join(project, 'link'));
    await mkdir(join(project, 'empty'));
    await writeFile(join(project, 'large.bin'), Buffer.alloc(9 * 2 ** 20, 7));
    await home.runOk(['deploy', project]);
    const all = ['./.gitignore', './empty', './large.bin', './link', './run.sh', './src', './src/main.txt'];
    expect(await tree('seeded')).toEqual(all);
    // Relative paths work, and all of it is the agent's own.
    expect(
      await home.runOk(['run', 'seeded', './run.sh; cat link; cmp large.bin /agent/large.bin && echo same']),
    ).toBe('ran\nhellosame\n');

    await home.runOk(['run', 'seeded', 'echo mine > src/main.txt; rm run.sh']);
    await writeFile(join(project, 'src/new.txt'), 'new');
    await home.runOk(['deploy', project]);
    expect(await tree('seeded')).toEqual(all.filter((path) => path !== './run.sh'));
    expect(await home.runOk(['run', 'seeded', 'cat src/main.txt'])).toBe('mine\n');

    const { session } = z
      .object({ session: z.object({ id: z.string() }) })
      .parse(await home.runJson(['session', 'show', 'seeded/default']));
    await home.runOk(['workspace', 'clean', session.id, '--force']);
    expect(await tree('seeded')).toEqual([...all, './src/new.txt']);
    expect(await home.runOk(['run', 'seeded', 'cat src/main.txt'])).toBe('hello');
    const events = await home.runOk([
      'session',
      'events',
      session.id,
      '--type',
      'workspace.seeded',
      '--json',
    ]);
    expect(events.trim().split('\n')).toHaveLength(2);
  });

  test('deploy reports what ignore files exclude, and warns about a large seed', async () => {
    const project = await writeProject(home.projects, {
      'holdfast.yaml': PROFILE('told', 'workspace: { ignore: ["*.mp4"] }\n'),
      '.gitignore': 'node_modules\n*.log\n',
      'node_modules/x/index.js': 'x'.repeat(5000),
      'a.log': 'x'.repeat(100),
      'film.mp4': 'x'.repeat(300),
      b: 'b',
    });
    const told = await home.run(['deploy', project]);
    expect(told.stderr).toContain(
      'Ignored by .gitignore and .holdfastignore: 2 files, 5.0 KiB; the largest: node_modules (4.9 KiB), a.log (100 B)',
    );
    expect(told.stderr).not.toContain('Warning');
    expect(await home.runJson(['deploy', project])).toMatchObject({
      unchanged: true,
      ignored: {
        files: 2,
        bytes: 5100,
        complete: true,
        largest: [
          { path: 'node_modules', files: 1, bytes: 5000 },
          { path: 'a.log', files: 1, bytes: 100 },
        ],
      },
      seed: { files: 2, bytes: 'node_modules\n*.log\n'.length + 1 },
    });

    const large = await open(join(project, 'large'), 'w');
    await large.truncate(100_000_001);
    await large.close();
    const warned = await home.run(['deploy', project]);
    expect(warned.stderr).toContain('warning: every new workspace starts with 95 MiB (3 files)');
    await writeFile(join(project, 'holdfast.yaml'), PROFILE('told', 'workspace: { ignore: [large] }\n'));
    expect((await home.run(['deploy', project])).stderr).not.toContain('Warning');
  });

  test('holds the git history: a working repository without the credentials of the config', async () => {
    const project = await writeProject(home.projects, {
      'holdfast.yaml': PROFILE('repository', 'workspace: { seed: { git: true }, ignore: ["*.mp4"] }\n'),
      'a.txt': 'one\n',
      'film.mp4': 'film\n',
      'run.sh': 'true\n',
    });
    const git = (...args: string[]): string =>
      execFileSync('git', ['-c', 'user.name=A', '-c', 'user.email=a@example.org', ...args], {
        cwd: project,
        encoding: 'utf8',
      });
    await chmod(join(project, 'run.sh'), 0o755);
    git('init', '-q', '-b', 'main');
    git('add', '.');
    git('commit', '-q', '-m', 'first');
    git('remote', 'add', 'origin', 'https://user:config-canary@example.org/x.git');
    git('config', 'http.extraheader', 'Authorization: config-canary');
    git('config', 'url.https://config-canary@example.org/.insteadOf', 'https://example.org/');
    await writeFile(join(project, '.git/hooks/post-checkout'), '#!/bin/sh\necho config-canary\n', {
      mode: 0o755,
    });
    await writeFile(join(project, 'a.txt'), 'two\n');
    const first = z
      .object({ unchanged: z.literal(false), seed: z.object({ files: z.number() }) })
      .parse(await home.runJson(['deploy', project]));
    expect(first.seed.files).toBeGreaterThan(8);
    expect(await home.runJson(['deploy', project])).toMatchObject({ unchanged: true, seed: first.seed });

    const inside = async (script: string): Promise<string> => await home.runOk(['run', 'repository', script]);
    expect(await inside('git log --format=%s; git status --porcelain; git diff HEAD --stat')).toBe(
      'first\n M a.txt\n a.txt | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n',
    );
    expect(await inside('git remote get-url origin; test ! -e .git/hooks; stat -c %a .git .git/config')).toBe(
      'https://example.org/x.git\n755\n644\n',
    );
    expect(await inside('git fsck --full --strict && git gc -q && git fsck && echo sound')).toBe('sound\n');
    expect(await inside('grep -rl config-canary /workspace /agent 2>/dev/null; echo searched')).toBe(
      'searched\n',
    );
    expect(await inside('ls -A /agent')).not.toContain('.git');
    expect(
      await inside(
        'git -c user.name=B -c user.email=b@example.org commit -q -a -m second; git ls-tree --name-only HEAD',
      ),
    ).toBe('a.txt\nfilm.mp4\nholdfast.yaml\nrun.sh\n');

    // New commits are for new sessions.
    git('commit', '-q', '-a', '-m', 'third');
    expect(await home.runJson(['deploy', project])).toMatchObject({ unchanged: false });
    expect(await inside('git log --format=%s')).toBe('second\nfirst\n');
    await home.runOk(['workspace', 'clean', 'repository/default', '--force']);
    expect(await inside('git log --format=%s; git status --porcelain')).toBe('third\nfirst\n');

    const versions = async (): Promise<string[]> => await readdir(join(home.path, 'deploys/repository'));
    await mkdir(join(home.path, 'deploys/repository/9.git'));
    await home.runOk(['gc']);
    const kept = await versions();
    expect(kept).toEqual(expect.arrayContaining(['2', '2.git']));
    expect(kept).not.toContain('9.git');
    await writeFile(join(project, '.git/objects/info/alternates'), '/nowhere\n');
    const refused = await home.run(['deploy', project]);
    expect(refused.stderr).toContain('alternates');
    expect(await versions()).toEqual(kept);
    await home.runOk(['undeploy', 'repository', '--force']);
    expect(await versions()).toEqual([]);
  });

  test('holds one folder of the project, or nothing, before the first turn', async () => {
    const files = { 'start/a': '1', b: '2' };
    await home.runOk([
      'deploy',
      await writeProject(home.projects, {
        ...files,
        'holdfast.yaml': PROFILE('part', 'workspace: { seed: start }\n'),
      }),
    ]);
    await home.runOk([
      'deploy',
      await writeProject(home.projects, {
        ...files,
        'holdfast.yaml': PROFILE('own', 'workspace: { ignore: ["start/", "!/holdfast.yaml"] }\n'),
      }),
    ]);
    expect(await tree('own')).toEqual(['./b', './holdfast.yaml']);
    const created = z
      .object({ session: z.object({ id: z.string() }) })
      .parse(await home.runJson(['session', 'create', 'part', '--name', 'default']));
    expect(await home.runJson(['workspace', 'ls', created.session.id])).toMatchObject({
      entries: [{ name: 'a', size: 1 }],
    });
    expect(await tree('part')).toEqual(['./a']);
    await home.runOk([
      'deploy',
      await writeProject(home.projects, {
        ...files,
        'holdfast.yaml': PROFILE('none', 'workspace: { seed: false }\n'),
      }),
    ]);
    expect(await tree('none')).toEqual(['']);
    await home.runOk([
      'deploy',
      await writeProject(home.projects, {
        ...files,
        'holdfast.yaml': PROFILE('gone', 'workspace: { seed: nowhere }\n'),
      }),
    ]);
    expect((await home.run(['run', 'gone', 'true'])).stderr).toContain('workspace.seed');
  });

  test('is completed after a kill of the supervisor, before anything runs in it', async () => {
    const many = Object.fromEntries(
      Array.from({ length: 1500 }, (_, n) => [`f/${String(n)}`, `content ${String(n)}`]),
    );
    await home.runOk([
      'deploy',
      await writeProject(home.projects, { ...many, 'holdfast.yaml': PROFILE('many') }),
    ]);
    const id = z
      .object({ session: z.object({ id: z.string() }) })
      .parse(await home.runJson(['session', 'create', 'many', '--name', 'default'])).session.id;
    const path = z.object({ path: z.string() });
    const pid = await home.supervisorPid();
    const info = home.run(['workspace', 'info', id, '--json']);
    await expect
      .poll(
        () =>
          readFile(join(home.path, 'workspaces', id, 'f/10')).then(
            () => true,
            () => false,
          ),
        { timeout: 20_000, interval: 2 },
      )
      .toBe(true);
    process.kill(pid, 'SIGKILL');
    await info;
    const found = path.parse(await home.runJson(['workspace', 'info', id])).path;
    for (const n of [0, 10, 700, 1499])
      expect(await readFile(join(found, 'f', String(n)), 'utf8')).toBe(`content ${String(n)}`);
    const { status } = RunSchema.parse(
      await home.runJson([
        'run',
        'many',
        'test $(ls f | wc -l) = 1500 && test -z "$(find . -name ".holdfast*")"',
      ]),
    );
    expect(status).toBe('succeeded');
    await rm(join(found, 'f'), { recursive: true });
  });
});
