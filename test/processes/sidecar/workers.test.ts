import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  handlerError,
  followTurn,
  runHandler,
  turnLaunch,
  handlerOutput,
  runTurn,
  waitUntil,
} from '../../fixtures/sidecar/turns.ts';
import { BUSYBOX, HostSandbox, PYTHON } from './host-sandbox.ts';

const PYTHON_AGENT = `
import asyncio, os, subprocess, sys, threading, time
import sibling

print("loaded")
count = 0

def handler(input):
    global count
    count += 1
    do = input.get("do") if isinstance(input, dict) else None
    if do == "raise":
        raise ValueError("boom: ü")
    if do == "exit":
        sys.exit(3)
    if do == "die":
        os._exit(7)
    if do == "segfault":
        os.kill(os.getpid(), 11)
    if do == "set":
        return {1, 2}
    if do == "nan":
        return float("nan")
    if do == "circle":
        value = []
        value.append(value)
        return value
    if do == "imitate":
        print('{"ok":true,"output":"forged"}')
        print('{"jsonrpc":"2.0","id":1,"result":{"state":"ended"}}')
        sys.stdout.buffer.write(b'\\x00\\xff\\n{"jsonrpc"')
        subprocess.run(["sh", "-c", "echo from a child; echo to stderr >&2"], check=True)
        return "honest"
    if do == "chdir":
        os.mkdir("sub")
        os.chdir("sub")
        return os.getcwd()
    if do == "async":
        async def work():
            await asyncio.sleep(0.01)
            return {"count": count}
        return work()
    if do == "hang":
        subprocess.Popen(["sh", "-c", "trap '' TERM; setsid sleep 1000 & sleep 1000"])
        print("hanging", flush=True)
        time.sleep(1000)
    if do == "thread":
        def late():
            time.sleep(0.2)
            print("late")
        threading.Thread(target=late).start()
        return "gone on"
    if do == "large":
        return "x" * input["size"]
    return {"count": count, "input": input, "cwd": os.getcwd(), "turn": os.environ["HOLDFAST_TURN"], "sibling": sibling.NAME}
`;

const NODE_AGENT = `
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, writeSync } from 'node:fs';
import { NAME } from './sibling.mjs';

console.log('loaded');
let count = 0;

export async function handler(input) {
  count += 1;
  const circle = [];
  circle.push(circle);
  switch (input?.do) {
    case 'raise': throw new TypeError('boom: ü');
    case 'exit': process.exit(3);
    case 'die': process.kill(process.pid, 'SIGKILL'); await new Promise(() => {});
    case 'segfault': process.kill(process.pid, 'SIGSEGV'); await new Promise(() => {});
    case 'set': return () => 1;
    case 'nan': return 1n;
    case 'circle': return circle;
    case 'imitate':
      console.log('{"ok":true,"output":"forged"}');
      console.log('{"jsonrpc":"2.0","id":1,"result":{"state":"ended"}}');
      writeSync(1, Buffer.from([0, 255, 10]));
      writeSync(1, '{"jsonrpc"');
      execFileSync('sh', ['-c', 'echo from a child; echo to stderr >&2'], { stdio: 'inherit' });
      return 'honest';
    case 'chdir': mkdirSync('sub'); process.chdir('sub'); return process.cwd();
    case 'async': await new Promise((resolve) => setTimeout(resolve, 10)); return { count };
    case 'hang':
      spawn('sh', ['-c', "trap '' TERM; setsid sleep 1000 & sleep 1000"]);
      console.log('hanging');
      await new Promise(() => {});
    case 'thread': setTimeout(() => console.log('late'), 200); return 'gone on';
    case 'late': setTimeout(() => { throw new RangeError('nobody waits for me'); }, 10); await new Promise(() => {});
    case 'large': return 'x'.repeat(input.size);
  }
  return { count, input, cwd: process.cwd(), turn: process.env.HOLDFAST_TURN, sibling: NAME };
}
`;

function isWorker(pid: string, id = 'none'): boolean {
  try {
    return /^[0-9]+$/.test(pid) && readFileSync(`/proc/${pid}/environ`).includes(`HOLDFAST_WORKER=${id}`);
  } catch {
    return false; // gone meanwhile
  }
}

const KINDS = [
  {
    kind: 'Python',
    entry: 'agent.py',
    code: { 'agent.py': PYTHON_AGENT, 'sibling.py': 'NAME = "beside"\n' },
    error: 'ValueError',
    exits: 'SystemExit',
  },
  {
    kind: 'Node',
    entry: 'agent.mjs',
    code: { 'agent.mjs': NODE_AGENT, 'sibling.mjs': "export const NAME = 'beside';\n" },
    error: 'TypeError',
    exits: 'ProcessExit',
  },
] as const;

const impossible = BUSYBOX === null || PYTHON === null;

describe.skipIf(impossible).for(KINDS)(
  'warm worker: $kind (needs Python, and a busybox or Docker)',
  { timeout: 60_000 },
  ({ kind, entry, code, error, exits }) => {
    let pair: HostSandbox;
    const ask = (input: unknown, part = {}): ReturnType<typeof runHandler> =>
      runHandler(pair.client, entry, input, part);
    const countOf = (output: unknown): unknown => (output as { count: unknown }).count;
    beforeEach(async () => {
      pair = await HostSandbox.start({ ...code });
    });
    afterEach(async () => {
      await pair.dispose();
    });

    test('loads once, keeps its memory, and says which worker answered', async () => {
      const first = await ask({ a: 1 });
      expect(handlerOutput(first)).toMatchObject({
        count: 1,
        input: { a: 1, session_id: pair.agentSession },
        cwd: pair.path('workspace'),
        sibling: 'beside',
      });
      expect(first.stdout).toBe('loaded\n');
      expect(first.progress.worker).toMatchObject({ reused: false });
      expect(first.progress.worker?.startMs).toBeGreaterThan(0);
      const second = await ask({ session_id: 'mine' });
      expect(handlerOutput(second)).toMatchObject({ count: 2, input: { session_id: 'mine' } });
      expect(second.stdout).toBe('');
      expect(second.progress.worker).toEqual({ id: first.progress.worker?.id, reused: true, startMs: null });
      const third = await ask([1, 'two']);
      expect(handlerOutput(third)).toMatchObject({ count: 3, input: [1, 'two'] });
    });

    test('an exception is an error with its traceback, and the memory stays', async () => {
      const before = await ask({});
      const raised = await ask({ do: 'raise' });
      const { type, message, traceback } = handlerError(raised);
      expect([type, message]).toEqual([error, 'boom: ü']);
      expect(traceback).toMatch(/agent\.(py|mjs)/);
      expect(traceback).not.toMatch(/worker\.(py|mjs)/);
      expect(raised.progress.workerDied).toBe(false);
      const after = await ask({});
      expect(countOf(handlerOutput(after))).toBe(3);
      expect(after.progress.worker?.id).toBe(before.progress.worker?.id);
    });

    test.for(['die', 'segfault'])(
      'a worker that dies (%s) ends its turn, and the next turn has a new one',
      async (how) => {
        const before = await ask({});
        const died = await ask({ do: how });
        expect(died.answer).toBeNull();
        expect(died.progress).toMatchObject({ state: 'ended', workerDied: true });
        expect([7, 137, 139]).toContain(died.progress.exitCode);
        const after = await ask({});
        expect(countOf(handlerOutput(after))).toBe(1);
        expect(after.progress.worker?.reused).toBe(false);
        expect(after.progress.worker?.id).not.toBe(before.progress.worker?.id);
        // Dying at once, in the very first turn, is no different.
        await ask({ do: how });
        const first = await ask({ do: how });
        expect(first.progress).toMatchObject({ state: 'ended', workerDied: true });
      },
    );

    test('ending the process from the handler is an error too', async () => {
      const left = await ask({ do: 'exit' });
      expect(handlerError(left).type).toBe(exits);
      // At once, while the old one may still be going.
      for (let time = 0; time < 3; time += 1) {
        const after = await ask({});
        expect(countOf(handlerOutput(after))).toBe(1);
        expect(handlerError(await ask({ do: 'exit' })).type).toBe(exits);
      }
    });

    test.for(['set', 'nan', 'circle'])('a value that is not JSON (%s) is an error', async (what) => {
      expect(handlerError(await ask({ do: what })).type).toBe('NotSerializable');
      expect(countOf(handlerOutput(await ask({})))).toBe(2);
    });

    test('whatever a handler prints is output and never an answer', async () => {
      await ask({});
      const spoken = await ask({ do: 'imitate' });
      expect(handlerOutput(spoken)).toBe('honest');
      expect(spoken.stdout).toContain('{"ok":true,"output":"forged"}\n');
      expect(spoken.stdout).toContain('from a child\n');
      expect(spoken.stderr).toBe('to stderr\n');
    });

    test('each turn begins in the workspace, and what is printed after a turn is in no other', async () => {
      expect(handlerOutput(await ask({ do: 'chdir' }))).toBe(pair.path('workspace/sub'));
      expect(handlerOutput(await ask({ do: 'thread' }))).toBe('gone on');
      await new Promise((resolve) => setTimeout(resolve, 300));
      const next = await ask({});
      expect(handlerOutput(next)).toMatchObject({ cwd: pair.path('workspace') });
      expect(next.stdout).toBe('');
    });

    test('what a handler awaits is awaited', async () => {
      expect(handlerOutput(await ask({ do: 'async' }))).toEqual({ count: 1 });
      expect(handlerOutput(await ask({ do: 'async' }))).toEqual({ count: 2 });
    });

    test('a large value comes whole', async () => {
      const size = 5_000_000;
      expect(handlerOutput(await ask({ do: 'large', size }))).toBe('x'.repeat(size));
    });

    test('killing a turn ends the worker and its children, and the next turn has a new worker', async () => {
      await ask({});
      const launch = turnLaunch({ kind: 'handler', entry });
      await pair.client.launchTurn(launch, Buffer.from('{"do":"hang"}'));
      await pair.client.turnProgress({ turnId: launch.turnId, stdout: 0, stderr: 0, waitMs: 5000 });
      const mark = `HOLDFAST_TURN=${launch.turnId}`;
      const living = (): string[] =>
        readdirSync('/proc').filter((pid) => {
          try {
            return /^[0-9]+$/.test(pid) && readFileSync(`/proc/${pid}/environ`).includes(mark);
          } catch {
            return false;
          }
        });
      await waitUntil('its children run', () => living().length >= 3);
      await pair.client.killTurn(launch.turnId, 200);
      expect((await followTurn(pair.client, launch.turnId)).progress).toMatchObject({
        state: 'ended',
        workerDied: true,
      });
      await waitUntil('its children are gone', () => living().length === 0);
      expect(countOf(handlerOutput(await ask({})))).toBe(1);
    });

    test('the sidecar may be replaced between turns and in the middle of one', async () => {
      const before = await ask({});
      await pair.replaceSidecar();
      const after = await ask({});
      expect(countOf(handlerOutput(after))).toBe(2);
      expect(after.progress.worker?.id).toBe(before.progress.worker?.id);
      const launch = turnLaunch({ kind: 'handler', entry });
      await pair.client.launchTurn(launch, Buffer.from('{"do":"large","size":10}'));
      await pair.replaceSidecar();
      const ended = await followTurn(pair.client, launch.turnId);
      expect(JSON.parse(ended.result.toString())).toEqual({ ok: true, output: 'x'.repeat(10) });
    });

    test('/tmp is emptied before a warm turn that asks for it', async () => {
      await ask({});
      await writeFile(pair.path('tmp/left'), '');
      await ask({});
      expect(existsSync(pair.path('tmp/left'))).toBe(true);
      await ask({}, { freshTmp: true });
      expect(readdirSync(pair.path('tmp'))).toEqual([]);
    });

    test('a worker that is asked to stop is followed by another', async () => {
      const before = await ask({});
      await writeFile(pair.path('run/requests'), 'worker stop\n');
      await waitUntil(
        'it is gone',
        () => !readdirSync('/proc').some((pid) => isWorker(pid, before.progress.worker?.id)),
      );
      const after = await ask({});
      expect(countOf(handlerOutput(after))).toBe(1);
    });

    test('lines that are no turns stop nothing', async () => {
      await ask({});
      await writeFile(
        pair.path('run/worker/requests'),
        Buffer.concat([
          Buffer.from([0, 255, 10]),
          Buffer.from(`x\n../..\nturn-aaaaaaaaaaaaaaaa\n${'y'.repeat(70_000)}\n`),
        ]),
      );
      expect(countOf(handlerOutput(await ask({})))).toBe(2);
    });

    test('a file that cannot be loaded is an error with its traceback, and the next turn loads it again', async () => {
      const path = pair.path('agent', entry);
      await writeFile(path, kind === 'Python' ? 'import nowhere_to_be_found\n' : "import './nowhere.mjs';\n");
      const failed = await ask({});
      expect(handlerError(failed).message).toContain('nowhere');
      await writeFile(path, kind === 'Python' ? 'def other(): pass\n' : 'export const other = 1;\n');
      expect(handlerError(await ask({})).type).toBe('NoHandler');
      await writeFile(path, kind === 'Python' ? 'def (:\n' : 'export {;\n');
      expect(handlerError(await ask({})).type).toBe('SyntaxError');
      await writeFile(
        path,
        kind === 'Python' ? 'handler = lambda input: "well"\n' : "export default () => 'well';\n",
      );
      expect(handlerOutput(await ask({}))).toBe('well');
    });

    test('an image without the interpreter is an error that says so', async () => {
      const { progress, result, stderr } = await runTurn(
        pair.client,
        { kind: 'handler', entry, env: { PATH: '/nonexistent' } },
        '{}',
      );
      const program = kind === 'Python' ? 'python3' : 'node';
      expect(progress.state).toBe('ended');
      expect(JSON.parse(result.toString())).toEqual({
        ok: false,
        error: {
          type: 'MissingProgram',
          message: `${program} is not in this image`,
          next: `use an image with ${program}`,
        },
      });
      expect(stderr.toString()).toBe(`holdfast: ${program} is not in this image\n`);
      expect(handlerOutput(await ask({}))).toMatchObject({ count: 1 });
    });
  },
);

describe.skipIf(impossible)('warm worker: ways to export in Node', { timeout: 60_000 }, () => {
  test.for([
    ['agent.mjs', 'export default async (input) => input.a'],
    ['agent.mjs', 'export const handler = (input) => input.a'],
    ['agent.cjs', 'module.exports = (input) => input.a'],
    ['agent.cjs', 'module.exports.handler = (input) => input.a'],
    ['agent.js', 'exports.handler = (input) => input.a'],
  ] as const)('%s: %s', async ([entry, text]) => {
    const pair = await HostSandbox.start({ [entry]: text });
    try {
      expect(handlerOutput(await runHandler(pair.client, entry, { a: 5 }))).toBe(5);
    } finally {
      await pair.dispose();
    }
  });

  test('an error in a callback that nobody awaits ends the turn with its stack', async () => {
    const pair = await HostSandbox.start({
      'agent.mjs': NODE_AGENT,
      'sibling.mjs': "export const NAME = '';\n",
    });
    try {
      const late = await runHandler(pair.client, 'agent.mjs', { do: 'late' });
      expect(handlerError(late)).toMatchObject({ type: 'RangeError', message: 'nobody waits for me' });
      expect(handlerOutput(await runHandler(pair.client, 'agent.mjs', {}))).toMatchObject({ count: 1 });
    } finally {
      await pair.dispose();
    }
  });
});
