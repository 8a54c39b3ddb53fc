import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { SupervisorConnection } from '../../protocol/client/connect.ts';
import type { NotificationParams } from '../../protocol/methods.ts';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { connectTo } from '../setup/test-client.ts';

type Changed = NotificationParams<'files/changed'>;

describe('watching and searching through the supervisor', () => {
  let home: TestHome;
  let session: string;
  let workspace: string;
  let connection: SupervisorConnection;
  beforeAll(async () => {
    home = await TestHome.create();
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('watched'))]);
    session = z
      .object({ sessionId: z.string() })
      .parse(
        await home.runJson(['run', 'watched', 'mkdir -p src; echo needle > src/a; echo x > b']),
      ).sessionId;
    workspace = z.object({ path: z.string() }).parse(await home.runJson(['workspace', 'info', session])).path;
    connection = await connectTo(home.path);
  });
  afterAll(async () => {
    connection.close();
    await home.dispose();
  });

  /** What one watch of `connection` has told. */
  async function watching(path = '/workspace', excludes: string[] = []) {
    const heard: Changed[] = [];
    connection.peer.onNotification('files/changed', (batch) => heard.push(batch));
    const { subscription, mode } = await connection.peer.call('files/watch', { session, path, excludes });
    const mine = () => heard.filter((batch) => batch.subscription === subscription);
    const told = () => mine().flatMap(({ changes }) => changes.map(({ kind, path: of }) => `${kind} ${of}`));
    return { subscription, mode, mine, told };
  }

  test('the agent writes, the client is notified; not after unwatch', async () => {
    const { subscription, mode, told } = await watching('/workspace', ['**/skipped/**']);
    expect(mode).toBe('inotify');
    await home.runOk(['run', 'watched', 'mkdir skipped new; echo 1 > skipped/x; echo 1 > new/y; mv b c']);
    await expect
      .poll(() => [...new Set(told())].sort(), { timeout: 20_000 })
      .toEqual([
        'created /workspace/c',
        'created /workspace/new',
        'created /workspace/new/y',
        'deleted /workspace/b',
      ]);
    await connection.peer.call('files/unwatch', { subscription });
    const before = told().length;
    writeFileSync(join(workspace, 'later'), '1');
    await sleep(400);
    expect(told()).toHaveLength(before);
  });

  test('it continues while the agent is paused, after it is killed, and over a killed sidecar with an overflow', async () => {
    const { subscription, mine, told } = await watching();
    await home.runOk(['session', 'pause', session]);
    writeFileSync(join(workspace, 'while-paused'), '1');
    await expect.poll(told).toContain('created /workspace/while-paused');
    await home.killContainer(session, 'agent');
    writeFileSync(join(workspace, 'while-dead'), '1');
    await expect.poll(told).toContain('created /workspace/while-dead');
    await home.killContainer(session, 'sidecar');
    await expect
      .poll(() => mine().some(({ overflow, ended }) => overflow && !ended), { timeout: 20_000 })
      .toBe(true);
    writeFileSync(join(workspace, 'with-the-next'), '1');
    await expect.poll(told).toContain('created /workspace/with-the-next');
    await connection.peer.call('files/unwatch', { subscription });
  });

  test('search and du by the command line, with exit codes as grep has them', async () => {
    expect(await home.runOk(['workspace', 'search', session, 'need.e'])).toBe('/workspace/src/a:1:needle\n');
    const lines = (await home.runOk(['workspace', 'search', session, 'needle', 'src', '--json']))
      .trim()
      .split('\n');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      {
        path: '/workspace/src/a',
        kind: 'match',
        line: 1,
        preview: 'needle',
        previewStart: 0,
        ranges: [{ start: 0, end: 6 }],
      },
      { summary: { matches: 1, files: 1, stopped: null, skipped: 0 } },
    ]);
    expect((await home.run(['workspace', 'search', session, 'not there'])).code).toBe(1);
    expect((await home.run(['workspace', 'search', session, '('])).stderr).toMatch(
      /^error invalid_params: /m,
    );
    expect(await home.runOk(['workspace', 'search', session, '--files', 'sa'])).toBe('/workspace/src/a\n');
    expect(await home.runOk(['workspace', 'du', session])).toContain('/workspace/src');
    expect(await home.runJson(['workspace', 'du', session, 'src'])).toMatchObject({
      bytes: 7,
      files: 1,
      folders: [],
    });
  });

  test('a watch of a session that is deleted ends', async () => {
    const { mine } = await watching();
    await home.runOk(['session', 'delete', session, '--force']);
    await expect.poll(() => mine().some(({ ended }) => ended), { timeout: 20_000 }).toBe(true);
    rmSync(workspace, { recursive: true, force: true });
  });
});
