import { afterEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { withBytes } from '../../../protocol/wire/shapes.ts';
import { cli, Driven } from './driver.ts';
import { FakeSupervisor, SESSION_ID } from './fake-supervisor.ts';
import type { FakeHandlers } from './fake-supervisor.ts';

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
  await fake?.end();
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
  test('shows output and passes keys on, raw; the exit code is the program’s', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    echo.show('earlier\r\n');
    const driven = new Driven(['terminal', 'attach', ID], { home, terminal: 90 });
    await driven.shows('earlier');
    expect(driven.rawMode).toBe(true);
    driven.stdin.write('ls\r\x03');
    await expect.poll(() => echo.typed).toBe('ls\r\x03');
    expect(echo.sizes).toEqual(['90x24']);
    driven.signal('SIGWINCH');
    await expect.poll(() => echo.sizes.length).toBe(2);
    echo.show('now\x1b]52;c;ZXZpbA==\x07\r\n');
    echo.end(42);
    expect(await driven.finished).toMatchObject({ code: 42, stdout: 'earlier\r\nnow\r\n' });
    expect(driven.rawMode).toBe(false);
    expect(driven.listeners('SIGWINCH')).toBe(0);
  });

  test('what was shown before asks nothing, and a line that is cut off is left out', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    echo.show('0123456789of a line\nwhole\x1b[6n line\n');
    echo.start = 10;
    const driven = new Driven(['terminal', 'attach', ID], { home, terminal: 90 });
    await driven.shows('whole');
    echo.show('live\x1b[6n');
    await driven.shows('live');
    echo.end(0);
    expect((await driven.finished).stdout).toBe('whole line\nlive\x1b[6n');
  });

  test('who ended it is said, on one line', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const driven = new Driven(['terminal', 'attach', ID], { home, terminal: 90 });
    echo.show('here');
    await driven.shows('here');
    echo.why = 'its session was\u001b[2J stopped';
    echo.end(129);
    const { code, stderr } = await driven.finished;
    expect(code).toBe(129);
    expect(stderr).toContain('The terminal was ended: its session was\\e[2J stopped');
  });

  test('with --hold it stays until a key is pressed, whoever or whatever ended it; never where its program did', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const driven = new Driven(['terminal', 'attach', ID, '--hold'], { home, terminal: 90 });
    echo.why = 'its session was stopped';
    echo.end(129);
    await driven.shows('Press a key');
    let isOver = false;
    void driven.finished.then(() => (isOver = true));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(isOver).toBe(false);
    driven.stdin.write('x');
    expect((await driven.finished).code).toBe(129);
    expect(echo.typed).toBe('');

    echo.why = null;
    echo.end(null);
    const lost = new Driven(['terminal', 'attach', ID, '--hold'], { home, terminal: 90 });
    await lost.shows('error sandbox_lost');
    await lost.shows('Press a key');
    lost.stdin.write('\x03');
    expect((await lost.finished).code).toBe(1);

    echo.end(3);
    const own = new Driven(['terminal', 'attach', ID, '--hold'], { home, terminal: 90 });
    expect((await own.finished).code).toBe(3);
  });

  test('~. leaves it, and puts the screen right; --no-escape passes it on', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    const driven = new Driven(['terminal', 'attach', ID], { home, terminal: 90 });
    driven.stdin.write('vi\r');
    await expect.poll(() => echo.typed).toBe('vi\r');
    driven.stdin.write('~.');
    const { code, stdout, stderr } = await driven.finished;
    expect(code).toBe(0);
    expect(stdout).toContain('\x1b[?1049l');
    expect(stderr).toContain(`holdfast terminal attach ${ID}`);

    const other = new Driven(['terminal', 'attach', ID, '--no-escape'], { home, terminal: 90 });
    other.stdin.write('~.');
    await expect.poll(() => echo.typed).toBe('vi\r~.');
    echo.end(0);
    expect((await other.finished).code).toBe(0);
  });

  test('a supervisor that was stopped is waited for, and ^C ends the waiting', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    echo.show('here');
    const driven = new Driven(['terminal', 'attach', ID], { home, terminal: 90 });
    await driven.shows('here');
    await fake?.end();
    fake = undefined;
    await driven.shows('waiting for it');
    driven.stdin.write('\x03');
    expect((await driven.finished).code).toBe(0);
  });

  test('one that is over, or never was, is an error', async () => {
    const { home } = await serve(new Echo(), {
      'terminal/attach': () => {
        throw new HoldfastError('not_found', `There is no terminal ${ID}`);
      },
    });
    expect(await cli(['terminal', 'attach', ID], { home })).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^error not_found: /) as string,
    });
    expect(await cli(['terminal', 'attach', 'x\u001b[31m'], { home })).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/^error invalid_params: x\\e/) as string,
    });
  });

  test('a sandbox that goes away is an error', async () => {
    const echo = new Echo();
    const { home } = await serve(echo);
    echo.end(null);
    expect(await cli(['terminal', 'attach', ID], { home })).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^error sandbox_lost: /) as string,
    });
  });
});
