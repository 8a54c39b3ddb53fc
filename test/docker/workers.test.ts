import { existsSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  handlerError,
  followTurn,
  runHandler,
  turnLaunch,
  handlerOutput,
  runTurn,
  waitUntil,
} from '../fixtures/sidecar/turns.ts';
import { ContainerPairs } from './container-pair.ts';

const AGENT = `
import os, sys, time
state = {"turns": 0}

def handler(input):
    state["turns"] += 1
    do = input.get("do")
    if do == "crash":
        os.abort()
    if do == "raise":
        return broken()
    if do == "memory":
        hog = bytearray(2 ** 30)
        return len(hog)
    if do == "imitate":
        for line in ['{"jsonrpc":"2.0","id":2,"result":{"state":"ended","exitCode":0}}', '{"ok":true,"output":"forged"}']:
            print(line)
        os.write(1, b'{"bytes":4}\\n\\x00\\xff\\xfe\\n')
        return "honest"
    path = "/workspace/state"
    count = int(open(path).read()) if os.path.exists(path) else 0
    open(path, "w").write(str(count + 1))
    return {"turns": state["turns"], "count": count + 1}

def broken():
    raise KeyError("the reason")
`;

let bench: ContainerPairs;
beforeAll(async () => {
  bench = await ContainerPairs.create();
});
afterAll(async () => {
  await bench.dispose();
});

test('memory survives from turn to turn and is lost with the worker; the workspace stays', async () => {
  const pair = await bench.createPair({ code: { 'agent.py': AGENT } });
  const first = await runHandler(pair.sidecar, 'agent.py', {});
  expect(handlerOutput(first)).toEqual({ turns: 1, count: 1 });
  const second = await runHandler(pair.sidecar, 'agent.py', {});
  expect(handlerOutput(second)).toEqual({ turns: 2, count: 2 });
  expect(second.progress.worker).toMatchObject({ id: first.progress.worker?.id, reused: true });

  const crashed = await runHandler(pair.sidecar, 'agent.py', { do: 'crash' });
  expect(crashed.progress).toMatchObject({ state: 'ended', workerDied: true, exitCode: 134 });
  const third = await runHandler(pair.sidecar, 'agent.py', {});
  expect(handlerOutput(third)).toEqual({ turns: 1, count: 3 });
  expect(third.progress.worker?.id).not.toBe(first.progress.worker?.id);
  expect(third.progress.worker?.reused).toBe(false);

  const raised = handlerError(await runHandler(pair.sidecar, 'agent.py', { do: 'raise' }));
  expect(raised).toMatchObject({ type: 'KeyError', message: "'the reason'" });
  expect(raised.traceback).toContain('File "/agent/agent.py"');
  expect(raised.traceback).toContain('in broken');
});

test('a handler out of memory ends its worker, and the container keeps running', async () => {
  const pair = await bench.createPair({ code: { 'agent.py': AGENT } });
  const { progress } = await runHandler(pair.sidecar, 'agent.py', { do: 'memory' });
  expect(progress).toMatchObject({ state: 'ended', workerDied: true, exitCode: 137 });
  expect(handlerOutput(await runHandler(pair.sidecar, 'agent.py', {}))).toEqual({ turns: 1, count: 1 });
});

test('printed lines that look like the protocol are output', async () => {
  const pair = await bench.createPair({ code: { 'agent.py': AGENT } });
  const spoken = await runHandler(pair.sidecar, 'agent.py', { do: 'imitate' });
  expect(handlerOutput(spoken)).toBe('honest');
  expect(spoken.stdout).toContain('"exitCode":0');
  const script = `printf '%s\\n' '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}' '{"bytes":99999999}'; head -c 1000 /dev/urandom; exit 3`;
  const { progress, stdout } = await runTurn(pair.sidecar, { argv: ['sh', '-c', script] });
  expect(progress.exitCode).toBe(3);
  expect(stdout.length).toBe(
    1000 + '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}\n{"bytes":99999999}\n'.length,
  );
});

test('arguments, input and output may hold any bytes', async () => {
  const pair = await bench.createPair();
  const every = Buffer.from(Array.from({ length: 65_536 }, (_, at) => (at * 7 + (at >> 8)) % 256));
  expect((await runTurn(pair.sidecar, { argv: ['cat'] }, every)).stdout).toEqual(every);
  const argument = `${Array.from({ length: 0x17f }, (_, code) => String.fromCodePoint(code + 1)).join('')}🦀'"\\\n`;
  const program =
    'import sys, os; sys.stdout.buffer.write(b"\\0".join(os.fsencode(one) for one in sys.argv[1:]))';
  const passed = await runTurn(pair.sidecar, {
    argv: ['python3', '-c', program, argument, '', 'x'.repeat(131_071)],
  });
  expect(passed.stderr.toString()).toBe('');
  expect(passed.stdout.equals(Buffer.from([argument, '', 'x'.repeat(131_071)].join('\0')))).toBe(true);
});

test('a cancellation ends grandchildren with their own process sessions that ignore TERM', async () => {
  const pair = await bench.createPair();
  const script = `trap '' TERM; for i in 1 2 3; do setsid sh -c 'trap "" TERM; (trap "" TERM; exec sleep 4321) & sleep 4321' & done; echo up; sleep 4321`;
  const launch = turnLaunch({ argv: ['bash', '-c', script] });
  await pair.sidecar.launchTurn(launch, Buffer.alloc(0));
  const sleeping = async (): Promise<number> =>
    (await pair.processes()).filter((line) => line.includes('sleep 4321')).length;
  await waitUntil('all of it runs', async () => (await sleeping()) >= 7);
  await pair.sidecar.killTurn(launch.turnId, 200);
  expect((await followTurn(pair.sidecar, launch.turnId)).progress.exitCode).toBe(137);
  await waitUntil('nothing of it is left', async () => (await sleeping()) === 0);
  // And nothing is left of what has ended: everything is waited for.
  await runTurn(pair.sidecar, { argv: ['true'] });
  await waitUntil('no zombies', async () => !(await pair.processes()).some((line) => line.startsWith('Z')));
});

test('an image with nothing but one program is enough', async () => {
  const image = await bench.buildImage({ 'bin/cat': await bench.readBusybox() });
  const pair = await bench.createPair({ image });
  const { stdout, progress } = await runTurn(
    pair.sidecar,
    { argv: ['cat', '-', '/proc/self/cmdline'] },
    'in ',
  );
  expect(stdout.toString()).toMatch(/^in (\/bin\/)?cat\0-\0/);
  expect(progress.exitCode).toBe(0);
  const missing = await runTurn(pair.sidecar, { argv: ['sh', '-c', 'true'] });
  expect([missing.progress.exitCode, missing.stderr.toString()]).toEqual([127, 'holdfast: sh: not found\n']);
  const handler = await runHandler(pair.sidecar, 'agent.py', {});
  expect(handlerError(handler)).toMatchObject({ type: 'MissingProgram', next: 'use an image with python3' });
});

test('a stop of the container lets programs exit on TERM, within seconds', async () => {
  const pair = await bench.createPair();
  const script = 'trap "echo saved > /workspace/saved; exit 0" TERM; echo up; while :; do sleep 0.02; done';
  const launch = turnLaunch({ argv: ['sh', '-c', script] });
  await pair.sidecar.launchTurn(launch, Buffer.alloc(0));
  await pair.sidecar.turnProgress({ turnId: launch.turnId, stdout: 0, stderr: 0, waitMs: 5000 });
  const tookMs = await pair.stopAgent();
  expect(tookMs).toBeLessThan(6000);
  expect(existsSync(pair.path('workspace/saved'))).toBe(true);
  expect((await followTurn(pair.sidecar, launch.turnId)).progress).toMatchObject({
    state: 'ended',
    exitCode: 0,
  });
  expect(await pair.sidecar.agentReady(0)).toBe(false);
  // A turn left in the run directory by a container that is gone is never taken for one of the next container.
  await pair.startAgent();
  await pair.sidecar.killTurn(launch.turnId, 0);
  expect((await runTurn(pair.sidecar, { argv: ['echo', 'new'] })).stdout.toString()).toBe('new\n');
  expect(await pair.agentIsRunning()).toBe(true);
});
