import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../../setup/test-home.ts';
import { handlerProject, shellProject, writeProject } from '../../setup/profiles.ts';

const TurnSchema = z.object({
  sessionId: z.string(),
  turnId: z.string(),
  status: z.string(),
  output: z.unknown(),
  sandbox: z.object({ reused: z.boolean(), case: z.string() }),
});
const InfoSchema = z.object({
  path: z.string(),
  bytes: z.number(),
  files: z.number(),
  limit: z.null(),
  lastUsedAt: z.iso.datetime(),
});
const COUNT = `
import os
def handler(input):
    path = '/workspace/count'
    count = int(open(path).read()) + 1 if os.path.exists(path) else 1
    open(path, 'w').write(str(count))
    return {'count': count, 'version': 1}
`;

describe('workspace persistence (W1–W7)', () => {
  let home: TestHome;
  let projects: string;
  beforeAll(async () => {
    home = await TestHome.create();
    projects = home.projects;
  });
  afterAll(async () => {
    await home.dispose();
  });
  const run = async (profile: string, input = '{}', ...more: string[]) =>
    TurnSchema.parse(await home.runJson(['run', profile, input, ...more]));

  test('W1: /workspace survives a stop, a killed container, a killed supervisor and a redeploy', async () => {
    const project = await writeProject(projects, handlerProject('w1', COUNT));
    await home.runOk(['deploy', project]);
    const first = await run('w1');
    expect(first.output).toMatchObject({ count: 1 });
    expect(first.sandbox.case).toBe('create');

    await home.runOk(['session', 'stop', first.sessionId]);
    const replaced = await run('w1');
    expect(replaced).toMatchObject({ output: { count: 2 }, sandbox: { case: 'reattach', reused: false } });

    await home.killContainer(first.sessionId, 'agent');
    expect(await run('w1')).toMatchObject({ output: { count: 3 }, sandbox: { case: 'reattach' } });

    process.kill(await home.supervisorPid(), 'SIGKILL');
    expect(await run('w1')).toMatchObject({ output: { count: 4 }, sandbox: { case: 'reuse' } });

    await writeProject(project, {});
    await home.runOk([
      'deploy',
      await writeProject(projects, handlerProject('w1', COUNT.replace("'version': 1", "'version': 2"))),
    ]);
    expect(await run('w1')).toMatchObject({ output: { count: 5, version: 2 }, sandbox: { reused: false } });
  });

  test('W3: SQLite in WAL mode keeps every committed row when its container is killed in the middle of a transaction', async () => {
    const writer = `
import sqlite3, sys, time, threading
def handler(input):
    db = sqlite3.connect('/workspace/log.db')
    db.execute('PRAGMA journal_mode=WAL'); db.execute('PRAGMA synchronous=FULL')
    db.execute('CREATE TABLE IF NOT EXISTS log (n INTEGER)')
    db.commit()
    if input.get('check'):
        return {'rows': db.execute('SELECT count(*) FROM log').fetchone()[0], 'ok': db.execute('PRAGMA integrity_check').fetchone()[0]}
    n = 0
    while True:
        db.execute('INSERT INTO log VALUES (?)', (n,)); db.commit(); n += 1
        with open('/workspace/acknowledged', 'w') as f: f.write(str(n))
        if n == 50: print('fifty', flush=True)
        db.execute('INSERT INTO log VALUES (-1)'); time.sleep(0.001); db.rollback()
`;
    await home.runOk(['deploy', await writeProject(projects, handlerProject('w3', writer))]);
    const { turnId, sessionId } = z
      .object({ turnId: z.string(), sessionId: z.string() })
      .parse(await home.runJson(['run', 'w3', '{}', '--no-wait']));
    const workspace = InfoSchema.parse(await home.runJson(['workspace', 'info', sessionId])).path;
    await expect.poll(() => acknowledged(workspace), { timeout: 20_000 }).toBeGreaterThan(50);
    await home.killContainer(sessionId, 'agent');
    const turn = await home.run(['turn', 'wait', turnId, '--json']);
    expect(turn.stderr).toContain('sandbox_lost');
    const kept = await acknowledged(workspace);
    const check = await run('w3', '{"check": true}');
    expect(check.output).toMatchObject({ ok: 'ok' });
    const { rows } = z.object({ rows: z.number() }).parse(check.output);
    expect(rows).toBeGreaterThanOrEqual(kept);
  });

  test('W4: /agent is the deployed code, read-only; /tmp is fresh for each turn', async () => {
    await home.runOk(['deploy', await writeProject(projects, shellProject('w4'))]);
    const text = await home.runOk([
      'run',
      'w4',
      'ls /agent; (echo x > /agent/new) 2>&1 | grep -o "Read-only file system"; ls -A /tmp | wc -l; echo left > /tmp/left; mkdir /tmp/d; ls -A /tmp',
    ]);
    expect(text.split('\n')).toEqual(['holdfast.yaml', 'Read-only file system', '0', 'd', 'left', '']);
    expect(await home.runOk(['run', 'w4', 'ls -A /tmp | wc -l'])).toBe('0\n');
    const nested = `
import os
def handler(input):
    seen = os.listdir('/tmp'); open('/tmp/mine', 'w').write('x'); return seen
`;
    await home.runOk(['deploy', await writeProject(projects, handlerProject('w4h', nested))]);
    expect((await run('w4h')).output).toEqual([]);
    expect((await run('w4h')).output).toEqual([]);
  });

  test('W5: workspace info shows where it is stored; the host sees the same bytes; clean needs a yes', async () => {
    await home.runOk(['deploy', await writeProject(projects, shellProject('w5'))]);
    const { sessionId } = await run(
      'w5',
      'mkdir -p a/b; printf hello > a/b/c; printf 1234567890 > d; ln -s /etc/passwd link',
    );
    const info = InfoSchema.parse(await home.runJson(['workspace', 'info', sessionId]));
    expect(info).toMatchObject({ bytes: 15, files: 3 });
    // A persistent profile stands for its session `default`.
    expect(InfoSchema.parse(await home.runJson(['workspace', 'info', 'w5']))).toEqual(info);
    expect(info.path.startsWith(home.path)).toBe(true);
    expect(await readFile(join(info.path, 'a/b/c'), 'utf8')).toBe('hello');

    const refused = await home.run(['workspace', 'clean', sessionId]);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/^error confirmation_required: /m);
    expect((await stat(join(info.path, 'd'))).size).toBe(10);

    await home.runOk(['workspace', 'clean', sessionId, '--force']);
    expect(InfoSchema.parse(await home.runJson(['workspace', 'info', sessionId]))).toMatchObject({
      bytes: 0,
      files: 0,
    });
    expect(await readFile('/etc/passwd', 'utf8')).toContain('root');
    expect(await home.runOk(['run', 'w5', 'ls -A | wc -l'])).toBe('0\n');
  });

  test('W6: undeploy deletes code and workspaces for good, after a yes', async () => {
    await home.runOk(['deploy', await writeProject(projects, shellProject('w6'))]);
    const { sessionId } = await run('w6', 'mkdir -m 0 locked; mkdir x; touch x/y; chmod 0 x');
    const { path } = InfoSchema.parse(await home.runJson(['workspace', 'info', sessionId]));
    const asked = await home.run(['undeploy', 'w6']);
    expect(asked.code).toBe(1);
    expect(asked.stderr).toContain('confirmation_required');
    await stat(path);
    await home.runOk(['undeploy', 'w6', '--force']);
    await expect(stat(path)).rejects.toThrow('ENOENT');
    expect((await home.run(['session', 'show', sessionId])).stderr).toContain('not_found');
    expect((await home.run(['run', 'w6', 'true'])).stderr).toContain('not_found');
  });

  test('W7: a turn outlives the client that started it, and its output can be read later', async () => {
    await home.runOk(['deploy', await writeProject(projects, shellProject('w7'))]);
    const { turnId, sessionId } = z
      .object({ turnId: z.string(), sessionId: z.string() })
      .parse(
        await home.runJson([
          'run',
          'w7',
          'for i in 1 2 3; do echo line $i; done; until [ -e go ]; do sleep 0.1; done; echo line 4',
          '--no-wait',
        ]),
      );
    const shown = z.object({ turn: z.object({ status: z.string() }) });
    expect(['queued', 'running']).toContain(
      shown.parse(await home.runJson(['turn', 'show', turnId])).turn.status,
    );
    await home.runOk(['exec', sessionId, '--', 'touch', '/workspace/go']);
    expect(await home.runOk(['turn', 'wait', turnId])).toBe('line 1\nline 2\nline 3\nline 4\n');
  });
});

async function acknowledged(workspace: string): Promise<number> {
  try {
    return Number(await readFile(join(workspace, 'acknowledged'), 'utf8'));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return 0;
    throw error;
  }
}
