import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { runToEnd } from '../../fixtures/cli/cli-run.ts';
import {
  type FakeHandlers,
  profile,
  session,
  SESSION_ID,
  TURN_ID,
  turn,
} from '../../fixtures/cli/fake-supervisor.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

const EXAMPLE = join(import.meta.dirname, '../../../examples/counter');

const EXTENT = {
  warnings: [],
  preset: null,
  ignored: { files: 0, bytes: 0, complete: true, largest: [] },
  seed: null,
};

const nowhere = '/nonexistent/home';

const CLEAR_LINE = '\r\u001b[K';

/** Without the line that a terminal shows, and clears again, while a request takes long: on a busy machine any may. */
function withoutProgress(text: string): string {
  const parts = text.split(CLEAR_LINE);
  const isFrame = (part: string, at: number): boolean =>
    at > 0 && at < parts.length - 1 && /^\p{Script=Braille} /u.test(part);
  return parts.filter((part, at) => !isFrame(part, at)).join('');
}

describe('--json prints one document and nothing else', () => {
  const status = {
    pid: 7,
    version: '0.1.0',
    build: 'b',
    home: '/h',
    startedAt: '2026-03-01T11:00:00.000Z',
    epoch: 1,
    rssBytes: 50_000_000,
    connections: 1,
    engine: {
      reachable: true,
      endpoint: 'unix:///var/run/docker.sock',
      source: 'default' as const,
      version: '29.0',
      apiVersion: '1.50',
      capabilities: null,
      why: null,
      next: null,
    },
    sessions: {
      created: 0,
      active: 0,
      idle: 1,
      paused: 0,
      resumable: 0,
      expired: 0,
      deleted: 0,
      total: 1,
      live: 1,
    },
    turns: { running: 0, queued: 0 },
    logFile: '/h/logs/supervisor.log',
  };
  const info = {
    sessionId: SESSION_ID,
    path: '/srv/w',
    volume: null,
    bytes: 5,
    files: 1,
    directories: 1,
    limit: null,
    lastUsedAt: '2026-03-01T11:57:00.000Z',
    snapshots: { snapshots: 2, bytes: 4096, uniqueBytes: 1024 },
  };
  const setup = {
    id: 'setup-a',
    profile: 'counter',
    state: 'done' as const,
    step: 'pip',
    startedAt: '2026-03-01T11:00:00.000Z',
    endedAt: '2026-03-01T11:01:00.000Z',
    error: null,
    baseImage: 'base',
    image: 'prepared',
    bytes: 5,
    template: null,
    current: true,
  };
  const garbage = [{ kind: 'container' as const, name: 'hf-x', why: 'its session is gone', bytes: null }];
  const one = { session: session() };
  const handlers: FakeHandlers = {
    'profile/deploy/begin': () => ({
      upload: null,
      history: false,
      result: { profile: profile(), replaced: true, unchanged: false, ...EXTENT },
    }),
    'profile/undeploy': () => ({ sessionsDeleted: 2 }),
    'profile/list': () => ({ profiles: [profile()] }),
    'session/create': () => one,
    'session/list': () => ({ sessions: [session()], nextCursor: 'more' }),
    'session/show': () => one,
    'session/pause': () => one,
    'session/stop': () => one,
    'session/resume': () => ({
      ...one,
      undo: null,
      sandbox: { reused: false, case: 'reattach' },
      timings: { dispatchMs: 300 },
    }),
    'session/update': () => one,
    'session/delete': () => ({}),
    'session/verify': () => ({
      ok: true,
      events: 7,
      head: 'abc',
      firstInvalid: null,
      contents: { intact: 3, removed: 0, damaged: [] },
    }),
    'turn/show': () => ({ turn: turn() }),
    'turn/list': () => ({ turns: [turn()] }),
    'turn/edit': () => ({ turn: turn({ status: 'queued' }) }),
    'turn/cancel': () => ({ turn: turn({ status: 'cancelled' }) }),
    'workspace/info': () => info,
    'workspace/clean': () => ({ removedFiles: 1, removedBytes: 5 }),
    'setup/run': () => ({ setup }),
    'setup/status': () => ({ setups: [setup] }),
    'supervisor/status': () => status,
    'supervisor/doctor': () => ({ checks: [{ name: 'engine', status: 'ok', found: '29.0', next: null }] }),
    gc: ({ dryRun }) => ({ removed: garbage, retained: garbage, dryRun: dryRun === true }),
    purge: () => ({ removed: garbage }),
  };

  test.each([
    [
      ['deploy', EXAMPLE],
      { profile: profile(), replaced: true, unchanged: false, configuration: null, ...EXTENT },
    ],
    [['undeploy', 'counter', '--force'], { profile: 'counter', sessionsDeleted: 2 }],
    [['profiles'], { profiles: [profile()] }],
    [['session', 'create', 'counter', '--name', 'a'], one],
    [['session', 'list'], { sessions: [session()], nextCursor: 'more' }],
    [['session', 'show', 'default'], one],
    [['session', 'pause', 'default'], one],
    [['session', 'stop', 'default'], one],
    [
      ['session', 'resume', 'default'],
      { ...one, undo: null, sandbox: { reused: false, case: 'reattach' }, timings: { dispatchMs: 300 } },
    ],
    [['session', 'update', 'default', '--pin'], one],
    [['session', 'delete', 'default', '--force'], { sessionId: SESSION_ID, deleted: true }],
    [
      ['session', 'verify', 'default'],
      {
        ok: true,
        events: 7,
        head: 'abc',
        firstInvalid: null,
        contents: { intact: 3, removed: 0, damaged: [] },
        // A supervisor of an earlier version says neither.
        checkpoint: null,
        unproven: [],
      },
    ],
    [['turn', 'show', TURN_ID], { turn: turn() }],
    [['turn', 'list', 'default'], { turns: [turn()] }],
    [['turn', 'edit', TURN_ID, 'again'], { turn: turn({ status: 'queued' }) }],
    [['turn', 'cancel', TURN_ID], { turn: turn({ status: 'cancelled' }) }],
    [['workspace', 'info', 'default'], info],
    [['workspace', 'clean', 'default', '--force'], { removedFiles: 1, removedBytes: 5 }],
    [['setup', 'run', 'counter'], { setup }],
    [['setup', 'status', 'counter'], { setups: [setup] }],
    [['supervisor', 'start'], { running: true, ...status }],
    [['supervisor', 'status'], { running: true, ...status }],
    [['doctor'], { checks: [{ name: 'engine', status: 'ok', found: '29.0', next: null }] }],
    [['gc', '--dry-run'], { removed: garbage, retained: garbage, dryRun: true }],
    [['purge', '--force'], { removed: garbage }],
    [['__complete', 'session'], { words: ['default'] }],
  ])('%j', async (argv, document) => {
    const { home } = await startFakeSupervisor(handlers);
    // On a terminal too: colours and progress must not reach the document.
    for (const terminal of [undefined, 80]) {
      const run = await runToEnd([...argv, '--json'], {
        home,
        cwd: '/srv',
        ...(terminal === undefined ? {} : { terminal }),
      });
      expect({ code: run.code, stderr: withoutProgress(run.stderr) }).toEqual({ code: 0, stderr: '' });
      expect(run.stdout.match(/\n/g)).toHaveLength(1);
      expect(JSON.parse(run.stdout)).toEqual(document);
    }
  });

  test('a stopped supervisor is a status and not a failure', async () => {
    const { code, stdout } = await runToEnd(['supervisor', 'status', '--json'], { home: nowhere });
    expect({ code, document: JSON.parse(stdout) as unknown }).toEqual({
      code: 0,
      document: { running: false, home: nowhere },
    });
    expect(await runToEnd(['supervisor', 'stop', '--json'], { home: nowhere })).toMatchObject({
      code: 0,
      stdout: '{"running":false,"stopped":0}\n',
    });
  });

  test('an error is text on standard error', async () => {
    const { home } = await startFakeSupervisor({
      'session/show': () => {
        throw new HoldfastError('not_found', 'There is no session x\u001b[2J', {
          next: 'look with `session list`',
        });
      },
    });
    expect(await runToEnd(['session', 'show', 'x', '--json'], { home })).toEqual({
      code: 1,
      stdout: '',
      stderr: 'error not_found: There is no session x\\e[2J; look with `session list`\n',
    });
  });

  test('--home selects the installation and overrides the environment', async () => {
    const { home } = await startFakeSupervisor(handlers);
    expect(await runToEnd(['profiles', '--json', '--home', home], { home: nowhere })).toMatchObject({
      code: 0,
    });
  });
});
