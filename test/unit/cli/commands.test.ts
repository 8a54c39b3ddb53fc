import { afterEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { cli, Driven } from './driver.ts';
import { FakeSupervisor, profile, session, SESSION_ID, TURN_ID, turn } from './fake-supervisor.ts';
import type { FakeHandlers } from './fake-supervisor.ts';

let fake: FakeSupervisor | undefined;
afterEach(async () => {
  await fake?.end();
  fake = undefined;
});
async function serve(handlers: FakeHandlers): Promise<FakeSupervisor> {
  fake = await FakeSupervisor.start(handlers);
  return fake;
}
const nowhere = '/nonexistent/home';

describe('a command line that is wrong ends with 2 and says how', () => {
  test.each([
    [['sesion', 'list'], /^error usage: unknown command 'sesion'; did you mean session\?/],
    [['session', 'lst'], /unknown command 'lst'; did you mean list\?/],
    [['run', 'counter'], /^error usage: missing required argument 'input'/],
    [['run', 'counter', '{}', '--sesion', 'x'], /unknown option '--sesion'; did you mean --session\?/],
    [['run', 'counter', '{}', '--timeout', 'soon'], /--timeout.*a number of seconds/],
    [['session', 'list', '--status', 'asleep'], /--status.*one of created, active/],
    [['session', 'list', '--limit', '0'], /--limit.*from 1 to 1000/],
    [['session', 'show', 'a', 'b'], /too many arguments/],
    [['session', 'update', 'a'], /nothing to change/],
    [['session', 'update', 'a', '--pin', '--unpin'], /cannot be used with/],
    [['session', 'resume', 'a', '--from', 'yesterday'], /files, clean, snapshot:ID, memory/],
    [['exec', '-t', 'a', '--', 'sh'], /-t needs a terminal/],
    [['session', 'create', 'p', '--from', 'clean'], /it is snapshot:ID/],
    [
      ['session', 'resume', 'a', '--from', 'snapshot:x'],
      /^error invalid_params: x is not the id of a snapshot/,
    ],
    [['snapshot', 'show', 'turn-1'], /^error invalid_params: turn-1 is not the id of a snapshot/],
    [['snapshot', 'update', 'snp-aaaaaaaaaaaaaaaa'], /nothing to change/],
    [['snapshot', 'list', 'a', '--reason', 'fun'], /--reason.*one of manual, before-turn/],
    [['turn', 'wait', 'turn-1'], /^error invalid_params: turn-1 is not the id of a turn/],
    [['completion', 'tcsh'], /bash, zsh, fish/],
  ])('%j', async (argv, said) => {
    const { code, stdout, stderr } = await cli(argv, { home: nowhere });
    expect(stderr).toMatch(said);
    expect({ code, stdout, lines: stderr.split('\n').length }).toEqual({ code: 2, stdout: '', lines: 2 });
  });

  test('a group alone shows its commands on standard error', async () => {
    const { code, stdout, stderr } = await cli(['session'], { home: nowhere });
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('resume <session>');
  });

  test.each([
    ['snapshot', 'export', 'a'],
    ['memory', 'show', 'a'],
    ['manifest', 'show', 'a', '--json'],
    ['review', 'a'],
    ['handoff', 'a', '--to', 'branch'],
    ['secret', 'set', 'NAME'],
    ['retention', 'plan'],
    ['host', 'list'],
    ['profiles', '--host', 'far'],
  ])('what a later version will do is named as such: %s %s', async (...argv) => {
    const { code, stdout, stderr } = await cli(argv, { home: nowhere });
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/^error not_supported: `.*` is not in this version of holdfast/);
  });
});

describe('help', () => {
  test('lists what there is, and nothing of what is not', async () => {
    const { code, stdout, stderr } = await cli(['--help'], { home: nowhere });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    for (const word of ['deploy', 'run', 'prompt', 'exec', 'session', 'workspace', 'doctor', 'Start here']) {
      expect(stdout).toContain(word);
    }
    expect(stdout).toContain('snapshot');
    expect(stdout).not.toMatch(/memory|__complete|handoff/);
  });

  test.each([
    ['help', 'run'],
    ['run', '--help'],
  ])('%s %s says the same', async (...argv) => {
    const { code, stdout } = await cli(argv, { home: nowhere });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^Usage: holdfast run \[options\] <profile> <input>/);
  });

  test('of a command has examples', async () => {
    const { code, stdout } = await cli(['exec', '--help'], { home: nowhere });
    expect(code).toBe(0);
    expect(stdout).toContain('$ holdfast exec -t default -- sh');
  });

  test.each([['version'], ['--version'], ['-V']])('%s', async (word) => {
    const { code, stdout } = await cli([word], { home: nowhere });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^holdfast \d+\.\d+\.\d+ \(build [0-9a-f]{16}\)\n$/);
  });
});

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
  const garbage = [{ kind: 'container' as const, name: 'hf-x', why: 'its session is gone', bytes: null }];
  const one = { session: session() };
  const handlers: FakeHandlers = {
    'profile/deploy': () => ({ profile: profile(), replaced: true, unchanged: false }),
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
    'session/verify': () => ({ ok: true, events: 7, head: 'abc', firstBad: null }),
    'turn/show': () => ({ turn: turn() }),
    'turn/list': () => ({ turns: [turn()] }),
    'turn/cancel': () => ({ turn: turn({ status: 'cancelled' }) }),
    'workspace/info': () => info,
    'workspace/clean': () => ({ removedFiles: 1, removedBytes: 5 }),
    'supervisor/status': () => status,
    'supervisor/doctor': () => ({ checks: [{ name: 'engine', status: 'ok', found: '29.0', next: null }] }),
    gc: ({ dryRun }) => ({ removed: garbage, kept: garbage, dryRun: dryRun === true }),
    purge: () => ({ removed: garbage }),
  };

  test.each([
    [['deploy', '.'], { profile: profile(), replaced: true, unchanged: false }],
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
    [['session', 'verify', 'default'], { ok: true, events: 7, head: 'abc', firstBad: null }],
    [['turn', 'show', TURN_ID], { turn: turn() }],
    [['turn', 'list', 'default'], { turns: [turn()] }],
    [['turn', 'cancel', TURN_ID], { turn: turn({ status: 'cancelled' }) }],
    [['workspace', 'info', 'default'], info],
    [['workspace', 'clean', 'default', '--force'], { removedFiles: 1, removedBytes: 5 }],
    [['supervisor', 'start'], { running: true, ...status }],
    [['supervisor', 'status'], { running: true, ...status }],
    [['doctor'], { checks: [{ name: 'engine', status: 'ok', found: '29.0', next: null }] }],
    [['gc', '--dry-run'], { removed: garbage, kept: garbage, dryRun: true }],
    [['purge', '--force'], { removed: garbage }],
    [['__complete', 'session'], { words: ['default'] }],
  ])('%j', async (argv, document) => {
    const { home } = await serve(handlers);
    // On a terminal too: colours and progress must not reach the document.
    for (const terminal of [undefined, 80]) {
      const run = await cli([...argv, '--json'], {
        home,
        cwd: '/srv',
        ...(terminal === undefined ? {} : { terminal }),
      });
      expect(run).toMatchObject({ code: 0, stderr: '' });
      expect(run.stdout.match(/\n/g)).toHaveLength(1);
      expect(JSON.parse(run.stdout)).toEqual(document);
    }
  });

  test('a supervisor that does not run is a state and no failure', async () => {
    const { code, stdout } = await cli(['supervisor', 'status', '--json'], { home: nowhere });
    expect({ code, document: JSON.parse(stdout) as unknown }).toEqual({
      code: 0,
      document: { running: false, home: nowhere },
    });
    expect(await cli(['supervisor', 'stop', '--json'], { home: nowhere })).toMatchObject({
      code: 0,
      stdout: '{"running":false,"stopped":0}\n',
    });
  });

  test('an error stays text on standard error', async () => {
    const { home } = await serve({
      'session/show': () => {
        throw new HoldfastError('not_found', 'There is no session x\u001b[2J', {
          next: 'look with `session list`',
        });
      },
    });
    expect(await cli(['session', 'show', 'x', '--json'], { home })).toEqual({
      code: 1,
      stdout: '',
      stderr: 'error not_found: There is no session x\\e[2J; look with `session list`\n',
    });
  });

  test('--home names the installation, and wins over the environment', async () => {
    const { home } = await serve(handlers);
    expect(await cli(['profiles', '--json', '--home', home], { home: nowhere })).toMatchObject({ code: 0 });
  });
});

describe('for people', () => {
  test('an empty list says what to do next', async () => {
    const { home } = await serve({
      'session/list': () => ({ sessions: [], nextCursor: null }),
      'profile/list': () => ({ profiles: [] }),
    });
    const list = await cli(['session', 'list'], { home });
    expect(list.stdout).toBe('There are no sessions yet.\n');
    expect(list.stderr).toContain('holdfast run PROFILE');
    expect((await cli(['session', 'list', '--pinned'], { home })).stdout).toBe('No session is like that.\n');
    expect((await cli(['profiles'], { home })).stderr).toContain('holdfast deploy DIR');
  });

  test('the filters of session list reach the supervisor', async () => {
    const { home, asked } = await serve({ 'session/list': () => ({ sessions: [], nextCursor: null }) });
    const filters = [
      '--status',
      'idle',
      '--search',
      'x',
      '--pinned',
      '--archived',
      '--tag',
      't',
      '--limit',
      '5',
    ];
    await cli(['session', 'list', ...filters, '--cursor', 'c'], { home });
    expect(asked[0]?.params).toEqual({
      status: 'idle',
      search: 'x',
      pinned: true,
      archived: true,
      tag: 't',
      limit: 5,
      cursor: 'c',
    });
  });

  test('session update turns its flags into one change', async () => {
    const { home, asked } = await serve({ 'session/update': () => ({ session: session() }) });
    const flags = ['--name', 'b', '--unpin', '--star', '--tag', 'x', '--tag', 'y', '--model', ''];
    await cli(['session', 'update', 'a', ...flags], { home });
    expect(asked[0]?.params).toEqual({
      session: 'a',
      name: 'b',
      pinned: false,
      starred: true,
      tags: ['x', 'y'],
      model: null,
    });
  });

  test('a table is cut to the terminal, and whole in a pipe', async () => {
    const about = 'a question that goes on and on and does not fit into eighty columns at all';
    const { home } = await serve({
      'session/list': () => ({ sessions: [session({ about, name: 'x'.repeat(60) })], nextCursor: null }),
    });
    const narrow = await cli(['session', 'list'], { home, terminal: 100, env: { NO_COLOR: '1' } });
    for (const line of narrow.stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(100);
    expect((await cli(['session', 'list'], { home })).stdout).toContain(about);
  });

  test('doctor ends with 1 when there is a problem', async () => {
    const { home } = await serve({
      'supervisor/doctor': () => ({
        checks: [{ name: 'engine', status: 'problem', found: 'nobody answers', next: 'start it' }],
      }),
    });
    const { code, stdout } = await cli(['doctor'], { home });
    expect(code).toBe(1);
    expect(stdout).toContain('→ start it');
  });
});

describe('what deletes for good', () => {
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
    [['undeploy', 'counter'], 'profile/undeploy', '1 session with its workspace (1.5 KiB) goes: default'],
    [['session', 'delete', 'default'], 'session/delete', 'its workspace (1.5 KiB) goes'],
    [['workspace', 'clean', 'default'], 'workspace/clean', '3 files (2.0 KiB) go'],
  ] as const;

  test.each(cases)('%j is refused where nobody can be asked', async (argv, method, lost) => {
    const supervisor = await serve(handlers);
    const { code, stdout, stderr } = await cli(argv, { home: supervisor.home, stdin: 'y\n' });
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(/^error confirmation_required: /);
    expect(stderr).toContain(lost);
    expect(stderr).toContain('--force');
    expect(supervisor.methodsAsked()).not.toContain(method);
  });

  test.each(cases)('%j asks on a terminal and takes yes', async (argv, method, lost) => {
    const supervisor = await serve(handlers);
    const { code, stderr } = await cli(argv, { home: supervisor.home, stdin: 'y\n', terminal: 100 });
    expect(code).toBe(0);
    expect(stderr).toContain(lost);
    expect(stderr).toContain('[y/N]');
    expect(supervisor.asked.at(-1)).toMatchObject({ method, params: { force: true } });
  });

  test.each(['n\n', '\n', '', 'yess\n'])('the answer %j deletes nothing', async (answer) => {
    const supervisor = await serve(handlers);
    const run = await cli(['undeploy', 'counter'], {
      home: supervisor.home,
      stdin: answer,
      terminal: 100,
      env: { NO_COLOR: '1' },
    });
    expect(run.code).toBe(130);
    expect(run.stderr).toContain('error cancelled: Nothing was deleted');
    expect(supervisor.methodsAsked()).not.toContain('profile/undeploy');
  });

  test('^C at the question deletes nothing', async () => {
    const supervisor = await serve(handlers);
    const driven = new Driven(['undeploy', 'counter'], { home: supervisor.home, terminal: 100 });
    await driven.shows('[y/N]');
    driven.signal('SIGINT');
    expect((await driven.finished).code).toBe(130);
    expect(supervisor.methodsAsked()).not.toContain('profile/undeploy');
  });

  test('--force does not ask', async () => {
    const supervisor = await serve(handlers);
    const run = await cli(['undeploy', 'counter', '--force'], { home: supervisor.home });
    expect(run).toMatchObject({ code: 0, stdout: 'counter is gone, with 1 session\n' });
  });
});

describe('the connection', () => {
  test('a call that may be repeated is asked again after the connection broke, with the same opId', async () => {
    let times = 0;
    const supervisor = await serve({
      'session/create': (_params, { peer }) => {
        times += 1;
        if (times === 1) {
          peer.close();
          return new Promise(() => undefined);
        }
        return { session: session() };
      },
    });
    const { code } = await cli(['session', 'create', 'counter'], { home: supervisor.home });
    expect(code).toBe(0);
    const ids = supervisor.asked.map(({ params }) => (params as { opId: string }).opId);
    expect(ids).toHaveLength(2);
    expect(ids[0]).toBe(ids[1]);
  });

  test('^C ends a command that waits, and the supervisor is told', async () => {
    const cancelled = Promise.withResolvers<undefined>();
    const supervisor = await serve({
      'supervisor/doctor': (_params, { signal }) => {
        signal.addEventListener('abort', () => cancelled.resolve(undefined));
        return new Promise(() => undefined);
      },
    });
    const driven = new Driven(['doctor'], { home: supervisor.home });
    while (supervisor.asked.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    driven.signal('SIGINT');
    expect(await driven.finished).toMatchObject({ code: 130, stderr: 'error cancelled: interrupted\n' });
    await cancelled.promise;
    expect(driven.listeners('SIGINT')).toBe(0);
  });

  test('a reader of standard output that goes away ends the command quietly', async () => {
    const sessions = Array.from({ length: 50 }, () => session());
    const supervisor = await serve({ 'session/list': () => ({ sessions, nextCursor: null }) });
    const driven = new Driven(['session', 'list'], { home: supervisor.home });
    driven.stdout.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }));
    expect(await driven.finished).toMatchObject({ code: 0, stderr: '' });
  });

  test('a long request shows its progress on a terminal, and takes it away again', async () => {
    const supervisor = await serve({
      'supervisor/doctor': async (_params, { progress }) => {
        progress('Pulling the image', 1, 4, 'layers');
        await new Promise((resolve) => setTimeout(resolve, 700));
        return { checks: [] };
      },
    });
    const onTerminal = await cli(['doctor'], { home: supervisor.home, terminal: 80, env: { NO_COLOR: '1' } });
    expect(onTerminal.stderr).toContain('Pulling the image [######------------------] 1 of 4 layers');
    expect(onTerminal.stderr.endsWith('\r\u001b[K')).toBe(true);
    expect((await cli(['doctor'], { home: supervisor.home })).stderr).toBe('');
  });
});
