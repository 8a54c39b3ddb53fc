import { afterEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { withBytes } from '../../../protocol/wire/shapes.ts';
import { runToEnd, CliRun } from '../../fixtures/cli/cli-run.ts';
import { FakeSupervisor, SESSION_ID } from '../../fixtures/cli/fake-supervisor.ts';
import type { FakeHandlers } from '../../fixtures/cli/fake-supervisor.ts';

const ID = 'term-aaaaaaaaaaaaaaaa';
const TERMINAL = {
  terminalId: ID,
  sessionId: SESSION_ID,
  status: 'running',
  command: [] as string[],
  cwd: '/workspace',
  createdAt: '2026-03-01T11:00:00.000Z',
  endedAt: null,
  exitCode: null,
  why: null,
} as const;

let fake: FakeSupervisor | undefined;
afterEach(async () => {
  await fake?.dispose();
  fake = undefined;
});

/** A fake terminal: it shows what it is given, and what is typed into it. */
class Echo {
  output = Buffer.alloc(0);
  typed = '';
  readonly sizes: string[] = [];
  why: string | null = null;
  exitCode: number | null | undefined;
  start = 0;
  #wake: (() => void) | undefined;

  show(text: string | Buffer): void {
    this.output = Buffer.concat([this.output, Buffer.from(text)]);
    this.#wake?.();
  }

  end(exitCode: number | null): void {
    this.exitCode = exitCode;
    this.#wake?.();
  }

  get handlers(): FakeHandlers {
    return {
      'terminal/attach': () => ({ terminal: TERMINAL, start: this.start, total: this.output.length }),
      'terminal/read': async ({ offset }, { signal }) => {
        const from = Math.max(offset, this.start);
        if (this.output.length === from && this.exitCode === undefined) {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
            signal.addEventListener('abort', () => resolve());
          });
        }
        const ended = this.exitCode !== undefined;
        return withBytes(
          { offset: from, total: this.output.length, ended, exitCode: this.exitCode ?? null, why: this.why },
          this.output.subarray(from),
        );
      },
      'terminal/write': (_params, { bytes }) => {
        this.typed += bytes.toString();
        return {};
      },
      'terminal/resize': ({ columns, rows }) => {
        this.sizes.push(`${columns}x${rows}`);
        return {};
      },
    };
  }
}

async function serve(echo: Echo, more: FakeHandlers = {}): Promise<FakeSupervisor> {
  fake = await FakeSupervisor.start({ ...echo.handlers, ...more });
  return fake;
}

describe('terminal attach', () => {
  test('prints output, sends keys in raw mode and exits with the program’s exit code', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    echo.show('earlier\r\n');
    const driven = new CliRun(['terminal', 'attach', ID], { home, terminal: 90 });
    await driven.waitForText('earlier');
    expect(driven.isRawMode).toBe(true);
    driven.stdin.write('ls\r\x03');
    await expect.poll(() => echo.typed).toBe('ls\r\x03');
    expect(echo.sizes).toEqual(['90x24']);
    driven.signal('SIGWINCH');
    await expect.poll(() => echo.sizes.length).toBe(2);
    echo.show('now\x1b]52;c;ZXZpbA==\x07\r\n');
    echo.end(42);
    expect(await driven.result).toMatchObject({ code: 42, stdout: 'earlier\r\nnow\r\n' });
    expect(driven.isRawMode).toBe(false);
    expect(driven.signalListenerCount('SIGWINCH')).toBe(0);
  });

  test('replayed output contains no queries and no truncated first line', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    echo.show('0123456789of a line\nwhole\x1b[6n line\n');
    echo.start = 10;
    const driven = new CliRun(['terminal', 'attach', ID], { home, terminal: 90 });
    await driven.waitForText('whole');
    echo.show('live\x1b[6n');
    await driven.waitForText('live');
    echo.end(0);
    expect((await driven.result).stdout).toBe('whole line\nlive\x1b[6n');
  });

  test('reports why it ended, on one line', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const driven = new CliRun(['terminal', 'attach', ID], { home, terminal: 90 });
    echo.show('here');
    await driven.waitForText('here');
    echo.why = 'its session was\u001b[2J stopped';
    echo.end(129);
    const { code, stderr } = await driven.result;
    expect(code).toBe(129);
    expect(stderr).toContain('The terminal was ended: its session was\\e[2J stopped');
  });

  test('--hold waits for a key unless its program exited by itself', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const driven = new CliRun(['terminal', 'attach', ID, '--hold'], { home, terminal: 90 });
    echo.why = 'its session was stopped';
    echo.end(129);
    await driven.waitForText('Press any key');
    let isOver = false;
    void driven.result.then(() => (isOver = true));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(isOver).toBe(false);
    driven.stdin.write('x');
    expect((await driven.result).code).toBe(129);
    expect(echo.typed).toBe('');

    echo.why = null;
    echo.end(null);
    const lost = new CliRun(['terminal', 'attach', ID, '--hold'], { home, terminal: 90 });
    await lost.waitForText('error sandbox_lost');
    await lost.waitForText('Press any key');
    lost.stdin.write('\x03');
    expect((await lost.result).code).toBe(1);

    echo.end(3);
    const own = new CliRun(['terminal', 'attach', ID, '--hold'], { home, terminal: 90 });
    expect((await own.result).code).toBe(3);
  });

  test('Ctrl+] d detaches: the program gets no byte of it, the screen is restored, and then the way back is printed', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const driven = new CliRun(['terminal', 'attach', ID], { home, terminal: 90 });
    await driven.waitForText('Ctrl+] d detaches');
    echo.show('\x1b[?1049h\x1b[?25l\x1b[>1u\x1b[?1004h❯ 1. Yes');
    await driven.waitForText('1. Yes');
    driven.stdin.write('x');
    await expect.poll(() => echo.typed).toBe('x');
    // A terminal with kitty keys that reports focus and modifier keys.
    driven.stdin.write('\x1b[I\x1b[57442;5u');
    for (const part of ['\x1b[9', '3;5', 'u', '\x1b[O', 'd', '\r']) driven.stdin.write(part);
    const { code, stdout, stderr } = await driven.result;
    expect(code).toBe(0);
    expect(echo.typed).toBe('x\x1b[I\x1b[57442;5u\x1b[O');
    expect(stdout.slice(stdout.indexOf('1. Yes'))).toBe('1. Yes\x1b[<1u\x1b[?1049l\x1b[?1004l\x1b[?25h\r\n');
    expect(stderr).toContain(`holdfast terminal attach ${ID}`);
    expect(driven.isRawMode).toBe(false);
  });

  test('typing the prefix twice sends it once, a pasted prefix is text, and Escape is sent after a moment', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const driven = new CliRun(['terminal', 'attach', ID], { home, terminal: 90 });
    await driven.waitForText('detaches; the terminal keeps running');
    driven.stdin.write('\x1d\x1d\x1b[200~\x1dd\x1b[201~');
    await expect.poll(() => echo.typed).toBe('\x1d\x1b[200~\x1dd\x1b[201~');
    echo.typed = '';
    driven.stdin.write('\x1b');
    await expect.poll(() => echo.typed).toBe('\x1b');
    echo.end(0);
    expect((await driven.result).code).toBe(0);
  });

  test('the detach keys can be chosen or disabled, and invalid ones are refused before anything is opened', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const leave = async (args: string[], keys: string, env: Record<string, string> = {}): Promise<void> => {
      echo.typed = '';
      const driven = new CliRun(['terminal', 'attach', ID, ...args], { home, terminal: 90, env });
      await expect.poll(() => driven.isRawMode).toBe(true);
      driven.stdin.write(keys);
      expect((await driven.result).stderr).toContain('Detached. Attach again with');
    };
    await leave(['--detach-keys', 'ctrl-p,ctrl-q'], 'a\x10\x11');
    expect(echo.typed).toBe('a');
    await leave([], '\x1dd\x01k', { HOLDFAST_DETACH_KEYS: 'ctrl-a,k' });
    expect(echo.typed).toBe('\x1dd');
    await leave(['--detach-keys', 'ctrl-b'], '\x1dd\x02d', { HOLDFAST_DETACH_KEYS: 'ctrl-a,k' });
    expect(echo.typed).toBe('\x1dd');

    echo.typed = '';
    const none = new CliRun(['terminal', 'attach', ID, '--detach-keys', 'none'], { home, terminal: 90 });
    none.stdin.write('\x1dd');
    await expect.poll(() => echo.typed).toBe('\x1dd');
    echo.end(0);
    expect((await none.result).stderr).not.toContain('detaches');
    const asked = fake?.requests.length;
    for (const [args, env] of [
      [['open', 'default', '--detach-keys', 'enter'], {}],
      [['open', 'default'], { HOLDFAST_DETACH_KEYS: 'ctrl-m' }],
    ] as const) {
      expect(await new CliRun(['terminal', ...args], { home, terminal: 90, env }).result).toMatchObject({
        code: 2,
        stderr: expect.stringMatching(/are not valid detach keys/) as string,
      });
    }
    expect(fake?.requests.length).toBe(asked);
  });

  test('piped input passes through unchanged', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const driven = new CliRun(['terminal', 'attach', ID], { home, stdin: 'a\x1dd\x1b' });
    await expect.poll(() => echo.typed).toBe('a\x1dd\x1b');
    echo.end(0);
    expect((await driven.result).code).toBe(0);
  });

  test('the user can detach from a program that reads no input', async () => {
    const echo = new Echo();
    const { home } = await serve(echo, { 'terminal/write': () => new Promise(() => undefined) });
    const driven = new CliRun(['terminal', 'attach', ID], { home, terminal: 90 });
    await driven.waitForText('detaches; the terminal keeps running');
    driven.stdin.write('typed\r');
    driven.stdin.write('\x1dd');
    expect((await driven.result).code).toBe(0);
  });

  test('if it is closed or lost, the screen is restored before the message', async () => {
    for (const [why, exitCode, said] of [
      ['its session was stopped', 129, 'The terminal was ended'],
      [null, null, 'error sandbox_lost'],
    ] as const) {
      const echo = new Echo();
      const { home } = await serve(echo);
      const driven = new CliRun(['terminal', 'attach', ID, '--hold'], { home, terminal: 90 });
      echo.show('\x1b[?1049h\x1b[?1004hfull');
      await driven.waitForText('full');
      echo.why = why;
      echo.end(exitCode);
      await driven.waitForText(said);
      expect(driven.stdoutBytes().toString()).toBe('\x1b[?1049h\x1b[?1004hfull\x1b[?1049l\x1b[?1004l\r\n');
      await driven.waitForText('Press any key');
      // The window was left and entered: nobody has pressed a key.
      driven.stdin.write('\x1b[O\x1b[I');
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect(driven.isRawMode).toBe(true);
      driven.stdin.write('q');
      await driven.result;
      await fake?.dispose();
    }
    fake = undefined;
  });

  test('the modes of a program that exits by itself are restored without a message', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const driven = new CliRun(['terminal', 'attach', ID], { home, terminal: 90 });
    echo.show('\x1b[?1003h\x1b[31mkilled\r\n');
    await driven.waitForText('killed');
    echo.end(137);
    expect(await driven.result).toMatchObject({
      code: 137,
      stdout: '\x1b[?1003h\x1b[31mkilled\r\n\x1b[?1003l\x1b[0m',
    });
  });

  test('in a full-screen program the window title reports that the supervisor is away, and is restored afterwards', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const driven = new CliRun(['terminal', 'attach', ID], { home, terminal: 90 });
    echo.show('\x1b]2;mine\x07\x1b[?1049hfull');
    await driven.waitForText('full');
    await fake?.dispose();
    fake = undefined;
    await driven.waitForText(
      '\x1b]2;The supervisor is not running; waiting for it to start (^C or Ctrl+] d detaches)\x07',
    );
    // ^C as a terminal with kitty keys sends it.
    driven.stdin.write('\x1b[99;5u');
    const { code, stdout, stderr } = await driven.result;
    expect(code).toBe(0);
    expect(stderr).not.toContain('not running');
    expect(stdout.endsWith('\x07\x1b[?1049l\x1b]2;mine\x07\r\n')).toBe(true);
  });

  test('waits for a stopped supervisor until ^C', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    echo.show('here');
    const driven = new CliRun(['terminal', 'attach', ID], { home, terminal: 90 });
    await driven.waitForText('here');
    await fake?.dispose();
    fake = undefined;
    await driven.waitForText('waiting for it');
    driven.stdin.write('\x03');
    expect((await driven.result).code).toBe(0);
  });

  test('an ended or unknown terminal is an error', async () => {
    const { home } = await serve(new Echo(), {
      'terminal/attach': () => {
        throw new HoldfastError('not_found', `There is no terminal ${ID}`);
      },
    });
    expect(await runToEnd(['terminal', 'attach', ID], { home })).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^error not_found: /) as string,
    });
    expect(await runToEnd(['terminal', 'attach', 'x\u001b[31m'], { home })).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/^error invalid_params: x\\e/) as string,
    });
  });

  test('a lost sandbox is an error', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    echo.end(null);
    expect(await runToEnd(['terminal', 'attach', ID], { home })).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^error sandbox_lost: /) as string,
    });
  });
});
