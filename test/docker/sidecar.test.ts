import { execFileSync } from 'node:child_process';
import { lstatSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { SIDECAR_PROTOCOL } from '../../sidecar/wire.ts';
import { connectToSidecarSocket } from '../../supervisor/engine/docker/dial.ts';
import { FilesConnection } from '../../supervisor/workspace/files-connection.ts';
import { SidecarClient } from '../../supervisor/workspace/sidecar-client.ts';
import { followTurn, turnLaunch, runTurn, waitUntil } from '../fixtures/sidecar/turns.ts';
import { ContainerPairs } from './container-pair.ts';

let bench: ContainerPairs;
beforeAll(async () => {
  bench = await ContainerPairs.create();
});
afterAll(async () => {
  await bench.dispose();
});

test('the two hardened containers run a turn as an unprivileged user with its own directories', async () => {
  const pair = await bench.createPair();
  const script =
    'id -u; pwd; grep -i capeff /proc/self/status; touch /x 2>&1; touch /agent/x 2>&1; echo $HOME; cat';
  const { stdout, progress } = await runTurn(pair.sidecar, { argv: ['sh', '-c', script] }, 'from stdin');
  const [uid, folder, capabilities, root, agent, home, input] = stdout.toString().split('\n');
  expect(Number(uid)).toBeGreaterThan(0);
  expect(folder).toBe('/workspace');
  expect(capabilities).toMatch(/0{16}$/);
  expect(root).toContain('Read-only');
  expect(agent).toContain('Read-only');
  expect(home).toBe('/home/agent');
  expect(input).toBe('from stdin');
  expect(progress.exitCode).toBe(0);
  // Nobody but the session's user gets at its socket.
  expect(lstatSync(pair.path('control/sidecar.sock')).mode & 0o777).toBe(0o600);
  expect(pair.sidecar.hello.watch).toBe('inotify');
});

test('no output is lost when the sidecar is killed and replaced', async () => {
  const pair = await bench.createPair();
  const launch = turnLaunch({
    argv: [
      'sh',
      '-c',
      'i=0; while [ $i -lt 4000 ]; do echo "line $i"; i=$((i+1)); [ $((i % 100)) = 0 ] && sleep 0.05; done; exit 4',
    ],
  });
  await pair.sidecar.launchTurn(launch, Buffer.alloc(0));
  const first = await pair.sidecar.turnProgress({
    turnId: launch.turnId,
    stdout: 0,
    stderr: 0,
    waitMs: 5000,
  });
  const head = await pair.sidecar.readTurn({
    turnId: launch.turnId,
    stream: 'stdout',
    offset: 0,
    limit: first.stdout,
  });
  await pair.replaceSidecar();
  const { stdout, progress } = await followTurn(pair.sidecar, launch.turnId);
  expect(stdout.subarray(0, head.length)).toEqual(head);
  expect(stdout.toString()).toBe(
    Array.from({ length: 4000 }, (_, line) => `line ${String(line)}\n`).join(''),
  );
  expect(progress.exitCode).toBe(4);
  // The next turn goes through the new sidecar, on the namespace that the agent kept.
  expect((await runTurn(pair.sidecar, { argv: ['echo', 'next'] })).stdout.toString()).toBe('next\n');
});

test('a turn that ended without a sidecar is known to the next sidecar', async () => {
  const pair = await bench.createPair();
  const launch = turnLaunch({ argv: ['sh', '-c', 'sleep 0.2; head -c 3000000 /dev/zero; exit 6'] });
  await pair.sidecar.launchTurn(launch, Buffer.alloc(0));
  await pair.replaceSidecar(() =>
    waitUntil('it has ended', () => readdirSync(pair.path('run/turns', launch.turnId)).includes('exit')),
  );
  const { stdout, progress } = await followTurn(pair.sidecar, launch.turnId);
  expect(stdout.length).toBe(3_000_000);
  expect(progress).toMatchObject({ state: 'ended', exitCode: 6 });
});

test('an agent that manipulates its run directory harms only itself', async () => {
  const pair = await bench.createPair();
  writeFileSync(pair.path('control/secret'), 'of the sidecar', { mode: 0o644 });
  const hostile = `
    cd /run/holdfast/turns/$HOLDFAST_TURN
    echo before
    rm -f stdout stderr kind launch worker
    ln -s /ctl/secret stdout
    mkfifo stderr kind worker
    mkdir result exit exit.tmp
    : > /run/holdfast/requests.copy
    truncate -s 1T /run/holdfast/sparse
    ln -s /proc /run/holdfast/turns/turn-aaaaaaaaaaaaaaaa
    ln -s /etc /run/holdfast/turns/turn-aaaaaaaaaaaaaaab
    mkfifo /run/holdfast/turns/turn-aaaaaaaaaaaaaaac
    mkdir /run/holdfast/turns/turn-aaaaaaaaaaaaaaad
    mkfifo /run/holdfast/turns/turn-aaaaaaaaaaaaaaad/exit
    truncate -s 1T /run/holdfast/turns/turn-aaaaaaaaaaaaaaad/stdout
    ln -s /ctl/sidecar.sock /run/holdfast/turns/turn-aaaaaaaaaaaaaaad/stderr
    sleep 0.3`;
  const launch = turnLaunch({ argv: ['sh', '-c', hostile] });
  await pair.sidecar.launchTurn(launch, Buffer.alloc(0));
  const kept = await followTurn(pair.sidecar, launch.turnId);
  // The descriptors that we made are what is read; the exit code came through although a folder stood in its way.
  expect(kept.stdout.toString()).toBe('before\n');
  expect(kept.progress.exitCode).toBe(0);

  await pair.replaceSidecar();
  const again = await followTurn(pair.sidecar, launch.turnId);
  expect(again.stdout.length + again.stderr.length).toBe(0);
  for (const last of ['a', 'b', 'c', 'd']) {
    const turnId = `turn-aaaaaaaaaaaaaaa${last}`;
    const progress = await pair.sidecar.turnProgress({ turnId, stdout: 0, stderr: 0, waitMs: 0 });
    expect(progress.state).toBe(last === 'd' ? 'accepted' : 'absent');
    expect(progress.stderr).toBe(0);
  }
  const bytes = await pair.sidecar.readTurn({
    turnId: 'turn-aaaaaaaaaaaaaaad',
    stream: 'stdout',
    offset: 2 ** 39,
    limit: 100,
  });
  expect(bytes).toEqual(Buffer.alloc(100));
  for (const turnId of await pair.sidecar.listTurns()) await pair.sidecar.forgetTurn(turnId);
  for (const last of ['a', 'b', 'c'])
    rmSync(pair.path(`run/turns/turn-aaaaaaaaaaaaaaa${last}`), { force: true });
  await waitUntil('nothing is left', () => readdirSync(pair.path('run/turns')).length === 0);
  expect((await runTurn(pair.sidecar, { argv: ['echo', 'well'] })).stdout.toString()).toBe('well\n');
  expect(readFileSync(pair.path('control/secret'), 'utf8')).toBe('of the sidecar');
});

test('100 MB of output arrive completely, in bounded pieces', async () => {
  const pair = await bench.createPair();
  const launch = turnLaunch({ argv: ['sh', '-c', 'head -c 100000000 /dev/zero | tr "\\0" "\\251"'] });
  await pair.sidecar.launchTurn(launch, Buffer.alloc(0));
  let read = 0;
  for (;;) {
    const progress = await pair.sidecar.turnProgress({
      turnId: launch.turnId,
      stdout: read,
      stderr: 0,
      waitMs: 10_000,
    });
    while (read < progress.stdout) {
      const bytes = await pair.sidecar.readTurn({
        turnId: launch.turnId,
        stream: 'stdout',
        offset: read,
        limit: 2 ** 20,
      });
      expect(bytes.every((byte) => byte === 0o251)).toBe(true);
      read += bytes.length;
    }
    if (progress.state === 'ended') break;
  }
  expect(read).toBe(100_000_000);
  expect(statSync(pair.path('run/turns', launch.turnId, 'stdout')).size).toBe(100_000_000);
  await pair.sidecar.forgetTurn(launch.turnId);
});

test('any workspace of an agent can be measured, read and emptied', async () => {
  const pair = await bench.createPair();
  const script = `
    mkdir -p a/b closed/inner; printf 12345 > a/file; ln a/file a/b/again; ln -s /etc link; mkfifo fifo
    printf x > closed/inner/x; printf '\\377' > "$(printf 'name-\\377')"
    i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done; cd /workspace
    chmod 000 closed/inner closed; chmod 500 a`;
  expect((await runTurn(pair.sidecar, { argv: ['sh', '-c', script] })).stderr.toString()).toBe('');
  expect(await pair.sidecar.workspaceUsage()).toEqual({ bytes: 6, files: 5, directories: 303 });
  expect((await pair.sidecar.readFile('/workspace/a/file')).toString()).toBe('12345');
  await expect(pair.sidecar.readFile('link/passwd')).rejects.toMatchObject({ code: /^file_not/ });
  const stages: number[] = [];
  expect(
    await pair.sidecar.clearWorkspace({ onProgress: ({ done }) => stages.push(done ?? 0) }),
  ).toMatchObject({ files: 6 });
  expect(readdirSync(pair.path('workspace'))).toEqual([]);
  expect(await pair.sidecar.workspaceUsage()).toEqual({ bytes: 0, files: 0, directories: 0 });
});

test('without inotify it polls, reports that, and loses no change', async ({ skip }) => {
  skip(process.getuid?.() !== 0, 'the agent must have a uid of its own, whose instances can be used up');
  const pair = await bench.createPair();
  // The agent takes every inotify instance of its uid, which is counted on the whole machine.
  const greedy = `
import ctypes, time
libc = ctypes.CDLL(None)
while libc.inotify_init1(0) >= 0: pass
print("taken", flush=True)
while True:
    libc.inotify_init1(0)
    time.sleep(0.005)`;
  const launch = turnLaunch({ argv: ['python3', '-c', greedy] });
  await pair.sidecar.launchTurn(launch, Buffer.alloc(0));
  await pair.sidecar.turnProgress({ turnId: launch.turnId, stdout: 0, stderr: 0, waitMs: 20_000 });
  await pair.replaceSidecar();
  expect(pair.sidecar.hello.watch).toBe('polling');
  const { stdout } = await runTurn(pair.sidecar, { argv: ['sh', '-c', 'echo one; sleep 0.3; echo two'] });
  expect(stdout.toString()).toBe('one\ntwo\n');
  await pair.sidecar.killTurn(launch.turnId, 0);
  expect((await followTurn(pair.sidecar, launch.turnId)).progress.exitCode).toBe(137);
});

test('a supervisor reaches the sidecar through a relay as well', async () => {
  const pair = await bench.createPair();
  const id = execFileSync(
    'docker',
    [
      'ps',
      '-q',
      '--filter',
      `label=dev.holdfast.session=${pair.session}`,
      '--filter',
      `ancestor=${__SIDECAR_IMAGE__}`,
    ],
    { encoding: 'utf8' },
  ).trim();
  const hello = `{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":"${SIDECAR_PROTOCOL}","session":"${pair.session}"}}\n`;
  const answer = execFileSync(
    'docker',
    [
      'exec',
      '-i',
      id,
      'sh',
      '-c',
      'head -n 1 | { cat; sleep 1; } | node /opt/holdfast/relay.cjs | head -n 1',
    ],
    {
      input: hello,
      encoding: 'utf8',
    },
  );
  expect(JSON.parse(answer)).toMatchObject({ id: 1, result: { session: pair.session } });
});

test('calls to a frozen sidecar fail; calls to a slow one do not', async () => {
  const pair = await bench.createPair();
  const dial = async () => {
    const socket = await connectToSidecarSocket(pair.path('control/sidecar.sock'));
    if (socket === null) throw new Error('the sidecar does not listen');
    return socket;
  };
  const patience = { checkMs: 100, silenceMs: 2000 };
  const files = await FilesConnection.open(dial, pair.session, undefined, patience);
  const control = await SidecarClient.connect(dial, pair.session, patience);
  // Longer than both together, and answered all the same.
  const { watch } = (await files.call('files/watch-open', { path: '/workspace' })).result;
  const { result } = await files.call('files/watch-next', { watch, waitMs: 3000 });
  expect(result.changes).toEqual([]);

  await pair.freezeSidecar();
  try {
    const began = performance.now();
    const ends = await Promise.allSettled([
      files.call('files/stat', { path: '/workspace' }),
      control.workspaceUsage(),
      control.clearWorkspace(),
    ]);
    expect(performance.now() - began).toBeLessThan(10_000);
    for (const end of ends) {
      expect(end).toMatchObject({
        reason: {
          code: 'connection_closed',
          why: expect.stringContaining('it did not answer for') as string,
        },
      });
    }
  } finally {
    await pair.thawSidecar();
  }
  const next = await FilesConnection.open(dial, pair.session, undefined, patience);
  expect((await next.call('files/stat', { path: '/workspace' })).result.type).toBe('directory');
  next.close();
});
