import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { handlerProject, shellProject, writeProject } from '../setup/profiles.ts';

const PROGRAM = join(import.meta.dirname, '../../scripts/holdfast.cjs');
const COUNTER = join(import.meta.dirname, '../../examples/counter');
const TurnIdSchema = z.string().regex(/^turn-[a-z2-7]{16}\n$/);
const SessionSchema = z.object({
  session: z.object({ id: z.string(), name: z.string(), status: z.string() }),
});
const RunSchema = z.object({
  sessionId: z.string(),
  turnId: z.string(),
  status: z.string(),
  output: z.unknown(),
});

/** A running `holdfast ARGS` whose bytes and signals the test has in hand. */
class Program {
  readonly child: ChildProcess;
  readonly #stdout: Buffer[] = [];
  #stderr = '';
  readonly #ended: Promise<number | null>;

  constructor(home: TestHome, command: readonly string[], env: Readonly<Record<string, string>> = {}) {
    const [program = '', ...args] = command;
    this.child = spawn(program, args, {
      env: { ...process.env, ...env, HOLDFAST_HOME: home.path },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.child.stdout?.on('data', (chunk: Buffer) => this.#stdout.push(chunk));
    this.child.stderr?.setEncoding('utf8').on('data', (chunk: string) => (this.#stderr += chunk));
    this.child.stdin?.on('error', () => undefined);
    this.#ended = new Promise((resolve) => this.child.once('close', resolve));
    started.push(this.child);
  }

  static holdfast(home: TestHome, ...args: string[]): Program {
    return new Program(home, [process.execPath, PROGRAM, ...args]);
  }

  /** In a terminal of 100 × 30 that util-linux `script` makes; everything comes on standard output. */
  static inTerminal(home: TestHome, ...args: string[]): Program {
    const words = [process.execPath, PROGRAM, ...args].map((word) => `'${word.replaceAll("'", `'\\''`)}'`);
    const command = `stty cols 100 rows 30; exec ${words.join(' ')}`;
    return new Program(home, ['script', '-qec', command, '/dev/null'], { TERM: 'xterm', NO_COLOR: '1' });
  }

  get stdout(): Buffer {
    return Buffer.concat(this.#stdout);
  }
  get stderr(): string {
    return this.#stderr;
  }

  write(bytes: string | Buffer): void {
    this.child.stdin?.write(bytes);
  }

  async end(input?: string | Buffer): Promise<number | null> {
    this.child.stdin?.end(input);
    return this.#ended;
  }

  /** What it printed, once it has ended well. */
  async textAtEnd(): Promise<string> {
    expect(await this.end()).toBe(0);
    return this.stdout.toString('utf8');
  }

  async shows(text: string): Promise<void> {
    await until(() => this.stdout.includes(text) || this.#stderr.includes(text), `${text} in the output`);
  }
}

const started: ChildProcess[] = [];
afterEach(() => {
  for (const child of started.splice(0)) child.kill('SIGKILL');
});

async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const deadline = Date.now() + 30_000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited for ${what} in vain`);
    await sleep(50);
  }
}

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', COUNTER]);
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  await home.runOk([
    'deploy',
    await writeProject(
      home.projects,
      handlerProject(
        'picky',
        'def handler(i):\n    print("looking")\n    return {"length": len(i["text"])}\n',
      ),
    ),
  ]);
});
afterAll(async () => {
  await home.dispose();
});

describe('run', () => {
  test('counts on', async () => {
    for (const count of [1, 2, 3]) {
      expect(await home.runOk(['run', 'counter', '{}'])).toBe(`{"count": ${String(count)}}\n`);
    }
  });

  test('of a handler that fails ends with 1, shows its traceback, and the document has the error', async () => {
    const plain = await home.run(['run', 'picky', '{}']);
    expect({ code: plain.code, stdout: plain.stdout }).toEqual({ code: 1, stdout: '' });
    expect(plain.stderr).toContain('looking\n');
    expect(plain.stderr).toContain("KeyError: 'text'");
    expect(plain.stderr).toMatch(/\nerror agent_failed: .+\n$/);
    const json = await home.run(['run', 'picky', '{}', '--json']);
    expect(json.code).toBe(1);
    expect(JSON.parse(json.stdout)).toMatchObject({
      status: 'failed',
      output: null,
      error: { data: { code: 'agent_failed' } },
    });
  });

  test('of a command passes binary output on as it is, its two streams apart', async () => {
    const script =
      'i=0; while [ $i -lt 256 ]; do printf "\\\\$(printf %03o $i)"; i=$((i+1)); done; echo note >&2';
    const run = Program.holdfast(home, 'run', 'shell', '-');
    expect(await run.end(script)).toBe(0);
    expect(run.stdout).toEqual(Buffer.from(Array.from({ length: 256 }, (_, at) => at)));
    expect(run.stderr).toBe('note\n');
  });

  test('streams while the turn runs, and survives kill -9 of the supervisor without losing or repeating a line', async () => {
    const run = Program.holdfast(
      home,
      'run',
      'shell',
      'i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.1; done',
    );
    await run.shows('line 5\n');
    const { pid } = z.object({ pid: z.number() }).parse(await home.runJson(['supervisor', 'status']));
    process.kill(pid, 'SIGKILL');
    expect(await run.end()).toBe(0);
    const lines = Array.from({ length: 60 }, (_, at) => `line ${String(at)}\n`);
    expect(run.stdout.toString('utf8')).toBe(lines.join(''));
  });

  test('^C cancels the turn, waits for its end and ends with 130', async () => {
    const run = Program.holdfast(home, 'run', 'shell', 'echo started; sleep 300');
    await run.shows('started');
    run.child.kill('SIGINT');
    expect(await run.end()).toBe(130);
    expect(run.stderr).toMatch(/Cancelling turn-[a-z2-7]{16}/);
    const id = /turn-[a-z2-7]{16}/.exec(run.stderr)?.[0] ?? '';
    expect(await home.runJson(['turn', 'show', id])).toMatchObject({ turn: { status: 'cancelled' } });
  });

  test('--no-wait leaves a turn that turn wait finds again, with all its output and its exit code', async () => {
    const id = TurnIdSchema.parse(
      await home.runOk(['run', 'shell', 'echo one; sleep 1; echo two; exit 4', '--no-wait']),
    ).trim();
    const wait = await home.run(['turn', 'wait', id]);
    expect({ code: wait.code, stdout: wait.stdout }).toEqual({ code: 1, stdout: 'one\ntwo\n' });
    expect(await home.runJson(['turn', 'show', id])).toMatchObject({
      turn: { status: 'failed', exitCode: 4 },
    });
  });

  test('--timeout ends the turn', async () => {
    const { code, stderr } = await home.run(['run', 'shell', 'sleep 300', '--timeout', '1']);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^error timeout: /m);
  });
});

describe('exec', () => {
  const exec = (...words: string[]) => Program.holdfast(home, 'exec', 'shell/default', '--', ...words);
  beforeAll(async () => {
    await home.runOk(['run', 'shell', 'true']);
  });

  test.each([0, 1, 7, 126, 255])('passes on exit code %d', async (code) => {
    expect(await exec('sh', '-c', `exit ${String(code)}`).end()).toBe(code);
  });

  test('a process that a signal ended is 128 and its number', async () => {
    expect(await exec('sh', '-c', 'kill -TERM $$').end()).toBe(143);
  });

  test('carries 4 MiB of any bytes there and back', async () => {
    const bytes = randomBytes(4 * 2 ** 20);
    const cat = exec('cat');
    expect(await cat.end(bytes)).toBe(0);
    expect(cat.stdout.equals(bytes)).toBe(true);
  });

  test('keeps standard output and error apart, and hands arguments on untouched', async () => {
    const words = ['sh', '-c', 'printf "%s|" "$@"; echo no >&2', 'sh', '--json', 'a b', '$HOME', '', '-t'];
    const run = exec(...words);
    expect(await run.end()).toBe(0);
    expect(run.stdout.toString('utf8')).toBe('--json|a b|$HOME||-t|');
    expect(run.stderr).toBe('no\n');
  });

  test('the first ^C interrupts, the second kills', async () => {
    const trap = exec('sh', '-c', 'trap "echo caught" INT; echo ready; while :; do sleep 0.1; done');
    await trap.shows('ready');
    trap.child.kill('SIGINT');
    await trap.shows('caught');
    trap.child.kill('SIGINT');
    expect(await trap.end()).toBe(137);
  });

  test('a client that is killed takes its process with it', async () => {
    const lasting = exec('sh', '-c', 'echo ready; exec sleep 86399');
    await lasting.shows('ready');
    const alive = async () =>
      (await exec('sh', '-c', 'cat /proc/[0-9]*/cmdline | tr "\\0" " "').textAtEnd()).includes('sleep 86399');
    expect(await alive()).toBe(true);
    lasting.child.kill('SIGKILL');
    await until(async () => !(await alive()), 'the process to end');
  });

  // It gives the command line a terminal of its own; there is one on every Debian.
  test.skipIf(!existsSync('/usr/bin/script'))(
    '-t gives a terminal of this size, keys, and the exit code (needs script)',
    async () => {
      const shell = Program.inTerminal(home, 'exec', '-t', 'shell/default', '--', 'sh');
      await until(() => shell.stdout.length > 0, 'a prompt');
      shell.write('tty; stty size; echo "$TERM"\n');
      await shell.shows('/dev/pts/');
      await shell.shows('30 100');
      await shell.shows('xterm');
      // ^C goes to the program in the terminal and does not end the client.
      shell.write('echo sl-"eeps"; sleep 300\n');
      await shell.shows('sl-eeps');
      shell.write('\u0003');
      shell.write('echo still-"here"; exit 9\n');
      await shell.shows('still-here');
      expect(await shell.end()).toBe(9);
    },
  );
});

describe('what scripts rely on', () => {
  test('--json prints one document on standard output, for every command', async () => {
    const { sessionId, turnId } = RunSchema.parse(
      await home.runJson(['run', 'counter', '{}', '--session', 'scripted']),
    );
    const created = SessionSchema.parse(
      await home.runJson(['session', 'create', 'counter', '--name', 'made']),
    );
    const shapes: readonly (readonly [readonly string[], z.ZodType])[] = [
      [['profiles'], z.object({ profiles: z.array(z.object({ name: z.string() })).min(3) })],
      [['deploy', COUNTER], z.object({ unchanged: z.literal(true) })],
      [
        ['session', 'list'],
        z.object({
          sessions: z.array(z.object({ id: z.string(), tags: z.array(z.string()) })),
          nextCursor: z.null(),
        }),
      ],
      [['session', 'show', 'scripted'], SessionSchema],
      [['session', 'update', 'scripted', '--pin', '--tag', 'x'], SessionSchema],
      [['session', 'pause', sessionId], SessionSchema],
      [
        ['session', 'resume', sessionId],
        SessionSchema.extend({ sandbox: z.object({ case: z.literal('unpause') }) }),
      ],
      [['session', 'stop', sessionId], SessionSchema],
      [['session', 'verify', sessionId], z.object({ ok: z.literal(true) })],
      [
        ['turn', 'list', sessionId],
        z.object({ turns: z.array(z.object({ turnId: z.literal(turnId) })).length(1) }),
      ],
      [['turn', 'show', turnId], z.object({ turn: z.object({ status: z.literal('succeeded') }) })],
      [['turn', 'cancel', turnId], z.object({ turn: z.object({ status: z.literal('succeeded') }) })],
      [['turn', 'wait', turnId], RunSchema],
      [['prompt', 'scripted', '{}'], RunSchema],
      [
        ['workspace', 'info', sessionId],
        z.object({
          path: z.string(),
          bytes: z.number(),
          files: z.literal(3),
          limit: z.null(),
          lastUsedAt: z.string(),
        }),
      ],
      [['workspace', 'clean', sessionId, '--force'], z.object({ removedFiles: z.literal(3) })],
      [
        ['gc', '--dry-run'],
        z.object({ removed: z.array(z.unknown()), retained: z.array(z.unknown()), dryRun: z.literal(true) }),
      ],
      [['doctor'], z.object({ checks: z.array(z.object({ name: z.string(), status: z.string() })).min(1) })],
      [['supervisor', 'start'], z.object({ running: z.literal(true) })],
      [
        ['supervisor', 'status'],
        z.object({
          pid: z.number(),
          version: z.string(),
          home: z.literal(home.path),
          engine: z.object({}),
          sessions: z.object({}),
        }),
      ],
      [['session', 'delete', created.session.id, '--force'], z.object({ deleted: z.literal(true) })],
      [['version'], z.object({ version: z.string() })],
    ];
    for (const [args, shape] of shapes) {
      const { code, stdout, stderr } = await home.run([...args, '--json']);
      const name = args.join(' ');
      // `doctor` may have found something on this machine.
      if (name !== 'doctor') expect({ name, code, stderr }).toEqual({ name, code: 0, stderr: '' });
      expect(stdout.match(/\n/g), name).toHaveLength(1);
      expect(shape.safeParse(JSON.parse(stdout)).error, name).toBeUndefined();
    }
    const events = await home.runOk(['session', 'events', sessionId, '--json']);
    const seqs = events
      .trimEnd()
      .split('\n')
      .map((line) => z.object({ seq: z.number() }).parse(JSON.parse(line)).seq);
    expect(seqs).toEqual(seqs.map((_, at) => at + 1));
    const logs = await home.runOk(['supervisor', 'logs', '-n', '3', '--json']);
    for (const line of logs.trimEnd().split('\n'))
      expect(JSON.parse(line)).toMatchObject({ level: expect.any(String) as string });
  });

  test.each([
    [['run', 'nobody', '{}'], 1, /^error not_found: /],
    [
      ['run', 'counter', '{oops}'],
      2,
      /^error invalid_params: The input is not valid JSON; .*line 1, column 2/,
    ],
    [['session', 'show', 'nobody'], 1, /^error not_found: /],
    [['session', 'create', 'counter', '--name', 'a/b'], 2, /^error invalid_params: /],
    [['session', 'resume', 'shell/default', '--from', 'nothing'], 2, /^error usage: /],
    [['session', 'frobnicate'], 2, /^error usage: /],
    [['snapshot', 'create', 'x'], 1, /^error not_found: /],
    [['retention', 'plan'], 2, /^error not_supported: /],
    [['undeploy', 'counter'], 1, /^error confirmation_required: .*--force/],
    [['exec', 'nobody', '--', 'true'], 1, /^error not_found: /],
    [['deploy', '/nonexistent'], 1, /^error [a-z_]+: /],
  ])('%j ends with %d', async (args, code, said) => {
    const run = await home.run(args);
    expect({ code: run.code, stdout: run.stdout }).toEqual({ code, stdout: '' });
    expect(run.stderr).toMatch(said);
  });

  test('resuming from memory keeps the memory and the history, and begins with clean files', async () => {
    await home.runOk(['session', 'create', 'shell', '--name', 'forgetful']);
    await home.runOk(['memory', 'set', 'forgetful', 'use tabs']);
    await home.runOk(['prompt', 'forgetful', 'echo old > file; echo old > ~/file']);
    const { undo } = z
      .object({ undo: z.string() })
      .parse(await home.runJson(['session', 'resume', 'forgetful', '--from', 'memory']));
    expect(await home.runOk(['exec', 'forgetful', '--', 'sh', '-c', 'ls . ~'])).not.toMatch(/^file$/m);
    expect(await home.runOk(['memory', 'show', 'forgetful'])).toBe('use tabs\n');
    const events = await home.runOk(['session', 'events', 'forgetful', '--json']);
    const found = events
      .trim()
      .split('\n')
      .map((line) => z.object({ type: z.string(), data: z.unknown() }).parse(JSON.parse(line)))
      .filter(({ type }) => type === 'conversation.started-over');
    expect(found.map(({ data }) => data)).toEqual([{ memory: 1 }]);
    await home.runOk(['snapshot', 'restore', 'forgetful', undo, '--cancel']);
    expect(await home.runOk(['exec', 'forgetful', '--', 'cat', 'file'])).toBe('old\n');
  });

  test('resuming an ephemeral session from memory starts over, and a fork has the files from before', async () => {
    const brief = await writeProject(home.projects, shellProject('brief', 'persistence: ephemeral\n'));
    await home.runOk(['deploy', brief]);
    await home.runOk(['session', 'create', 'brief', '--name', 'short']);
    await home.runOk(['memory', 'set', 'short', 'use tabs']);
    await home.runOk(['prompt', 'short', 'echo old > file; echo old > ~/file']);
    const { stderr } = await home.run(['session', 'resume', 'short', '--from', 'memory']);
    const fork = /holdfast snapshot fork (snp-[a-z2-7]{16})/.exec(stderr)?.[1];
    expect(await home.runOk(['exec', 'short', '--', 'sh', '-c', 'ls . ~'])).not.toMatch(/^file$/m);
    expect(await home.runOk(['memory', 'show', 'short'])).toBe('use tabs\n');
    expect(await home.runOk(['session', 'events', 'short', '--json'])).toMatch(
      /"type":"conversation\.started-over"/,
    );
    await home.runOk(['snapshot', 'fork', fork ?? '', '--name', 'before']);
    expect(await home.runOk(['exec', 'before', '--', 'cat', 'file'])).toBe('old\n');
    expect(await home.run(['session', 'reset', 'short'])).toMatchObject({
      stderr: expect.stringMatching(/^error not_supported: .*ephemeral/) as string,
    });
  });

  test('connect is a clean bridge: one line in, one line out', async () => {
    const bridge = Program.holdfast(home, 'connect');
    const client = { name: 'a test', version: '0.0.0', build: 'none', builtAt: 0 };
    const hello = { jsonrpc: '2.0', id: 1, method: 'hello', params: { client, protocolVersions: ['1'] } };
    bridge.write(`${JSON.stringify(hello)}\n`);
    await bridge.shows('\n');
    expect(JSON.parse(bridge.stdout.toString('utf8'))).toMatchObject({
      id: 1,
      result: { protocolVersion: '1' },
    });
    expect(await bridge.end()).toBe(0);
    expect(bridge.stderr).toBe('');
  });

  test('a reader that goes away is no failure worth a word', async () => {
    const run = new Program(home, [
      'sh',
      '-c',
      `'${process.execPath}' '${PROGRAM}' --help | true; echo done >&2`,
    ]);
    expect(await run.end()).toBe(0);
    expect(run.stderr).toBe('done\n');
  });

  test('a supervisor that was stopped is started by the next command, and not by looking at it', async () => {
    await home.runOk(['supervisor', 'stop']);
    expect(await home.runJson(['supervisor', 'status'])).toEqual({ running: false, home: home.path });
    expect(await home.runOk(['__complete', 'session'])).toBe('');
    expect(await home.runJson(['supervisor', 'status'])).toMatchObject({ running: false });
    await home.runOk(['profiles']);
    expect(await home.runJson(['supervisor', 'status'])).toMatchObject({ running: true });
    expect((await home.runOk(['__complete', 'session'])).split('\n')).toContain('shell/default');
  });
});
