import { describe, expect, test } from 'vitest';
import { runToEnd, CliRun } from '../../fixtures/cli/cli-run.ts';
import { type FakeHandlers, profile, session, SESSION_ID } from '../../fixtures/cli/fake-supervisor.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

describe('commands that delete permanently', () => {
  const handlers: FakeHandlers = {
    'profile/list': () => ({ profiles: [profile()] }),
    'session/list': () => ({ sessions: [session()], nextCursor: null }),
    'session/show': () => ({ session: session() }),
    'profile/undeploy': () => ({ sessionsDeleted: 1 }),
    'session/delete': () => ({}),
    'workspace/info': () => ({
      sessionId: SESSION_ID,
      path: null,
      volume: 'v',
      bytes: 2048,
      files: 3,
      directories: 1,
      limit: null,
      lastUsedAt: '2026-03-01T11:57:00.000Z',
      snapshots: { snapshots: 0, bytes: 0, uniqueBytes: 0 },
    }),
    'workspace/clean': () => ({ removedFiles: 3, removedBytes: 2048 }),
  };
  const cases = [
    [
      ['undeploy', 'counter'],
      'profile/undeploy',
      '1 session with its workspace (1.5 KiB) will be deleted: default',
    ],
    [['session', 'delete', 'default'], 'session/delete', 'its workspace (1.5 KiB) will be deleted'],
    [['workspace', 'clean', 'default'], 'workspace/clean', '3 files (2.0 KiB) will be deleted'],
  ] as const;

  test.each(cases)('%j is refused without a terminal to ask on', async (argv, method, lost) => {
    const supervisor = await startFakeSupervisor(handlers);
    const { code, stdout, stderr } = await runToEnd(argv, { home: supervisor.home, stdin: 'y\n' });
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(/^error confirmation_required: /);
    expect(stderr).toContain(lost);
    expect(stderr).toContain('--force');
    expect(supervisor.requestedMethods()).not.toContain(method);
  });

  test.each(cases)('%j asks on a terminal and takes yes', async (argv, method, lost) => {
    const supervisor = await startFakeSupervisor(handlers);
    const { code, stderr } = await runToEnd(argv, { home: supervisor.home, stdin: 'y\n', terminal: 100 });
    expect(code).toBe(0);
    expect(stderr).toContain(lost);
    expect(stderr).toContain('[y/N]');
    expect(supervisor.requests.at(-1)).toMatchObject({ method, params: { force: true } });
  });

  test.each(['n\n', '\n', '', 'yess\n'])('the answer %j deletes nothing', async (answer) => {
    const supervisor = await startFakeSupervisor(handlers);
    const run = await runToEnd(['undeploy', 'counter'], {
      home: supervisor.home,
      stdin: answer,
      terminal: 100,
      env: { NO_COLOR: '1' },
    });
    expect(run.code).toBe(130);
    expect(run.stderr).toContain('error cancelled: Nothing was deleted');
    expect(supervisor.requestedMethods()).not.toContain('profile/undeploy');
  });

  test('^C at the question deletes nothing', async () => {
    const supervisor = await startFakeSupervisor(handlers);
    const driven = new CliRun(['undeploy', 'counter'], { home: supervisor.home, terminal: 100 });
    await driven.waitForText('[y/N]');
    driven.signal('SIGINT');
    expect((await driven.result).code).toBe(130);
    expect(supervisor.requestedMethods()).not.toContain('profile/undeploy');
  });

  test('--force does not ask', async () => {
    const supervisor = await startFakeSupervisor(handlers);
    const run = await runToEnd(['undeploy', 'counter', '--force'], { home: supervisor.home });
    expect(run).toMatchObject({ code: 0, stdout: 'counter was deleted, with 1 session\n' });
  });
});
