import { afterEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { runToEnd, CliRun } from '../../fixtures/cli/cli-run.ts';
import { EXEC_ID, FakeSupervisor, SESSION_ID } from '../../fixtures/cli/fake-supervisor.ts';
import type { ClientPeer, FakeHandlers } from '../../fixtures/cli/fake-supervisor.ts';

let fake: FakeSupervisor | undefined;
afterEach(async () => {
  await fake?.dispose();
  fake = undefined;
});

const STARTED = {
  exec: EXEC_ID,
  sessionId: SESSION_ID,
  sandbox: { reused: true, case: 'reuse' },
} as const;

/** A fake process: `run` is what it does once it has been started. */
async function serve(
  run: (peer: ClientPeer) => Promise<void>,
  more: FakeHandlers = {},
): Promise<FakeSupervisor> {
  fake = await FakeSupervisor.start({
    'exec/start': (_params, { peer }) => {
      setImmediate(() => void run(peer));
      return STARTED;
    },
    'exec/input': () => ({}),
    'exec/kill': () => ({}),
    'exec/resize': () => ({}),
    ...more,
  });
  return fake;
}

const output = (peer: ClientPeer, bytes: Buffer | string, stream: 'stdout' | 'stderr' = 'stdout') =>
  peer.notify('exec/output', { exec: EXEC_ID, stream }, Buffer.from(bytes));
const exit = (peer: ClientPeer, exitCode: number | null, signal: string | null = null) =>
  peer.notify('exec/exited', { exec: EXEC_ID, exitCode, signal });

describe('exec', () => {
  test.each([
    [0, null, 0],
    [3, null, 3],
    [137, null, 137],
    [null, 'SIGTERM', 143],
    [null, 'KILL', 137],
  ])('exit code %s, signal %s becomes %d', async (exitCode, signal, code) => {
    const { home } = await serve((peer) => exit(peer, exitCode, signal));
    expect(await runToEnd(['exec', 'default', '--', 'true'], { home })).toEqual({
      code,
      stdout: '',
      stderr: '',
    });
  });

  test('a lost sandbox is an error', async () => {
    const { home } = await serve((peer) => exit(peer, null));
    const { code, stderr } = await runToEnd(['exec', 'default', '--', 'true'], { home });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^error sandbox_lost: /);
  });

  test('words after -- belong to the command, options too', async () => {
    const { home, requests } = await serve((peer) => exit(peer, 0));
    const argv = [
      'exec',
      'default',
      '--env',
      'A=1=2',
      '--cwd',
      '/tmp',
      '--',
      'ls',
      '-la',
      '--json',
      '--',
      'x',
    ];
    await runToEnd(argv, { home });
    expect(requests[0]?.params).toEqual({
      session: 'default',
      command: ['ls', '-la', '--json', '--', 'x'],
      stdin: true,
      env: { A: '1=2' },
      cwd: '/tmp',
    });
  });

  test('both output streams arrive unchanged and in order', async () => {
    const all = Buffer.from(Array.from({ length: 70_000 }, (_, at) => at % 256));
    const { home } = await serve(async (peer) => {
      await output(peer, all.subarray(0, 65_536));
      await output(peer, 'a remark', 'stderr');
      await output(peer, all.subarray(65_536));
      await exit(peer, 0);
    });
    const driven = new CliRun(['exec', 'default', '--', 'x'], { home, stdin: '' });
    expect(await driven.result).toMatchObject({ code: 0, stderr: 'a remark' });
    expect(driven.stdoutBytes()).toEqual(all);
  });

  test('standard input is passed through one chunk at a time, then its end', async () => {
    const received: Buffer[] = [];
    let underWay = 0;
    let most = 0;
    const ended = Promise.withResolvers<undefined>();
    const { home } = await serve(
      async (peer) => {
        await ended.promise;
        await exit(peer, 0);
      },
      {
        'exec/input': async ({ end }, { bytes }) => {
          underWay += 1;
          most = Math.max(most, underWay);
          received.push(bytes);
          await new Promise((resolve) => setTimeout(resolve, 2));
          underWay -= 1;
          if (end === true) ended.resolve(undefined);
          return {};
        },
      },
    );
    const sent = Buffer.from(Array.from({ length: 300_000 }, (_, at) => (at * 7) % 256));
    expect((await runToEnd(['exec', 'default', '--', 'cat'], { home, stdin: sent })).code).toBe(0);
    expect(Buffer.concat(received)).toEqual(sent);
    expect(most).toBe(1);
  });

  test('if a process reads no more input, only its exit code counts', async () => {
    const { home } = await serve((peer) => exit(peer, 4), {
      'exec/input': () => {
        throw new HoldfastError('not_found', 'It has ended');
      },
    });
    expect(await runToEnd(['exec', 'default', '--', 'true'], { home, stdin: 'ignored' })).toMatchObject({
      code: 4,
      stderr: '',
    });
  });

  test('--no-stdin does not read standard input', async () => {
    const { home, requests } = await serve((peer) => exit(peer, 0));
    await runToEnd(['exec', '--no-stdin', 'default', '--', 'true'], { home, stdin: 'for somebody else' });
    expect(requests.map(({ method }) => method)).toEqual(['exec/start']);
    expect(requests[0]?.params).toMatchObject({ stdin: false });
  });

  test('the first ^C sends SIGINT, the second SIGKILL', async () => {
    const signals: unknown[] = [];
    let over: ClientPeer | undefined;
    const supervisor = await serve(
      async (peer) => {
        over = peer;
        await output(peer, 'started');
      },
      {
        'exec/kill': async ({ signal }) => {
          signals.push(signal);
          if (signal === 'KILL' && over !== undefined) await exit(over, 137);
          return {};
        },
      },
    );
    const driven = new CliRun(['exec', 'default', '--', 'sleep', '9'], { home: supervisor.home });
    await driven.waitForText('started');
    driven.signal('SIGINT');
    driven.signal('SIGINT');
    expect((await driven.result).code).toBe(137);
    expect(signals).toEqual(['INT', 'KILL']);
  });

  test('a lost connection is an error, and earlier output is complete', async () => {
    const supervisor = await serve(async (peer) => {
      await output(peer, 'so far');
    });
    const driven = new CliRun(['exec', 'default', '--', 'x'], { home: supervisor.home });
    await driven.waitForText('so far');
    await supervisor.dropClients();
    const { code, stdout, stderr } = await driven.result;
    expect({ code, stdout }).toEqual({ code: 1, stdout: 'so far' });
    expect(stderr).toMatch(/^error connection_closed: The command was interrupted/);
  });

  test('--json prints a line for each chunk of output and one for the exit', async () => {
    const { home } = await serve(async (peer) => {
      await output(peer, 'text\n');
      await output(peer, Buffer.from([0xff, 0x00]), 'stderr');
      await exit(peer, 2);
    });
    const { code, stdout, stderr } = await runToEnd(['exec', '--json', 'default', '--', 'x'], { home });
    expect({ code, stderr }).toEqual({ code: 2, stderr: '' });
    const lines = stdout.trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      { stream: 'stdout', text: 'text\n' },
      { stream: 'stderr', base64: '/wA=' },
      { exitCode: 2, signal: null, sessionId: SESSION_ID, sandbox: STARTED.sandbox },
    ]);
  });

  test('a slow reader slows the supervisor down, and memory use stays flat', async () => {
    const piece = Buffer.alloc(64 * 1024, 'x');
    let sent = 0;
    const all = 400;
    const supervisor = await serve(async (peer) => {
      for (; sent < all; sent += 1) await output(peer, piece);
      await exit(peer, 0);
    });
    const driven = new CliRun(['exec', 'default', '--', 'yes'], { home: supervisor.home, stdin: '' });
    // Nobody takes anything: the stream's own buffer fills up and `write` says so.
    driven.stdout.pause();
    let before = -1;
    while (sent !== before || sent === 0) {
      before = sent;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    expect(sent).toBeLessThan(150);
    driven.stdout.resume();
    expect((await driven.result).code).toBe(0);
    expect(driven.stdoutBytes().length).toBe(all * piece.length);
  });
});

describe('exec -t', () => {
  test('uses raw mode, forwards the window size and its changes, and restores the terminal', async () => {
    let over: ClientPeer | undefined;
    const supervisor = await serve(async (peer) => {
      over = peer;
      await output(peer, '$ ');
    });
    const driven = new CliRun(['exec', '-t', 'default', '--', 'sh'], {
      home: supervisor.home,
      terminal: 120,
    });
    await driven.waitForText('$ ');
    expect(driven.isRawMode).toBe(true);
    expect(supervisor.requests[0]?.params).toMatchObject({
      tty: { columns: 120, rows: 24 },
      env: { TERM: 'xterm' },
    });
    driven.stdin.write('\u0003');
    Object.assign(driven.stdout, { columns: 90, rows: 30 });
    driven.signal('SIGWINCH');
    while (supervisor.requests.length < 3) await new Promise((resolve) => setTimeout(resolve, 5));
    const told = supervisor.requests.slice(1);
    expect(told).toContainEqual({
      method: 'exec/resize',
      params: { exec: EXEC_ID, columns: 90, rows: 30 },
      bytes: '',
    });
    expect(told).toContainEqual({ method: 'exec/input', params: { exec: EXEC_ID }, bytes: '\u0003' });
    if (over !== undefined) await exit(over, 0);
    expect((await driven.result).code).toBe(0);
    expect(driven.isRawMode).toBe(false);
    expect(driven.signalListenerCount('SIGWINCH')).toBe(0);
  });
});
