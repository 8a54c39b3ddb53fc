import { existsSync, statSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Turn } from '../../../protocol/entities.ts';
import { type ContainerPair, ContainerPairs } from '../../docker/container-pair.ts';
import { Screen } from '../../docker/terminals/screen.ts';
import { turnOutput } from '../../faults/harness/expectations.ts';
import type { FaultHome } from '../../faults/harness/fault-home.ts';
import { useFaultFixture, waitForTurn, waitUntil } from '../../faults/harness/fault-fixture.ts';
import { turnLaunch } from '../../fixtures/sidecar/turns.ts';
import { handlerProject, shellProject } from '../../setup/profiles.ts';

/** Ways to go on after the turn's own processes were killed. `MARK` is in the name of what goes on. */
const HIDING: readonly (readonly [how: string, script: string])[] = [
  ['in a session of its own', 'setsid sleep 86401 </dev/null >/dev/null 2>&1 &'],
  ['after two forks', '( ( setsid sleep 86402 & ) & ) </dev/null >/dev/null 2>&1'],
  ['with an empty environment', '( env -i setsid sleep 86403 & ) </dev/null >/dev/null 2>&1'],
  ['under another name', '( bash -c "exec -a runner.sh setsid sleep 86404" & ) </dev/null >/dev/null 2>&1'],
  [
    'as a terminal, an exec and another session',
    '( HOLDFAST_TERMINAL=term-aaaaaaaaaaaaaaaa HOLDFAST_EXEC=exec-aaaaaaaaaaaaaaaa HOLDFAST_SESSION=x setsid sleep 86405 & ) </dev/null >/dev/null 2>&1',
  ],
  [
    'as a keeper of terminals',
    `( cd / && setsid /opt/holdfast/busybox sh -c 'sleep 86406; :' keep-terminal.sh /opt/holdfast/busybox /run/holdfast term-aaaaaaaaaaaaaaaa & ) </dev/null >/dev/null 2>&1`,
  ],
  [
    'with a name of three lines',
    `( python3 -c 'import ctypes, os, time
os.setsid()
ctypes.CDLL(None).prctl(15, b"x\\nPPid:\\t0\\n", 0, 0, 0)
time.sleep(86407)' & ) </dev/null >/dev/null 2>&1`,
  ],
];
/** Processes that live in another one every moment, and say so: nobody can name them in time. */
function hoppers(count: number): string {
  return `python3 -c 'import os
for name in range(${count}):
    if os.fork(): continue
    os.setsid()
    hops = 0
    while True:
        if os.fork(): os._exit(0)
        hops += 1
        if hops % 50 == 0: open("/workspace/hops", "a").write(".")' >/dev/null 2>&1 &
  sleep 1`;
}

async function strays(pair: ContainerPair): Promise<string[]> {
  return (await pair.processes()).filter((line) => /8640|python3 -c/.test(line) && !line.startsWith('Z'));
}

async function runScript(pair: ContainerPair, script: string): Promise<void> {
  const launch = turnLaunch({ argv: ['bash', '-c', `${script}\necho up; exec sleep 0.3`] });
  await pair.sidecar.launchTurn(launch, Buffer.alloc(0));
  await waitUntil('the turn has ended', async () => {
    const progress = await pair.sidecar.turnProgress({
      turnId: launch.turnId,
      stdout: 0,
      stderr: 0,
      waitMs: 100,
    });
    return progress.state === 'ended';
  });
}

describe('a sweep of the agent container', () => {
  let bench: ContainerPairs;
  beforeAll(async () => {
    bench = await ContainerPairs.create();
  });
  afterAll(async () => {
    await bench.dispose();
  });

  test('leaves nothing of what hides, and open terminals and execs alone', async () => {
    const pair = await bench.createPair();
    const screen = await Screen.open(() => pair.sidecar, { argv: ['bash', '--norc'] });
    await screen.type('sleep 85001 & sleep 85002\r');
    // It hears of it when something stops it for a moment.
    const resting = `import signal
signal.signal(signal.SIGCONT, lambda *_: open("/workspace/stopped", "w"))
while True: signal.pause()`;
    const other = await Screen.open(() => pair.sidecar, { argv: ['python3', '-Ic', resting] });
    const exec = pair.runInAgent(['bash', '-c', 'sleep 85003 & sleep 85004; echo survived']);
    await waitUntil('both run', async () => {
      const all = (await pair.processes()).join('\n');
      return ['85001', '85002', '85003', '85004'].every((one) => all.includes(one));
    });
    await runScript(pair, HIDING.map(([, script]) => script).join('\n'));
    const hidden = (await strays(pair)).join('\n');
    for (let nth = 1; nth <= HIDING.length; nth += 1) expect(hidden).toContain(`8640${nth}`);
    expect(await pair.sidecar.sweepAgent(10_000)).toBe(0);
    expect(await strays(pair)).toEqual([]);
    const all = (await pair.processes()).join('\n');
    for (const one of ['85001', '85002', '85003', '85004']) expect(all).toContain(one);
    expect(existsSync(pair.path('workspace/stopped'))).toBe(false);
    await other.type('\x03');
    await screen.type('\x03');
    // The shell drops what is typed while it handles the interrupt.
    await screen.waitFor('^C');
    await sleep(1000);
    await screen.type('echo alive-$((1 + 1))\r');
    await screen.waitFor('alive-2\r\n');
    await pair.runInAgent(['pkill', '-f', '^sleep 85004']);
    expect((await exec).output).toContain('survived');
    // A terminal opens as before.
    const next = await Screen.open(() => pair.sidecar, { argv: ['bash', '--norc'] });
    await next.type('echo again-$((1 + 1))\r');
    await next.waitFor('again-2\r\n');
  }, 60_000);

  async function expectNoHops(pair: ContainerPair): Promise<void> {
    const before = statSync(pair.path('workspace/hops')).size;
    await sleep(500);
    expect(statSync(pair.path('workspace/hops')).size).toBe(before);
  }

  test('ends processes that change their ids all the time', async () => {
    const pair = await bench.createPair();
    await runScript(pair, hoppers(20));
    expect(await pair.sidecar.sweepAgent(20_000)).toBe(0);
    await expectNoHops(pair);
    await runScript(pair, 'true');
  }, 60_000);

  test('ends them beside a terminal, which stays with its jobs', async () => {
    const pair = await bench.createPair();
    const screen = await Screen.open(() => pair.sidecar, { argv: ['bash', '--norc'] });
    await screen.type('sleep 85005\r');
    await waitUntil('it runs', async () => (await pair.processes()).join('\n').includes('85005'));
    await screen.type('\x1a');
    await screen.waitFor('Stopped');
    await runScript(pair, hoppers(20));
    expect(await pair.sidecar.sweepAgent(30_000)).toBe(0);
    await expectNoHops(pair);
    await screen.type('jobs; echo alive-$((1 + 1))\r');
    expect(await screen.waitFor('alive-2\r\n')).toContain('Stopped');
  }, 60_000);
});

describe('a turn that is ended before its time', () => {
  const fixture = useFaultFixture((end) => afterAll(end));
  let home: FaultHome;
  beforeAll(async () => {
    home = await fixture.createHome();
    await home.start();
    await fixture.deploy(home, shellProject('sh'));
    await fixture.deploy(
      home,
      handlerProject(
        'py',
        `import os, subprocess, time
state = []
def handler(i):
    if i.get("read"):
        return open(i["read"]).read()
    state.append(1)
    if i.get("script"):
        subprocess.Popen(["bash", "-c", i["script"]])
        time.sleep(i.get("seconds", 3600))
    return len(state)
`,
      ),
    );
  });

  async function start(profile: string, name: string, prompt: string, timeoutMs?: number): Promise<string> {
    const { turn } = await home.call('turn/start', {
      profile,
      name,
      prompt,
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    });
    return turn.turnId;
  }

  async function run(profile: string, name: string, prompt: string): Promise<Turn> {
    return await waitForTurn(home, await start(profile, name, prompt), 60_000);
  }

  async function output(turn: Turn): Promise<string> {
    return (await turnOutput(home, turn.turnId, 'stdout')).toString();
  }

  async function untilSays(turnId: string, wanted: string): Promise<void> {
    const { peer } = await home.connect();
    const what = { turn: turnId, stream: 'stdout', offset: 0, limit: 1000, waitMs: 0 } as const;
    const says = async (): Promise<boolean> =>
      Buffer.from((await peer.callWithBytes('turn/output', what)).bytes)
        .toString()
        .includes(wanted);
    await waitUntil(`it says ${wanted}`, says, 20_000);
  }

  /** What goes on in the session's container, of what hides. */
  async function whatIsLeft(name: string): Promise<string> {
    const look =
      'for p in /proc/[0-9]*; do tr "\\0" " " <$p/cmdline 2>/dev/null; echo; done | grep "86[4]" ; exit 0';
    return await output(await run('sh', name, look));
  }

  async function whys(turn: Turn): Promise<string[]> {
    const { events } = await home.call('session/events', { session: turn.sessionId, limit: 500 });
    return events.flatMap(({ type, data }) =>
      type === 'sandbox.removed' ? [JSON.stringify(data['why'])] : [],
    );
  }

  test('leaves nothing when it is cancelled, in the same container', async () => {
    const script = `${HIDING.map(([, one]) => one).join('\n')}\necho up; sleep 3600`;
    const turnId = await start('sh', 'cancelled', `bash -c '${script.replaceAll("'", `'\\''`)}'`);
    await untilSays(turnId, 'up');
    await home.call('turn/cancel', { turn: turnId });
    const turn = await waitForTurn(home, turnId, 60_000);
    expect(turn.status).toBe('cancelled');
    expect(await whys(turn)).toEqual([]);
    expect(await whatIsLeft('cancelled')).toBe('');
  }, 60_000);

  test('leaves nothing when it takes too long', async () => {
    const turnId = await start('sh', 'late', 'setsid sleep 86408 >/dev/null 2>&1 & sleep 3600', 2000);
    expect((await waitForTurn(home, turnId, 60_000)).status).toBe('timeout');
    expect(await whatIsLeft('late')).toBe('');
  }, 60_000);

  test('leaves nothing when it is a handler, and the next worker starts', async () => {
    const script = '(env -i setsid sleep 86409 &) >/dev/null 2>&1; echo up';
    const { turn } = await home.call('turn/start', { profile: 'py', name: 'handler', input: { script } });
    await untilSays(turn.turnId, 'up');
    await home.call('turn/cancel', { turn: turn.turnId });
    expect((await waitForTurn(home, turn.turnId, 60_000)).status).toBe('cancelled');
    const look = { script: 'pgrep -fl "86[4]09" > /workspace/left; true', seconds: 1 };
    const next = await home.call('turn/start', { profile: 'py', name: 'handler', input: look });
    expect(await waitForTurn(home, next.turn.turnId, 60_000)).toMatchObject({
      status: 'succeeded',
      output: 1,
    });
    const left = await run('py', 'handler', JSON.stringify({ read: '/workspace/left' }));
    expect(left.output).toBe('');
  }, 60_000);

  test('that ends by itself leaves what it started', async () => {
    await run('sh', 'normal', 'setsid sleep 86410 >/dev/null 2>&1 & exit 0');
    expect(await whatIsLeft('normal')).toContain('86410');
  }, 60_000);

  test('loses its container when the runner cannot end what is left, and the history says so', async () => {
    // When the turn is killed it stops the runner, and somebody answers in its place.
    const script = `
      answer() {
        kill -STOP $(awk '/^PPid/ { print $2 }' /proc/$PPID/status)
        env -i setsid bash -c 'while read -r verb nonce; do
          [ "$verb" != sweep ] || echo "$nonce 0" >/run/holdfast/swept
        done <>/run/holdfast/requests' >/dev/null 2>&1 &
        exit 0
      }
      trap answer TERM
      echo up
      while :; do sleep 0.1; done`;
    const turnId = await start('sh', 'forged', script);
    await untilSays(turnId, 'up');
    await home.call('turn/cancel', { turn: turnId });
    const turn = await waitForTurn(home, turnId, 50_000);
    expect(turn.status).toBe('cancelled');
    expect(await whys(turn)).toEqual([
      expect.stringMatching(/^"a turn was terminated, and .*that it had left did not end"$/),
    ]);
    expect(await run('sh', 'forged', 'exit 0')).toMatchObject({ status: 'succeeded' });
  }, 60_000);
});
