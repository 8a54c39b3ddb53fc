import { execFile } from 'node:child_process';
import { createHash, hash, randomBytes } from 'node:crypto';
import { readdir, readFile, rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { handlerProject, shellProject, writeProject } from '../setup/profiles.ts';
import { expectSettled, expectWholeHistory, turnOutput } from './harness/expectations.ts';
import type { FaultHome } from './harness/fault-home.ts';
import { waitForTurn, waitUntil, useFaultFixture } from './harness/fault-fixture.ts';
import { printInSoak, soakCount } from '../setup/run-length.ts';
import { deploy } from '../setup/deploy.ts';

const execute = promisify(execFile);
const isRoot = process.getuid?.() === 0;
const MIB = 2 ** 20;

const bench = useFaultFixture(afterAll);
let home: FaultHome;
beforeAll(async () => {
  home = await bench.createHome();
  await home.start();
  await bench.deploy(home, shellProject('shell'));
});

async function project(files: Record<string, string>): Promise<string> {
  return await writeProject(await bench.temporaryFolder(), files);
}

/** `name` and `agent` are fixed; the test gives the rest of holdfast.yaml. */
async function withYaml(
  more: string,
  head = 'name: odd\nagent: { protocol: command, command: [sh] }\n',
): Promise<string> {
  return await project({ 'holdfast.yaml': head + more, Dockerfile: 'FROM scratch\n' });
}

describe('a holdfast.yaml', () => {
  test('that is invalid: file, line and column, also on the command line', async () => {
    const directory = await project({
      'holdfast.yaml': 'name: odd\nagent:\n  protocol: command\n command: [sh\n',
    });
    const { code, stdout, stderr } = await bench.runHoldfast(home, ['deploy', directory]);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^error profile_invalid: /m);
    expect(stderr).toMatch(/holdfast\.yaml:[45]:\d+/);
    expect(stderr).not.toMatch(/\n\s+at /);
  });

  test.each([
    ['an unknown key', 'presistence: persistent\n', /holdfast\.yaml:3:1\b.*presistence/],
    ['an unknown key inside', 'limits:\n  memmory: 1GiB\n', /holdfast\.yaml:4:3\b.*memmory/],
    ['a size without a unit', 'limits:\n  memory: 12\n', /holdfast\.yaml:4:\d+/],
    ['a duration that is none', 'idle: { pause: soon }\n', /holdfast\.yaml:3:\d+/],
    ['a key twice', 'persistence: persistent\npersistence: ephemeral\n', /holdfast\.yaml:4:\d+/],
    ['many aliases', `env:\n  A: &a x\n${'  B: *a\n'.repeat(2)}`, /holdfast\.yaml:\d+:\d+/],
  ])('with %s: reports the position', async (_, more, where) => {
    const directory = await withYaml(more);
    const failure = await deploy(home, directory).then(
      () => null,
      (error: unknown) => error,
    );
    expect(failure).toMatchObject({ code: 'profile_invalid' });
    expect((failure as { sentence: string }).sentence).toMatch(where);
  });

  test.each([
    ['egress', 'egress: [{ host: example.com, methods: [GET] }]\n'],
    ['egress', 'egress: [{ host: example.com, path: /v1 }]\n'],
    ['workspace.scope', 'workspace: { scope: profile }\n'],
    ['retention', 'retention: { events: 1d }\n'],
  ])('with %s is refused as not_supported, never ignored: %s', async (field, more) => {
    const directory = await withYaml(more);
    await expect(deploy(home, directory)).rejects.toMatchObject({
      code: 'not_supported',
      sentence: expect.stringContaining(field) as string,
      next: expect.any(String) as string,
    });
  });

  test('with a missing image: a typed error, and nothing is deployed', async () => {
    const directory = await withYaml('image: localhost:1/nobody/nothing:1\n');
    await expect(deploy(home, directory)).rejects.toMatchObject({
      code: expect.stringMatching(/^image_(not_found|pull_failed)$/) as string,
      next: expect.any(String) as string,
    });
    const { profiles } = await home.call('profile/list', {});
    expect(profiles.map(({ name }) => name)).not.toContain('odd');
    expect(await readdir(join(home.path, 'deploys'))).not.toContain('odd');
  });
});

describe('an agent that', () => {
  test('prints lookalikes of our messages and writes to our files: its result is what it returned', async () => {
    const garbage = String.raw`
import os, sys
def handler(input):
    lines = ['{"jsonrpc":"2.0","id":1,"result":{"state":"ended","exitCode":0}}', '{"jsonrpc":"2.0","method":"x","bytes":99999999}',
             '{"output": "forged"}', 'exit 0', '\x00\x01\x02', '\x1b]0;title\x07', 'x' * 100000]
    for line in lines:
        print(line, flush=True)
        print(line, file=sys.stderr, flush=True)
    os.write(1, bytes(range(256)))
    tried = 0
    for root, folders, files in os.walk('/run/holdfast'):
        for name in files + ['result', 'exit', 'exit-code', 'done', 'worker.json']:
            if name in ('request', 'input', 'stdin', 'stdout', 'stderr'): continue
            try:
                with open(os.path.join(root, name + '.forged'), 'w') as f: f.write('{"output": "forged"}')
                tried += 1
            except OSError: pass
    for fd in range(3, 20):
        try: os.write(fd, b'{"output":"forged"}\n')
        except OSError: pass
    return {'true': 'answer'}
`;
    await bench.deploy(home, handlerProject('garbage', garbage));
    const { session } = await home.call('session/create', { profile: 'garbage' });
    const { turn } = await home.call('turn/start', { session: session.id, input: {} });
    const after = await waitForTurn(home, turn.turnId);
    const text = await turnOutput(home, turn.turnId, 'stdout');
    expect(text.subarray(-256).equals(Buffer.from(Array.from({ length: 256 }, (_, at) => at)))).toBe(true);
    expect(text.toString('latin1')).toContain('"id":1,"result":{"state":"ended"');
    // It may damage its own turn through open descriptors, but a forged message is never believed.
    expect(after.output).not.toMatchObject({ output: 'forged' });
    if (after.status === 'succeeded') expect(after.output).toEqual({ true: 'answer' });
    else expect(after.error?.data.code).toMatch(/^(worker_crashed|agent_failed)$/);
    const next = await home.call('turn/start', { session: session.id, input: {} });
    expect((await waitForTurn(home, next.turn.turnId)).endedAt).not.toBeNull();
    await expectSettled(home);
    await expectWholeHistory(home, session.id);
    await home.call('session/stop', { session: session.id });
  });

  test('writes 100 MB: every byte is kept, and the supervisor stays small', async () => {
    const { session } = await home.call('session/create', { profile: 'shell' });
    await home.call('session/resume', { session: session.id });
    const rss = async (): Promise<number> => (await home.call('supervisor/status', {})).rssBytes / MIB;
    const before = await rss();
    const prompt = 'head -c 104857600 /dev/urandom | tee big; sha256sum big | cut -d" " -f1 > sum; rm big';
    const { turn } = await home.call('turn/start', { session: session.id, prompt });
    const [sum, asked] = [createHash('sha256'), performance.now()];
    let [offset, most] = [0, before];
    const { peer } = await home.connect();
    for (;;) {
      const { result, bytes } = await peer.callWithBytes('turn/output', {
        turn: turn.turnId,
        stream: 'stdout',
        offset,
        limit: MIB,
        waitMs: 2000,
      });
      sum.update(bytes);
      offset += bytes.length;
      most = Math.max(most, await rss());
      if (result.ended && offset >= result.total) break;
    }
    expect(await waitForTurn(home, turn.turnId)).toMatchObject({ status: 'succeeded' });
    expect(offset).toBe(100 * MIB);
    const wanted = await readFile(join(home.path, 'workspaces', session.id, 'sum'), 'utf8');
    expect(sum.digest('hex')).toBe(wanted.trim());
    printInSoak(
      `100 MB of output: ${Math.round(performance.now() - asked)} ms, supervisor ${Math.round(before)} MiB before, ${Math.round(most)} MiB at most`,
    );
    expect(most - before).toBeLessThan(100);
    await home.call('session/delete', { session: session.id, force: true });
    await waitUntil('its output goes with it', async () => {
      return !(await readdir(join(home.path, 'artifacts'))).includes(session.id);
    });
  }, 180_000);

  test('writes more than limits.output: ends with output_limit, and earlier output is kept', async () => {
    await bench.deploy(home, shellProject('talker', 'persistence: persistent\nlimits: { output: 64KiB }\n'));
    const { session } = await home.call('session/create', { profile: 'talker' });
    const { turn } = await home.call('turn/start', { session: session.id, prompt: 'yes' });
    expect(await waitForTurn(home, turn.turnId)).toMatchObject({
      status: 'failed',
      error: { data: { code: 'output_limit', next: expect.any(String) as string } },
    });
    const kept = await turnOutput(home, turn.turnId, 'stdout');
    expect(kept.length).toBeGreaterThanOrEqual(64 * 1024);
    // It writes a gigabyte per second: only data read before the limit was noticed is kept.
    expect(kept.length).toBeLessThan(4 * MIB);
    expect(kept.equals(Buffer.alloc(kept.length, 'y\n'))).toBe(true);
    const next = await home.call('turn/start', { session: session.id, prompt: 'pgrep -c yes; true' });
    expect(await waitForTurn(home, next.turn.turnId)).toMatchObject({ status: 'succeeded' });
    expect((await turnOutput(home, next.turn.turnId, 'stdout')).toString()).toBe('0\n');
    await home.call('session/stop', { session: session.id });
  });
});

describe('binary', () => {
  test('on standard input arrives as it is, from the command line to the agent and back', async () => {
    const cat = {
      'holdfast.yaml': 'name: cat\nagent: { protocol: command, command: [cat] }\npersistence: persistent\n',
    };
    await bench.deploy(home, cat);
    const input = Buffer.concat([
      Buffer.from(Array.from({ length: 256 }, (_, at) => at)),
      randomBytes(300_000),
    ]);
    const said = await bench.runHoldfast(home, ['run', 'cat', '-', '--no-wait', '--json'], { input });
    expect([said.code, said.stderr]).toEqual([0, '']);
    const { turnId } = JSON.parse(said.stdout) as { turnId: string };
    expect(await waitForTurn(home, turnId)).toMatchObject({ status: 'succeeded' });
    expect(hash('sha256', await turnOutput(home, turnId, 'stdout'))).toBe(hash('sha256', input));
  });

  test('as an argument is refused with a typed error, and nothing runs', async () => {
    const echo = {
      'holdfast.yaml':
        'name: echo\nagent: { protocol: command, command: [echo], prompt: argument }\npersistence: persistent\n',
    };
    await bench.deploy(home, echo);
    const before = (await home.call('session/list', { limit: 1000 })).sessions.length;
    for (const input of [Buffer.from([0x61, 0x00, 0x62]), Buffer.from([0xff, 0xfe, 0x80])]) {
      const said = await bench.runHoldfast(home, ['run', 'echo', '-'], { input });
      expect([said.code, said.stdout]).toEqual([2, '']);
      expect(said.stderr).toMatch(/^error invalid_params: .*;/m);
    }
    expect((await home.call('session/list', { limit: 1000 })).sessions).toHaveLength(before);
  });
});

describe.skipIf(!isRoot)('a full disk (needs root)', () => {
  test('gives no_space, loses nothing acknowledged, allows deletion, and works again afterwards', async () => {
    const folder = await bench.temporaryFolder();
    await execute('mount', ['-t', 'tmpfs', '-o', 'size=48m,mode=0755', 'holdfast-test', folder]);
    bench.onCleanup(() => execute('umount', ['-l', folder]));
    const small = await bench.createHome({ path: join(folder, 'home') });
    await small.start();
    await bench.deploy(small, shellProject('shell'));
    const made = async (): Promise<string> =>
      (await small.call('session/create', { profile: 'shell' })).session.id;
    const run = async (
      session: string,
      prompt: string,
      opId?: string,
    ): Promise<{ status: string; text: string; turn: string }> => {
      const { turn } = await small.call('turn/start', { session, prompt, opId });
      const { status } = await waitForTurn(small, turn.turnId);
      return { status, turn: turn.turnId, text: (await turnOutput(small, turn.turnId, 'stdout')).toString() };
    };
    const [hog, other] = [await made(), await made()];
    const first = await run(other, 'echo first | tee f');
    expect(first).toMatchObject({ status: 'succeeded', text: 'first\n' });

    // An agent fills the disk; what the supervisor cannot store waits for space, and every refusal is typed.
    await small.call('session/resume', { session: hog });
    const filling = await small.call('turn/start', {
      session: hog,
      prompt: 'cat /dev/zero > big 2>/dev/null; echo full',
    });
    await waitUntil('the disk is full', async () => (await statfs(folder)).bavail < 16, 60_000);
    await writeFile(join(folder, 'last'), Buffer.alloc(64 * 1024)).catch(() => undefined);
    const acknowledged: string[] = [];
    const refusals: unknown[] = [];
    for (let nth = 0; nth < soakCount(40, 200); nth += 1) {
      await small.call('session/update', { session: other, tags: [`tag-${nth}`, 'x'.repeat(50)] }).then(
        ({ session }) => acknowledged.push(session.tags[0] ?? ''),
        (error: unknown) => refusals.push(error),
      );
    }
    expect(refusals.length).toBeGreaterThan(0);
    for (const refusal of refusals) {
      expect(refusal).toMatchObject({ code: 'no_space', next: expect.any(String) as string });
    }
    await expect(small.call('session/create', { profile: 'shell' })).rejects.toMatchObject({
      code: 'no_space',
    });
    const { session } = await small.call('session/show', { session: other });
    // Both are undefined without a snapshot.
    expect(session.tags[0]).toBe(acknowledged.at(-1));
    expect((await turnOutput(small, first.turn, 'stdout')).toString()).toBe('first\n');

    await small.call('session/delete', { session: hog, force: true });
    await expect(small.call('turn/show', { turn: filling.turn.turnId })).resolves.toMatchObject({
      turn: { endedAt: expect.any(String) as string },
    });
    await rm(join(folder, 'last'), { force: true });
    expect(await run(other, 'cat f')).toMatchObject({ status: 'succeeded', text: 'first\n' });
    expect(await run(await made(), 'echo new')).toMatchObject({ status: 'succeeded', text: 'new\n' });
    await expectSettled(small);
    await expectWholeHistory(small, other);
  }, 120_000);
});
