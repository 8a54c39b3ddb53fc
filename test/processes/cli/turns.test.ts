import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { withBytes } from '../../../protocol/wire/shapes.ts';
import { runToEnd, CliRun } from '../../fixtures/cli/cli-run.ts';
import {
  COMMAND_AGENT,
  outputHandler,
  profile,
  RUNNING_TURN,
  session,
  SESSION_ID,
  turn,
  TURN_ID,
  turnHandlers,
} from '../../fixtures/cli/fake-supervisor.ts';
import type { FakeHandlers, FakeSupervisor } from '../../fixtures/cli/fake-supervisor.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

const commandProfile: FakeHandlers = {
  'profile/list': () => ({ profiles: [profile({ name: 'coder', agent: COMMAND_AGENT })] }),
  'session/show': () => ({ session: session({ profile: 'coder' }) }),
};
const commandTurn = { worker: null, output: null } as const;

describe('run of a handler', () => {
  test('prints its return value, and what it printed on standard error', async () => {
    const { home, requests } = await startFakeSupervisor(
      turnHandlers(turn(), { stdout: 'working\n', stderr: 'careful\n' }),
    );
    const { code, stdout, stderr } = await runToEnd(['run', 'counter', '{"a": 1}'], { home });
    expect({ code, stdout }).toEqual({ code: 0, stdout: '{"count": 1}\n' });
    expect(stderr).toContain('working\n');
    expect(stderr).toContain('careful\n');
    const start = requests.find(({ method }) => method === 'turn/start');
    expect(start).toMatchObject({ params: { profile: 'counter' }, bytes: '{"a": 1}' });
  });

  test('its output is sanitized for the terminal', async () => {
    const { home } = await startFakeSupervisor(turnHandlers(turn(), { stdout: 'a\u001b[2Jb\n' }));
    const { stderr } = await runToEnd(['run', 'counter', '{}'], {
      home,
      terminal: 80,
      env: { NO_COLOR: '1' },
    });
    expect(stderr).toContain('a\\e[2Jb\n');
  });

  test('--json prints the documented keys', async () => {
    const { home } = await startFakeSupervisor(turnHandlers(turn(), { stdout: 'working\n' }));
    const { code, stdout, stderr } = await runToEnd(['run', 'counter', '{}', '--json'], { home });
    expect({ code, stderr }).toEqual({ code: 0, stderr: 'working\n' });
    expect(JSON.parse(stdout)).toMatchObject({
      sessionId: SESSION_ID,
      turnId: TURN_ID,
      status: 'succeeded',
      output: { count: 1 },
      sandbox: { reused: true, case: 'reuse' },
      timings: { dispatchMs: 2, turnMs: 3 },
    });
    expect(stdout.match(/\n/g)).toHaveLength(1);
  });

  test('a large value is read as an artifact, without rounding numbers', async () => {
    const result = `{"big": 12345678901234567890, "text": "${'x'.repeat(40_000)}"}`;
    const ended = turn({
      output: null,
      outputArtifact: true,
      bytes: { stdout: 0, stderr: 0, result: result.length },
    });
    const { home } = await startFakeSupervisor(turnHandlers(ended, { result }));
    expect((await runToEnd(['run', 'counter', '{}'], { home })).stdout).toBe(`${result}\n`);
    const document = JSON.parse(
      (await runToEnd(['run', 'counter', '{}', '--json'], { home })).stdout,
    ) as unknown;
    expect(document).toMatchObject({ output: { text: 'x'.repeat(40_000) } });
  });

  test.each([
    ['{count: 1}', 2, /^error invalid_params: .*"c" is unexpected \(line 1, column 2\); quote it/],
    ['', 2, /empty/],
    ['"\n', 2, /line 1, column 1/],
  ])('the input %j is refused with its place', async (input, code, said) => {
    const supervisor = await startFakeSupervisor(turnHandlers(turn()));
    const run = await runToEnd(['run', 'counter', input], { home: supervisor.home });
    expect(run.code).toBe(code);
    expect(run.stderr).toMatch(said);
    expect(supervisor.requestedMethods()).not.toContain('turn/start');
  });

  test('- reads standard input', async () => {
    const { home, requests } = await startFakeSupervisor(turnHandlers(turn()));
    await runToEnd(['run', 'counter', '-'], { home, stdin: '{"from": "stdin"}\n' });
    expect(requests.find(({ method }) => method === 'turn/start')?.bytes).toBe('{"from": "stdin"}\n');
  });

  test('input larger than a message is refused with advice', async () => {
    const { home } = await startFakeSupervisor(turnHandlers(turn()));
    const { code, stderr } = await runToEnd(['run', 'counter', '-'], {
      home,
      stdin: 'x'.repeat(5 * 2 ** 20),
    });
    expect(code).toBe(2);
    expect(stderr).toContain('put it into a file in the workspace');
  });

  test('--session takes a name, or the id of a session of the profile', async () => {
    const { home, requests } = await startFakeSupervisor(turnHandlers(turn()));
    const starts = () => requests.filter(({ method }) => method === 'turn/start').map(({ params }) => params);
    await runToEnd(['run', 'counter', '{}', '--session', 'user-123', '--timeout', '90'], { home });
    expect(starts()[0]).toMatchObject({ profile: 'counter', name: 'user-123', timeoutMs: 90_000 });
    await runToEnd(['run', 'counter', '{}', '--session', SESSION_ID], { home });
    expect(starts()[1]).toMatchObject({ session: SESSION_ID });
    const other = await runToEnd(['run', 'other', '{}', '--session', SESSION_ID], { home });
    expect(other).toMatchObject({ code: 2, stdout: '' });
    expect(starts()).toHaveLength(2);
  });

  test('--no-wait prints the turn id and how to wait for it', async () => {
    const supervisor = await startFakeSupervisor(turnHandlers(turn()));
    const { code, stdout, stderr } = await runToEnd(['run', 'counter', '{}', '--no-wait'], {
      home: supervisor.home,
    });
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${TURN_ID}\n` });
    expect(stderr).toContain(`holdfast turn wait ${TURN_ID}`);
    expect(supervisor.requestedMethods()).not.toContain('turn/wait');
    const json = await runToEnd(['run', 'counter', '{}', '--no-wait', '--json'], { home: supervisor.home });
    expect(JSON.parse(json.stdout)).toMatchObject({ turnId: TURN_ID, status: 'running', output: null });
    expect(json.stderr).toBe('');
  });

  test('reports that the turn waits for earlier ones', async () => {
    const { home } = await startFakeSupervisor({
      ...turnHandlers(turn()),
      'turn/start': () => ({
        turn: turn({ ...RUNNING_TURN, status: 'queued', ahead: 2 }),
        session: session(),
      }),
    });
    expect((await runToEnd(['run', 'counter', '{}'], { home })).stderr).toContain(
      'Waiting for 2 earlier turns in default',
    );
  });
});

describe('a turn that did not succeed', () => {
  const error = {
    message: 'The handler failed',
    data: { code: 'agent_failed' as const, why: 'ValueError: no' },
    traceback: 'Traceback:\n  File "agent.py", line 3\nValueError: no\u001b[2J\n',
  };
  test.each([
    [{ status: 'failed', error }, 1, 'error agent_failed: The handler failed; ValueError: no\n'],
    [{ status: 'interrupted', error: null }, 1, `error agent_failed: ${TURN_ID} ended as interrupted\n`],
    [{ status: 'cancelled', error: null }, 130, `error cancelled: ${TURN_ID} ended as cancelled\n`],
    [
      { status: 'timeout', error: { message: 'Too slow', data: { code: 'timeout' as const } } },
      1,
      'error timeout: Too slow\n',
    ],
    [
      { status: 'failed', error: { message: 'Odd', data: { code: 'invalid_params' as const } } },
      1,
      'error invalid_params: Odd\n',
    ],
  ] as const)('%j ends with %d', async (changes, code, line) => {
    const { home } = await startFakeSupervisor(turnHandlers(turn({ ...changes, output: null })));
    const run = await runToEnd(['run', 'counter', '{}'], { home });
    expect({ code: run.code, stdout: run.stdout }).toEqual({ code, stdout: '' });
    expect(run.stderr.endsWith(line)).toBe(true);
    const json = await runToEnd(['run', 'counter', '{}', '--json'], { home });
    expect(json.code).toBe(code);
    expect(JSON.parse(json.stdout)).toMatchObject({ status: changes.status, error: changes.error });
  });

  test('prints the traceback of a handler, sanitized', async () => {
    const { home } = await startFakeSupervisor(turnHandlers(turn({ status: 'failed', error, output: null })));
    const { stderr } = await runToEnd(['run', 'counter', '{}'], { home });
    expect(stderr).toContain('  File "agent.py", line 3\nValueError: no\\e[2J\nerror agent_failed');
  });
});

describe('run of a command', () => {
  test('passes its bytes through unchanged', async () => {
    const stdout = Buffer.from([0, 1, 2, 0xff, 0xfe, 0x0a, 0x1b]);
    const { home, requests } = await startFakeSupervisor({
      ...turnHandlers(turn(commandTurn), { stdout, stderr: 'a remark' }),
      ...commandProfile,
    });
    const driven = new CliRun(['run', 'coder', 'Write the tests'], { home, stdin: '' });
    const { code, stderr } = await driven.result;
    expect({ code, stderr }).toEqual({ code: 0, stderr: 'a remark' });
    expect(driven.stdoutBytes()).toEqual(stdout);
    expect(requests.find(({ method }) => method === 'turn/start')?.bytes).toBe('Write the tests');
  });

  test('an empty prompt is a prompt', async () => {
    const { home, requests } = await startFakeSupervisor({
      ...turnHandlers(turn(commandTurn)),
      ...commandProfile,
    });
    expect((await runToEnd(['run', 'coder', ''], { home })).code).toBe(0);
    expect(requests.find(({ method }) => method === 'turn/start')?.params).toMatchObject({ prompt: '' });
  });

  test('--json contains its standard output as text', async () => {
    const { home } = await startFakeSupervisor({
      ...turnHandlers(turn(commandTurn), { stdout: 'done\n' }),
      ...commandProfile,
    });
    const { stdout } = await runToEnd(['prompt', 'default', 'x', '--json'], { home });
    expect(JSON.parse(stdout)).toMatchObject({ output: 'done\n', status: 'succeeded' });
  });

  test('--json truncates endless output and says so', async () => {
    const { home } = await startFakeSupervisor({
      ...turnHandlers(turn(commandTurn), { stdout: Buffer.alloc(9 * 2 ** 20, 'x') }),
      ...commandProfile,
    });
    const { stdout } = await runToEnd(['run', 'coder', 'x', '--json'], { home });
    const document = JSON.parse(stdout) as { output: string; outputTruncated: boolean };
    expect({ length: document.output.length, truncated: document.outputTruncated }).toEqual({
      length: 8 * 2 ** 20,
      truncated: true,
    });
  });

  test('streams output while the turn runs, and continues at its offset after a lost connection', async () => {
    const more = Promise.withResolvers<undefined>();
    const parts = ['first ', 'second'];
    const supervisor = await startFakeSupervisor({
      ...turnHandlers(turn(commandTurn)),
      ...commandProfile,
      'turn/output': async (params, context) => {
        if (params.stream !== 'stdout') return outputHandler({})(params, context);
        if (params.offset === 0)
          return withBytes({ offset: 0, total: 6, ended: false }, Buffer.from('first '));
        await more.promise;
        return outputHandler({ stdout: parts.join('') })(params, context);
      },
    });
    const driven = new CliRun(['run', 'coder', 'x'], { home: supervisor.home, stdin: '' });
    await driven.waitForText('first ');
    await supervisor.dropClients();
    more.resolve(undefined);
    expect(await driven.result).toMatchObject({ code: 0, stdout: 'first second' });
    expect(supervisor.requestedMethods().filter((method) => method === 'turn/start')).toHaveLength(1);
  });
});

describe('a supervisor that is stopped deliberately during a turn', () => {
  const leaving = () => new HoldfastError('shutting_down', 'The supervisor is leaving');
  const waiting: FakeHandlers = {
    ...turnHandlers(turn()),
    'turn/output': (_params, { signal }) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(leaving()))),
  };

  test('is not restarted; the client waits for the next one, where the turn continues', async () => {
    const supervisor = await startFakeSupervisor({ ...waiting });
    const driven = new CliRun(['run', 'counter', '{}'], { home: supervisor.home, stdin: '' });
    await untilAsked(supervisor, 'turn/output');
    await supervisor.stop(leaving());
    await driven.waitForText('The supervisor was stopped; waiting for it to start again\n');
    // Long enough for more than one look; starting would fail at once, because the driver's program does not exist.
    await new Promise((resolve) => setTimeout(resolve, 700));
    supervisor.setHandlers({ 'turn/output': outputHandler({ stdout: 'printed\n' }) });
    await supervisor.listen();
    const { code, stdout, stderr } = await driven.result;
    expect({ code, stdout }).toEqual({ code: 0, stdout: '{"count": 1}\n' });
    expect(stderr).toBe('The supervisor was stopped; waiting for it to start again\nprinted\n');
  });

  test('^C twice ends the wait for the next one', async () => {
    const supervisor = await startFakeSupervisor({ ...waiting });
    const driven = new CliRun(['run', 'counter', '{}'], { home: supervisor.home, stdin: '' });
    await untilAsked(supervisor, 'turn/output');
    await supervisor.stop(leaving());
    driven.signal('SIGINT');
    driven.signal('SIGINT');
    const { code, stderr } = await driven.result;
    expect(code).toBe(130);
    expect(stderr).toContain(`holdfast turn wait ${TURN_ID}`);
  });
});

describe('^C during a turn', () => {
  function longTurn(): { handlers: FakeHandlers; cancelled: () => boolean } {
    const ended = Promise.withResolvers<undefined>();
    let cancelled = false;
    return {
      cancelled: () => cancelled,
      handlers: {
        ...turnHandlers(turn({ status: 'cancelled', output: null })),
        'turn/output': async (params, context) => {
          await ended.promise;
          return outputHandler({})(params, context);
        },
        'turn/cancel': () => {
          cancelled = true;
          setTimeout(() => ended.resolve(undefined), 20);
          return { turn: turn(RUNNING_TURN) };
        },
      },
    };
  }

  test.each([[['run', 'counter', '{}']], [['prompt', 'default', '{}']], [['turn', 'wait', TURN_ID]]])(
    '%j: the first cancels the turn and waits for its end',
    async (argv) => {
      const { handlers, cancelled } = longTurn();
      const supervisor = await startFakeSupervisor(handlers);
      const driven = new CliRun(argv, { home: supervisor.home, stdin: '' });
      await untilAsked(supervisor, 'turn/output');
      driven.signal('SIGINT');
      const { code, stderr } = await driven.result;
      expect({ code, cancelled: cancelled() }).toEqual({ code: 130, cancelled: true });
      expect(stderr).toContain(`Cancelling ${TURN_ID}`);
      expect(stderr).toContain('error cancelled');
      expect(driven.signalListenerCount('SIGINT')).toBe(0);
    },
  );

  test('the second exits at once and prints how to see the result', async () => {
    const supervisor = await startFakeSupervisor({
      ...turnHandlers(turn()),
      'turn/output': () => new Promise(() => undefined),
      'turn/cancel': () => new Promise(() => undefined),
    });
    const driven = new CliRun(['run', 'counter', '{}'], { home: supervisor.home, stdin: '' });
    await untilAsked(supervisor, 'turn/output');
    driven.signal('SIGINT');
    await untilAsked(supervisor, 'turn/cancel');
    driven.signal('SIGINT');
    const { code, stderr } = await driven.result;
    expect(code).toBe(130);
    expect(stderr).toContain(`holdfast turn wait ${TURN_ID}`);
  });

  test('before the turn id is known, the turn is cancelled as soon as it is', async () => {
    const go = Promise.withResolvers<undefined>();
    const { handlers, cancelled } = longTurn();
    const supervisor = await startFakeSupervisor({
      ...handlers,
      'turn/start': async () => {
        await go.promise;
        return { turn: turn(RUNNING_TURN), session: session() };
      },
    });
    const driven = new CliRun(['run', 'counter', '{}'], { home: supervisor.home, stdin: '' });
    await untilAsked(supervisor, 'turn/start');
    driven.signal('SIGINT');
    go.resolve(undefined);
    expect((await driven.result).code).toBe(130);
    expect(cancelled()).toBe(true);
  });
});

describe('turn wait', () => {
  test('prints all output from its beginning and exits like run', async () => {
    const { home } = await startFakeSupervisor({
      ...turnHandlers(turn(commandTurn), { stdout: 'all of it' }),
      ...commandProfile,
    });
    expect(await runToEnd(['turn', 'wait', TURN_ID], { home })).toMatchObject({
      code: 0,
      stdout: 'all of it',
    });
  });

  test('infers the kind of an agent from the turn if its session was deleted', async () => {
    const gone = () => {
      throw new HoldfastError('not_found', 'No such session');
    };
    const { home } = await startFakeSupervisor({ ...turnHandlers(turn()), 'session/show': gone });
    expect(await runToEnd(['turn', 'wait', TURN_ID], { home })).toMatchObject({
      code: 0,
      stdout: '{"count": 1}\n',
    });
  });

  test('stops waiting after its timeout; the turn continues', async () => {
    const supervisor = await startFakeSupervisor({
      ...turnHandlers(turn()),
      'turn/output': () => new Promise(() => undefined),
    });
    const { code, stderr } = await runToEnd(['turn', 'wait', TURN_ID, '--timeout', '50ms'], {
      home: supervisor.home,
    });
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^error timeout: .* has not ended; the wait timed out after 50 ms; it continues; wait again with `holdfast turn wait turn-[a-z2-7]+`/,
    );
    expect(supervisor.requestedMethods()).not.toContain('turn/cancel');
  });
});

async function untilAsked(supervisor: FakeSupervisor, method: string): Promise<void> {
  while (!supervisor.requestedMethods().includes(method))
    await new Promise((resolve) => setTimeout(resolve, 5));
}
